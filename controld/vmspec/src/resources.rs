//! What a container may use of its node, as kubelet says it.

use serde::{Deserialize, Serialize};

/// The resources that rule a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CFS period in microseconds.
    pub cpu_period: i64,
    /// CFS quota in microseconds; 0 or less is none.
    pub cpu_quota: i64,
    pub cpu_shares: i64,
    /// Memory limit in bytes; 0 is none.
    pub memory_limit: i64,
    pub oom_score_adj: i64,
    pub cpuset_cpus: String,
    /// Memory nodes.
    pub cpuset_mems: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<HugePages>,
    /// Most bytes in swap; `u64::MAX` is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<u64>,
    /// Bytes that are kept for it when the node is short of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<u64>,
    /// Bytes that are kept for it as long as others have some to spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_low: Option<u64>,
}

/// Memory in huge pages. All of a guest's is in them, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// Bytes of one.
    pub size: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// CFS period when kubelet names none, in microseconds (kernel, `sched_cfs_period_us`).
const DEFAULT_PERIOD: i64 = 100_000;
/// Shares that kubelet gives for a whole processor.
const SHARES: i64 = 1024;

impl Resources {
    /// These, with what `update` says in place of its own; what is zero or empty there stays.
    #[must_use]
    pub fn updated(&self, update: &Self) -> Self {
        let number = |old: i64, new: i64| if new == 0 { old } else { new };
        let text = |old: &str, new: &str| if new.is_empty() { old.to_owned() } else { new.to_owned() };
        Self {
            cpu_period: number(self.cpu_period, update.cpu_period),
            cpu_quota: number(self.cpu_quota, update.cpu_quota),
            cpu_shares: number(self.cpu_shares, update.cpu_shares),
            memory_limit: number(self.memory_limit, update.memory_limit),
            oom_score_adj: number(self.oom_score_adj, update.oom_score_adj),
            cpuset_cpus: text(&self.cpuset_cpus, &update.cpuset_cpus),
            cpuset_mems: text(&self.cpuset_mems, &update.cpuset_mems),
            huge_pages: update.huge_pages.or(self.huge_pages),
            swap: update.swap.or(self.swap),
            memory_min: update.memory_min.or(self.memory_min),
            memory_low: update.memory_low.or(self.memory_low),
        }
    }

    /// The CPU limit rounded up to whole CPUs, if there is one.
    ///
    /// A container with CPUs of its own has no quota: kubelet says -1, and which they are.
    #[must_use]
    pub fn cpus(&self) -> Option<u16> {
        match self.cpu_quota {
            0 => return None,
            ..0 => return cpus_of_list(&self.cpuset_cpus),
            1.. => {}
        }
        let period = if self.cpu_period > 0 { self.cpu_period } else { DEFAULT_PERIOD };
        let cpus = self.cpu_quota / period + i64::from(self.cpu_quota % period != 0);
        Some(u16::try_from(cpus).unwrap_or(u16::MAX))
    }

    /// The node's processors that the container may use, if they were said.
    #[must_use]
    pub fn node_cpus(&self) -> Option<Vec<u32>> {
        let list = &self.cpuset_cpus;
        // A list may be of any length, and what it names, too.
        cpus_of_list(list)?;
        Some(list.split(',').filter_map(range).flat_map(|(first, last)| first..=last).collect())
    }

    /// The node's memory nodes that the container may use, as a list, if they were said.
    #[must_use]
    pub fn memory_nodes(&self) -> Option<String> {
        cpus_of_list(&self.cpuset_mems).map(|_count| self.cpuset_mems.clone())
    }

    /// Those of the node's processors that are the container's own: kubelet's CPU manager gives them to who asks for whole ones, and
    /// lets nobody else use them. Whoever shares asks for less than is there, or has a limit that is less.
    #[must_use]
    pub fn own_cpus(&self) -> Option<Vec<u32>> {
        let cpus = self.node_cpus()?;
        let count = i64::try_from(cpus.len()).ok()?;
        let period = if self.cpu_period > 0 { self.cpu_period } else { DEFAULT_PERIOD };
        let has_all = self.cpu_quota < 0 || self.cpu_quota == count * period;
        (has_all && self.cpu_shares >= count * SHARES).then_some(cpus)
    }
}

/// How many CPUs a list has, such as `0-3,8`; `None` if it is none.
fn cpus_of_list(list: &str) -> Option<u16> {
    let count = |part: &str| {
        let (first, last) = range(part)?;
        last.checked_sub(first)?.checked_add(1)
    };
    let all = list.split(',').map(count).try_fold(0_u32, |all, some| all.checked_add(some?))?;
    u16::try_from(all).ok().filter(|all| *all > 0)
}

/// First and last of a list's part.
fn range(part: &str) -> Option<(u32, u32)> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(cpuset_cpus: &str, cpu_quota: i64, cpu_shares: i64) -> Resources {
        Resources { cpuset_cpus: cpuset_cpus.into(), cpu_quota, cpu_shares, ..Resources::default() }
    }

    #[test]
    fn processors_are_a_containers_own_if_it_asks_for_all_of_each() {
        let own = Some(vec![2, 3, 8]);
        assert_eq!(resources("2-3,8", -1, 3072).own_cpus(), own);
        assert_eq!(resources("2-3,8", 300_000, 3072).own_cpus(), own, "an earlier kubelet has a quota for them");
        for (list, quota, shares) in [
            ("2-3,8", 150_000, 1536),
            ("2-3,8", 300_000, 1024),
            ("2-3,8", -1, 2),
            ("2-3,8", 0, 3072),
            ("", -1, 1024),
            ("3-2", -1, 1024),
            ("0-4294967295", -1, 1024),
        ] {
            assert_eq!(resources(list, quota, shares).own_cpus(), None, "{list} {quota} {shares}");
        }
    }

    #[test]
    fn lists_that_are_none_are_not_told_to_libvirt() {
        let nodes = |list: &str| Resources { cpuset_mems: list.into(), ..Resources::default() }.memory_nodes();
        assert_eq!(nodes("0-1"), Some("0-1".into()));
        assert_eq!(nodes(""), None);
        assert_eq!(nodes("0\" />"), None);
    }
}
