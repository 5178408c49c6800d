//! The cgroup that QEMU runs in.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::{MachineId, Resources};

/// Where machines are whose pod has no cgroup, as pods that kubelet did not make.
const WITHOUT_POD: &str = "/virtlet";
/// Ends the name of a unit of systemd's that groups other units.
const SLICE: &str = ".slice";
/// Ends the name of a unit of systemd's that has processes which systemd has not started.
const SCOPE: &str = ".scope";
/// The cgroup in a machine's scope that has QEMU and its limits: the scope's own files are systemd's to write.
const IN_SCOPE: &str = "vm";
/// Longer than kubelet's, shorter than what makes a path too long.
const MAX_PARENT: usize = 1024;
/// CFS period when kubelet names none, in microseconds (kernel, `sched_cfs_period_us`).
const DEFAULT_PERIOD: u64 = 100_000;
/// What the kernel takes as shares.
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

/// A cgroup below the pod's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Its path below the root of each hierarchy.
    pub path: String,
}

/// The unit of systemd's that a machine's cgroup lies in, where kubelet has systemd make the cgroups of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// `virtlet-<machine id>.scope`.
    pub unit: &'a str,
    /// The pod's unit.
    pub slice: &'a str,
    /// The path of the pod's cgroup.
    pub slice_path: &'a str,
    /// The path of the scope's own cgroup.
    pub path: &'a str,
}

/// What the kernel is to hold a cgroup to. What is not said stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    pub cpu: Option<CpuLimit>,
    /// Weight against other cgroups, in shares as of version 1.
    pub shares: Option<u64>,
    /// Bytes.
    pub memory: Option<u64>,
    /// Bytes; `u64::MAX` is any number.
    pub swap: Option<u64>,
    /// Bytes that are never taken away for others.
    pub memory_min: Option<u64>,
    /// Bytes that are taken away only when there is nothing else to be had.
    pub memory_low: Option<u64>,
    /// List of CPUs; empty if not said.
    pub cpuset_cpus: String,
    /// List of memory nodes; empty if not said.
    pub cpuset_mems: String,
}

/// Time on CPUs in a period, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuLimit {
    /// `None` is any.
    pub quota: Option<u64>,
    pub period: u64,
}

impl Cgroup {
    /// The cgroup of machine `id`, whose pod has `parent` as [`Self::of_pod`] takes it.
    ///
    /// # Errors
    /// When that is no cgroup.
    pub fn of(parent: &str, id: MachineId) -> Result<Self> {
        let parent = Self::of_pod(parent)?;
        let parent = if parent.is_empty() { WITHOUT_POD } else { &parent };
        let path = format!("{parent}/virtlet-{id}");
        Ok(Self { path: if parent.ends_with(SLICE) { format!("{path}{SCOPE}/{IN_SCOPE}") } else { path } })
    }

    /// The unit that it lies in; `None` if its pod is no slice, or an earlier release has planned the machine.
    #[must_use]
    pub fn scope(&self) -> Option<Scope<'_>> {
        let (path, _) = self.path.rsplit_once('/')?;
        let (slice_path, unit) = path.rsplit_once('/')?;
        let (_, slice) = slice_path.rsplit_once('/')?;
        (slice.ends_with(SLICE) && unit.ends_with(SCOPE)).then_some(Scope { unit, slice, slice_path, path })
    }

    /// The path of a pod's cgroup, which CRI gives as a path or as the name of a slice of systemd's; empty if the pod has none.
    ///
    /// # Errors
    /// When it is neither.
    pub fn of_pod(parent: &str) -> Result<String> {
        let path = match parent {
            "" | "/" => return Ok(String::new()),
            slice if !slice.contains('/') && slice.ends_with(SLICE) => slice_path(slice),
            path => format!("/{}", path.strip_prefix('/').unwrap_or(path)),
        };
        let named = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(char::is_control);
        if path.len() > MAX_PARENT || !path.split('/').skip(1).all(named) {
            let shown: String = parent.chars().filter(|c| !c.is_control()).take(64).collect();
            return Err(Error::new(Kind::Invalid, format!("`{shown}` is not the path of a cgroup")));
        }
        Ok(path)
    }
}

/// `a-b.slice` lies in `a.slice`.
fn slice_path(slice: &str) -> String {
    let stem = slice.strip_suffix(SLICE).unwrap_or(slice);
    let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    ends.filter_map(|end| stem.get(..end)).map(|stem| format!("/{stem}{SLICE}")).collect()
}

