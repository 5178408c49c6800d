//! Resources of a container to the size of its machine. Pure.
//!
//! A memory limit is of QEMU with its guest in it, so the guest gets what QEMU leaves of it. What the pod may take beside its
//! limits (RuntimeClass `overhead.podFixed`) pays for QEMU first.

mod qemu_part;
#[cfg(test)]
mod tests;

use qemu_part::QemuPart;

pub(super) use qemu_part::Parts;

use crate::error::{Error, Kind, Result};
use crate::plan::{Cpus, MachinePlan, Memory};
use crate::settings::{MachineConfig, MachineDefaults};
use crate::{Accelerator, Applied, HugePages, Resources};

const MIB: u64 = 1 << 20;
/// The page size that guest memory is a multiple of.
const GRAIN: u64 = 2 * MIB;

/// What a machine is to have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The container's limits.
    pub resources: Option<&'a Resources>,
    /// Memory that the pod has beside them, in bytes.
    pub overhead: u64,
    /// Virtual CPUs by annotation.
    pub vcpus: Option<u16>,
    /// Most virtual CPUs, by annotation.
    pub max_vcpus: Option<u16>,
    /// Most guest memory, by annotation, in bytes.
    pub max_memory: Option<u64>,
    /// What the pod's runtime handler gives where nothing else is said.
    pub handler: Option<&'a MachineDefaults>,
}

/// The vCPUs of a machine: the CPU limit rounded up unless an annotation says otherwise.
pub(super) fn cpus(wanted: Wanted<'_>, config: &MachineConfig) -> Result<Cpus> {
    let resources = wanted.resources;
    let handler = |of: fn(&MachineDefaults) -> Option<u16>| wanted.handler.and_then(of);
    let vcpus = wanted.vcpus.or_else(|| resources.and_then(Resources::cpus)).or(handler(|it| it.default_vcpus));
    let vcpus = vcpus.unwrap_or(config.default_vcpus).clamp(1, 255);
    // A handler's most is no limit of what a machine boots with.
    let max = wanted.max_vcpus.unwrap_or_else(|| handler(|it| it.max_vcpus).unwrap_or(vcpus).max(vcpus));
    if max < vcpus {
        return Err(below("vcpus", u64::from(max), &format!("{vcpus} vCPUs")));
    }
    Ok(Cpus { boot: vcpus, max })
}

/// The memory of a machine: the memory limit less what of QEMU's own the pod's overhead does not pay.
pub(super) fn memory(
    wanted: Wanted<'_>,
    vcpus: u16,
    parts: Parts,
    accel: Accelerator,
    config: &MachineConfig,
) -> Result<Memory> {
    let resources = wanted.resources;
    let limit = resources.and_then(|r| u64::try_from(r.memory_limit).ok()).filter(|limit| *limit > 0);
    let huge_pages = resources.and_then(|resources| resources.huge_pages);
    let qemu = QemuPart::of(vcpus, parts, accel, config);
    let memory = match (huge_pages, limit) {
        (Some(pages), limit) => in_huge_pages(pages, limit, wanted.overhead, &qemu, config)?,
        (None, Some(limit)) => guest_memory(limit, wanted.overhead, &qemu, config)?,
        (None, None) => wanted.handler.and_then(|it| it.default_memory).unwrap_or(config.default_memory),
    };
    let max_memory = match (huge_pages, wanted.max_memory) {
        (Some(_), Some(_)) => {
            let what =
                "annotation virtlet.cloud/max-memory: a guest's memory in huge pages does not grow; leave it out";
            return Err(Error::new(Kind::Invalid, what));
        }
        (Some(_), None) => memory,
        (None, Some(bytes)) => bytes / GRAIN * GRAIN,
        (None, None) => {
            let most = wanted.handler.and_then(|it| it.max_memory).unwrap_or_default();
            (most / GRAIN * GRAIN).max(memory)
        }
    };
    if max_memory < memory {
        return Err(below("memory", max_memory, &format!("{memory} bytes")));
    }
    Ok(Memory { boot: memory, max: max_memory })
}

/// What a guest is to be that a memory limit is looked for of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// In bytes.
    pub memory: u64,
    pub vcpus: u16,
    /// Beside root disk and seed.
    pub disks: usize,
    pub uefi: bool,
}

impl Guest {
    /// The memory limit with which it has its memory, under KVM and with the node's own formula, in a pod that has `overhead` beside its
    /// limits; and that memory, which is a multiple of what memory is given in.
    #[must_use]
    pub fn limit(self, overhead: u64) -> (u64, u64) {
        let memory = self.memory.div_ceil(GRAIN).saturating_mul(GRAIN);
        let all = memory.saturating_add(self.beside(memory)).saturating_sub(overhead);
        (memory, all.max(memory).div_ceil(MIB).saturating_mul(MIB))
    }

    /// The memory limit if that memory is in huge pages: what QEMU takes beside them.
    #[must_use]
    pub fn limit_beside(self) -> u64 {
        self.beside(self.memory).div_ceil(MIB).saturating_mul(MIB)
    }

