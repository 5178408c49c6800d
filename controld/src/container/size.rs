//! Resources of a container to the size of its machine. Pure.

use crate::config::MachineConfig;
use crate::error::{Error, Kind, Result};
use crate::model::Resources;

const MIB: u64 = 1 << 20;
/// The page size that guest memory is a multiple of.
const GRAIN: u64 = 2 * MIB;

/// Size of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Virtual CPUs.
    pub(super) vcpus: u16,
    /// Guest memory in bytes.
    pub(super) memory: u64,
}

/// The size that `resources` ask for: vCPUs are the CPU limit rounded up unless an annotation says otherwise, memory is
/// the memory limit less what QEMU itself needs.
pub(super) fn of(resources: Option<&Resources>, annotated: Option<u16>, config: &MachineConfig) -> Result<Size> {
    let limit = resources.and_then(|r| u64::try_from(r.memory_limit).ok()).filter(|limit| *limit > 0);
    let memory = match limit {
        Some(limit) => {
            let memory = limit.saturating_sub(config.overhead_mib * MIB) / GRAIN * GRAIN;
            if memory < config.min_memory_mib * MIB {
                let what = format!(
                    "memory limit of {} MiB leaves {} MiB for the guest after {} MiB for QEMU (`machine.overhead_mib`), and \
                     the least is {} MiB; raise the limit",
                    limit / MIB,
                    memory / MIB,
                    config.overhead_mib,
                    config.min_memory_mib
                );
                return Err(Error::new(Kind::Invalid, what));
            }
            memory
        }
        None => config.default_memory_mib * MIB,
    };
    let vcpus = annotated.or_else(|| resources.and_then(Resources::cpus)).unwrap_or(config.default_vcpus);
    Ok(Size { vcpus: vcpus.clamp(1, 255), memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(cpu_quota: i64, cpu_period: i64, memory_limit: i64) -> Resources {
        Resources { cpu_quota, cpu_period, memory_limit, ..Resources::default() }
    }

    #[test]
    fn limits_become_vcpus_and_memory() {
        let config = MachineConfig { overhead_mib: 50, ..MachineConfig::default() };
        let mib = 1_i64 << 20;
        for (quota, period, limit, annotated, vcpus, memory_mib) in [
            (0, 0, 0, None, 1, 1024),
            (-1, 100_000, 0, None, 1, 1024),
            (100_000, 100_000, 562 * mib, None, 1, 512),
            (150_000, 100_000, 563 * mib, None, 2, 512),
            (1, 0, 0, None, 1, 1024),
            (400_000, 100_000, 0, Some(3), 3, 1024),
            (i64::MAX, 1, 0, None, 255, 1024),
            (0, 0, -5, Some(2), 2, 1024),
        ] {
            let size = of(Some(&resources(quota, period, limit)), annotated, &config).expect("fits");
            assert_eq!((size.vcpus, size.memory / MIB), (vcpus, memory_mib), "{quota}/{period} {limit}");
        }
        assert_eq!(of(None, None, &config).expect("fits"), Size { vcpus: 1, memory: 1024 * MIB });
    }

    #[test]
    fn too_little_memory_is_refused_with_the_arithmetic() {
        let config = MachineConfig { overhead_mib: 80, ..MachineConfig::default() };
        let error = of(Some(&resources(0, 0, 100 << 20)), None, &config).expect_err("too little");
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("of 100 MiB leaves 20 MiB for the guest after 80 MiB for QEMU"), "{error}");
    }
}