impl Limits {
    /// The limits of resources, when the pod has `overhead` bytes beside: QEMU takes these before it takes of the guest's.
    #[must_use]
    pub fn of(resources: &Resources, overhead: u64) -> Self {
        let positive = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
        let period = positive(resources.cpu_period).unwrap_or(DEFAULT_PERIOD);
        let quota = positive(resources.cpu_quota);
        // The guest's memory is not kept by keeping what QEMU takes before it.
        let beside = |bytes: u64| if bytes == 0 { 0 } else { bytes.saturating_add(overhead) };
        Self {
            cpu: (resources.cpu_quota != 0).then_some(CpuLimit { quota, period }),
            shares: positive(resources.cpu_shares).map(|shares| shares.clamp(*SHARES.start(), *SHARES.end())),
            memory: positive(resources.memory_limit).map(|limit| limit.saturating_add(overhead)),
            swap: resources.swap,
            memory_min: resources.memory_min.map(beside),
            memory_low: resources.memory_low.map(beside),
            cpuset_cpus: resources.cpuset_cpus.clone(),
            cpuset_mems: resources.cpuset_mems.clone(),
        }
    }

    /// Without the memory limit if a machine that holds so much would be killed at it. A resize that was done and not recorded,
    /// as controld was killed or the disk was full, has given it more.
    #[must_use]
    pub fn bearable(self, held: Option<u64>) -> Self {
        let memory = self.memory.filter(|limit| held.is_none_or(|held| held <= *limit));
        Self { memory, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_lies_below_its_pod() {
        let id = MachineId::from(uuid::Uuid::from_u128(7));
        for (parent, path) in [
            ("/kubepods/burstable/pod1", "/kubepods/burstable/pod1"),
            ("kubepods/pod1", "/kubepods/pod1"),
            ("", "/virtlet"),
        ] {
            let cgroup = Cgroup::of(parent, id).expect(parent);
            assert_eq!((cgroup.path.as_str(), cgroup.scope()), (&*format!("{path}/virtlet-{id}"), None), "{parent}");
        }
        for (parent, path, slice) in [
            (
                "kubepods-burstable-pod1.slice",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
                "kubepods-burstable-pod1.slice",
            ),
            ("/kubepods.slice/kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice", "kubepods-pod1.slice"),
        ] {
            let cgroup = Cgroup::of(parent, id).expect(parent);
            let unit = format!("virtlet-{id}.scope");
            assert_eq!(cgroup.path, format!("{path}/{unit}/vm"), "{parent}");
            let scope = Scope { unit: &unit, slice, slice_path: path, path: &format!("{path}/{unit}") };
            assert_eq!(cgroup.scope(), Some(scope), "{parent}");
        }
        let earlier = Cgroup { path: format!("/kubepods.slice/kubepods-pod1.slice/virtlet-{id}") };
        assert_eq!(earlier.scope(), None);
        for parent in ["/a/../b", "..", "/a//b", "/a/./b", "/a\n", &"a".repeat(2000)] {
            let refused = Cgroup::of(parent, id).expect_err("no path");
            assert_eq!(refused.kind(), Kind::Invalid, "{parent:?}");
        }
    }

    #[test]
    fn limits_are_those_of_the_container_and_memory_is_with_the_pods_overhead() {
        let resources = Resources { cpu_quota: 150_000, cpu_shares: 1, memory_limit: 1000, ..Resources::default() };
        let limits = Limits::of(&resources, 50);
        assert_eq!(limits.cpu, Some(CpuLimit { quota: Some(150_000), period: 100_000 }));
        assert_eq!((limits.shares, limits.memory), (Some(2), Some(1050)));
        assert_eq!(limits.clone().bearable(Some(1050)), limits);
        assert_eq!(limits.clone().bearable(None), limits);
        assert_eq!(limits.clone().bearable(Some(1051)), Limits { memory: None, ..limits });
        assert_eq!(Limits::of(&Resources::default(), 50), Limits::default());
        let kept = |bytes| Limits::of(&Resources { memory_min: Some(bytes), ..Resources::default() }, 50).memory_min;
        assert_eq!([0, 1000, u64::MAX].map(kept), [Some(0), Some(1050), Some(u64::MAX)]);
        let unlimited = Limits::of(&Resources { cpu_quota: -1, cpu_period: 50_000, ..Resources::default() }, 0);
        assert_eq!(unlimited.cpu, Some(CpuLimit { quota: None, period: 50_000 }));
    }
}