    fn beside(self, memory: u64) -> u64 {
        let parts = Parts { disks: self.disks, on_pci: self.disks, firmware: self.uefi, ..Parts::default() };
        QemuPart::of(self.vcpus, parts, Accelerator::Kvm, &MachineConfig::default()).beside(memory)
    }
}

fn below(what: &str, max: u64, boots: &str) -> Error {
    let what = format!("annotation virtlet.cloud/max-{what}: {max} is below what the machine boots with, {boots}");
    Error::new(Kind::Invalid, what)
}

/// What a machine of `plan` that runs with `now` has with other resources. `before` is the memory limit that it has `now`.
///
/// vCPUs are not taken away: the guest may not let go of them, and the quota holds it all the same.
pub fn again(
    plan: &MachinePlan,
    now: Applied,
    before: i64,
    wanted: Wanted<'_>,
    accel: Accelerator,
    config: &MachineConfig,
) -> Result<Applied> {
    let resources = wanted.resources;
    let vcpus =
        wanted.vcpus.or_else(|| resources.and_then(Resources::cpus)).unwrap_or(now.vcpus).clamp(1, 255).max(now.vcpus);
    if vcpus > plan.cpus.max {
        let what = format!(
            "{vcpus} vCPUs are more than the {} that the running machine can be given; set annotation virtlet.cloud/max-vcpus \
             and restart the pod",
            plan.cpus.max
        );
        return Err(Error::new(Kind::State, what));
    }
    let limit = resources.map(|resources| resources.memory_limit).filter(|limit| *limit > 0 && *limit != before);
    let huge_pages = resources.and_then(|resources| resources.huge_pages);
    let has = plan.huge_page.map(|size| HugePages { size, bytes: plan.memory.boot });
    if huge_pages != has {
        let what = "the huge pages of a running machine cannot be changed; restart the pod";
        return Err(Error::new(Kind::State, what));
    }
    let qemu = QemuPart::of(vcpus, Parts::of_plan(plan), accel, config);
    let memory = match (has, limit.and_then(|limit| u64::try_from(limit).ok())) {
        (Some(pages), limit) => in_huge_pages(pages, limit, wanted.overhead, &qemu, config)?,
        (None, Some(limit)) => {
            let memory = guest_memory(limit, wanted.overhead, &qemu, config)?;
            // A first limit takes away, or nothing.
            if before > 0 { memory } else { memory.min(now.memory) }
        }
        (None, None) => now.memory,
    };
    if memory != now.memory && plan.hardware.described.devices.no_balloon {
        let what = "the memory of a running machine without a balloon cannot be changed; restart the pod";
        return Err(Error::new(Kind::State, what));
    }
    if memory > plan.memory.max {
        let what = format!(
            "{} MiB of guest memory are more than the {} MiB that the running machine can be given; set annotation \
             virtlet.cloud/max-memory and restart the pod",
            memory / MIB,
            plan.memory.max / MIB
        );
        return Err(Error::new(Kind::State, what));
    }
    Ok(Applied { vcpus, memory })
}

/// The memory of a guest that is in huge pages: they are beside the memory limit, which is for the rest of QEMU.
fn in_huge_pages(
    pages: HugePages,
    limit: Option<u64>,
    overhead: u64,
    qemu: &QemuPart,
    config: &MachineConfig,
) -> Result<u64> {
    let guest = pages.bytes;
    if guest < config.min_memory {
        let what = format!(
            "{} MiB in huge pages are less than the {} MiB of the least guest",
            guest / MIB,
            config.min_memory / MIB
        );
        return Err(Error::new(Kind::Invalid, what));
    }
    let Some(limit) = limit else { return Ok(guest) };
    qemu.boots_in(limit, overhead)?;
    let beside = qemu.beside(guest);
    if limit.saturating_add(overhead) >= beside {
        return Ok(guest);
    }
    let what = format!(
        "memory limit of {} and RuntimeClass `overhead.podFixed` of {} MiB are less than the {} MiB that QEMU takes \
         beside its guest's huge pages; raise one of them",
        said(limit),
        overhead / MIB,
        beside.div_ceil(MIB)
    );
    Err(Error::new(Kind::Invalid, what))
}

fn guest_memory(limit: u64, overhead: u64, qemu: &QemuPart, config: &MachineConfig) -> Result<u64> {
    let memory = qemu.leaves(limit.saturating_add(overhead)).min(limit) / GRAIN * GRAIN;
    if memory >= config.min_memory {
        return qemu.boots_in(limit, overhead).map(|()| memory);
    }
    let what = format!(
        "memory limit of {} leaves {} MiB for the guest after {} MiB for QEMU, of which RuntimeClass `overhead.podFixed` \
         pays {} MiB, and the least is {} MiB; raise the limit or `overhead.podFixed`, or set `machine.overhead_mib`",
        said(limit),
        memory / MIB,
        qemu.beside(memory) / MIB,
        overhead / MIB,
        config.min_memory / MIB
    );
    Err(Error::new(Kind::Invalid, what))
}

/// A limit as people write it. What is no MiB is a number without its unit, mostly: then the number is what helps.
fn said(limit: u64) -> String {
    if limit < MIB { format!("{limit} bytes") } else { format!("{} MiB", limit / MIB) }
}
