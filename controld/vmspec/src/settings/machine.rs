//! Settings of machines.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::problems::Problems;
use super::units::{self, MIB};

/// How the accelerator of new machines is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// KVM if a probe kernel reached its init under it, else emulation.
    Auto,
    /// Always KVM.
    Kvm,
    /// Always emulation (TCG).
    Qemu,
}

/// Defaults and limits of machines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineConfig {
    pub accel: Accel,
    /// Kernel (bzImage) that probes KVM; default the newest `/boot/vmlinuz-*`.
    pub kvm_probe_kernel: Option<PathBuf>,
    /// How long the probe kernel may take to its init.
    #[serde(rename = "kvm_probe_deadline_s", deserialize_with = "units::seconds")]
    pub kvm_probe_deadline: Duration,
    /// vCPUs of a container without a CPU limit.
    pub default_vcpus: u16,
    /// Guest memory of a container without a memory limit, in bytes.
    #[serde(rename = "default_memory_mib", deserialize_with = "units::mib")]
    pub default_memory: u64,
    /// Least guest memory, in bytes.
    #[serde(rename = "min_memory_mib", deserialize_with = "units::mib")]
    pub min_memory: u64,
    /// Most bytes of a disk that a pod may have made; any if it is not set.
    #[serde(rename = "max_disk_gib", deserialize_with = "units::optional_gib")]
    pub max_disk: Option<u64>,
    /// What QEMU takes beside the guest's memory, in bytes; by formula if it is not set.
    #[serde(rename = "overhead_mib", deserialize_with = "units::optional_mib")]
    pub overhead: Option<u64>,
    /// How long vmwrapper may wait for its descriptors.
    #[serde(rename = "handoff_deadline_s", deserialize_with = "units::seconds")]
    pub handoff_deadline: Duration,
    /// How long libvirt may take to start a machine.
    #[serde(rename = "start_deadline_s", deserialize_with = "units::seconds")]
    pub start_deadline: Duration,
    /// While a machine is asked to stop, its power button is pressed again after this time.
    #[serde(rename = "press_interval_s", deserialize_with = "units::seconds")]
    pub press_interval: Duration,
    /// How long the log of a console may become before it is rotated, in bytes.
    #[serde(rename = "console_log_mib", deserialize_with = "units::mib")]
    pub console_log: u64,
}

impl MachineConfig {
    /// Looks at values that their types do not restrict.
    pub fn check(&self, problems: &mut Problems) {
        problems.unless((1..=255).contains(&self.default_vcpus), "machine.default_vcpus", "is not within 1 to 255");
        problems.unless(self.max_disk != Some(0), "machine.max_disk_gib", "is below 1");
        problems.unless(self.console_log >= MIB, "machine.console_log_mib", "is below 1");
        problems.unless(
            self.min_memory >= 16 * MIB && self.default_memory >= self.min_memory,
            "machine.default_memory_mib",
            "is below machine.min_memory_mib, or that is below 16",
        );
    }
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            accel: Accel::Auto,
            kvm_probe_kernel: None,
            kvm_probe_deadline: Duration::from_secs(20),
            default_vcpus: 1,
            default_memory: 1024 * MIB,
            min_memory: 64 * MIB,
            max_disk: None,
            overhead: None,
            handoff_deadline: Duration::from_secs(10),
            start_deadline: Duration::from_secs(60),
            press_interval: Duration::from_secs(5),
            console_log: 100 * MIB,
        }
    }
}
