//! A domain, but for its devices.

use std::collections::BTreeMap;

use common::quantity;
use proto::vm::{Chassis, Clock, CpuFeature, Features};
use serde::Deserialize;

use super::Devices;

/// Quantities by the names of resources.
pub type Quantities = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Domain {
    pub resources: ResourceRequirements,
    pub cpu: Cpu,
    pub memory: Memory,
    pub machine: MachineType,
    pub firmware: Firmware,
    pub chassis: Option<Chassis>,
    pub clock: Option<Clock>,
    pub features: Option<Features>,
    pub devices: Devices,
    pub io_threads_policy: Option<String>,
    pub reboot_policy: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceRequirements {
    pub requests: Quantities,
    pub limits: Quantities,
    pub overcommit_guest_overhead: bool,
}

/// Nothing and zero are one of a thing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Cpu {
    pub cores: u32,
    pub sockets: u32,
    pub threads: u32,
    pub max_sockets: u32,
    pub model: Option<String>,
    pub features: Vec<CpuFeature>,
    pub dedicated_cpu_placement: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    pub guest: Option<String>,
    pub hugepages: Option<HugePages>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HugePages {
    pub page_size: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineType {
    #[serde(rename = "type")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Firmware {
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub bootloader: Option<Bootloader>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bootloader {
    pub bios: Option<Bios>,
    pub efi: Option<Efi>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Bios {
    pub use_serial: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Efi {
    pub secure_boot: Option<bool>,
}

// === impl Cpu ===

impl Cpu {
    /// Sockets, cores of each and threads of each core.
    #[must_use]
    pub fn topology(&self) -> (u32, u32, u32) {
        (self.sockets.max(1), self.cores.max(1), self.threads.max(1))
    }

    /// As many vCPUs as it boots with.
    #[must_use]
    pub fn count(&self) -> u32 {
        let (sockets, cores, threads) = self.topology();
        sockets.saturating_mul(cores).saturating_mul(threads)
    }

    /// As many as it may have.
    #[must_use]
    pub fn most(&self) -> u32 {
        let (sockets, cores, threads) = self.topology();
        self.max_sockets.max(sockets).saturating_mul(cores).saturating_mul(threads)
    }
}

// === impl Firmware ===

impl Firmware {
    /// UEFI, if that is what it boots with; secure boot is on unless it is turned off.
    #[must_use]
    pub fn efi(&self) -> Option<&Efi> {
        self.bootloader.as_ref()?.efi.as_ref()
    }
}

impl Efi {
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure_boot.unwrap_or(true)
    }
}

// === impl Domain ===

impl Domain {
    /// Memory that the guest is to have, in bytes: what is said of it, or else what is requested or the limit.
    #[must_use]
    pub fn guest_memory(&self) -> Option<u64> {
        let of = |from: &Quantities| from.get("memory").cloned();
        let said = self.memory.guest.clone();
        let said = said.or_else(|| of(&self.resources.requests)).or_else(|| of(&self.resources.limits))?;
        quantity::bytes(&said).ok()
    }
}
