//! What a guest finds itself on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::cpu_setting::CpuSetting;
use super::described::Described;
use super::extras::Extras;
use super::firmware::Firmware;

/// Longest name of a machine type or of a CPU model.
const MAX_NAME: usize = 64;

/// Chipset, CPU, the bus of the disks and firmware, for the whole life of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// With its version, so that an update of QEMU does not change a machine; without one in records of earlier releases.
    pub machine: MachineType,
    /// `None` is all that the accelerator has: the node's own CPU under KVM, what QEMU can emulate without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuModel>,
    pub disk_bus: DiskBus,
    pub firmware: Firmware,
    /// TPM 2.0. libvirt keeps what it remembers, and removes that with the machine's definition.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tpm: bool,
    /// Whether other machines whose plans say so, too, may write to its block volumes while it does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shared_disks: bool,
    /// The CPU in detail, in place of `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_setting: Option<CpuSetting>,
    /// What the pod describes of it.
    #[serde(skip_serializing_if = "Described::is_empty")]
    pub described: Described,
    #[serde(flatten)]
    pub extras: Extras,
}

/// QEMU's machine type: `q35` or `pc`, or one version of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineType(String);

/// What machine types are versions of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chipset {
    /// PCI Express.
    Q35,
    /// PCI.
    I440fx,
}

/// A CPU as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CpuModel {
    /// The node's own.
    HostPassthrough,
    /// The named model that is most like the node's own.
    HostModel,
    /// All that the accelerator can do.
    Max,
    /// One of QEMU's.
    Named(String),
}

/// What disks are on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskBus {
    #[default]
    Virtio,
    /// virtio-scsi.
    Scsi,
    /// AHCI.
    Sata,
}

/// Why a text is no machine type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `q35`, `pc`, or one version of them, as `pc-q35-10.0`")]
pub struct NoMachineType;

/// Why a text is no CPU model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `host-passthrough`, `host-model`, `max`, or the name of a model, as `Westmere`")]
pub struct NoCpuModel;

/// Why a text is no bus of disks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `virtio`, `scsi` or `sata`")]
pub struct NoDiskBus;

// === impl MachineType ===

impl MachineType {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn chipset(&self) -> Chipset {
        if self.0 == "pc" || self.0.starts_with("pc-i440fx-") { Chipset::I440fx } else { Chipset::Q35 }
    }
}

impl Default for MachineType {
    fn default() -> Self {
        Self("q35".into())
    }
}

impl FromStr for MachineType {
    type Err = NoMachineType;

    fn from_str(text: &str) -> Result<Self, NoMachineType> {
        let version = text.strip_prefix("pc-q35-").or_else(|| text.strip_prefix("pc-i440fx-"));
        let known = matches!(text, "q35" | "pc") || version.is_some_and(|version| !version.is_empty());
        if known && is_name(text) { Ok(Self(text.to_owned())) } else { Err(NoMachineType) }
    }
}

impl TryFrom<String> for MachineType {
    type Error = NoMachineType;

    fn try_from(text: String) -> Result<Self, NoMachineType> {
        text.parse()
    }
}

impl From<MachineType> for String {
    fn from(MachineType(name): MachineType) -> Self {
        name
    }
}

impl fmt::Display for MachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl CpuModel ===

impl FromStr for CpuModel {
    type Err = NoCpuModel;

    fn from_str(text: &str) -> Result<Self, NoCpuModel> {
        match text {
            "host-passthrough" => Ok(Self::HostPassthrough),
            "host-model" => Ok(Self::HostModel),
            "max" | "maximum" => Ok(Self::Max),
            // QEMU's name of the node's own; libvirt would take it for a model that there is not.
            "host" => Err(NoCpuModel),
            name if is_name(name) => Ok(Self::Named(name.to_owned())),
            _ => Err(NoCpuModel),
        }
    }
}

impl TryFrom<String> for CpuModel {
    type Error = NoCpuModel;

    fn try_from(text: String) -> Result<Self, NoCpuModel> {
        text.parse()
    }
}

impl From<CpuModel> for String {
    fn from(model: CpuModel) -> Self {
        model.to_string()
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostPassthrough => "host-passthrough",
            Self::HostModel => "host-model",
            Self::Max => "max",
            Self::Named(name) => name,
        })
    }
}

// === impl DiskBus ===

impl DiskBus {
    pub const ALL: [Self; 3] = [Self::Virtio, Self::Scsi, Self::Sata];

    /// As libvirt calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Scsi => "scsi",
            Self::Sata => "sata",
        }
    }
}

impl FromStr for DiskBus {
    type Err = NoDiskBus;

    fn from_str(text: &str) -> Result<Self, NoDiskBus> {
        Self::ALL.into_iter().find(|bus| bus.name().eq_ignore_ascii_case(text)).ok_or(NoDiskBus)
    }
}

impl fmt::Display for DiskBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() <= MAX_NAME && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_types_are_of_two_chipsets() {
        for (text, chipset) in [
            ("q35", Chipset::Q35),
            ("pc-q35-10.0", Chipset::Q35),
            ("pc-q35-rhel9.4.0", Chipset::Q35),
            ("pc", Chipset::I440fx),
            ("pc-i440fx-9.2", Chipset::I440fx),
        ] {
            assert_eq!(text.parse::<MachineType>().expect(text).chipset(), chipset, "{text}");
        }
        let long = format!("pc-q35-{}", "9".repeat(64));
        for text in ["", "virt", "microvm", "pc-", "pc-q35-", "Q35", "pc-q35-1\"", "pc-q35-\n", "isapc", &long] {
            assert_eq!(text.parse::<MachineType>(), Err(NoMachineType), "{text}");
        }
    }

    #[test]
    fn cpu_models_are_modes_or_names() {
        for text in ["host-passthrough", "host-model", "max", "Westmere", "EPYC-Rome-v4", "486"] {
            assert_eq!(text.parse::<CpuModel>().expect(text).to_string(), text);
        }
        assert_eq!("maximum".parse(), Ok(CpuModel::Max));
        for text in ["", "host", "-cpu", "Westmere,+vmx", "a b", &"x".repeat(65)] {
            assert_eq!(text.parse::<CpuModel>(), Err(NoCpuModel), "{text}");
        }
    }

    #[test]
    fn a_record_without_hardware_is_what_earlier_releases_made() {
        let hardware: Hardware = serde_json::from_str("{}").expect("read");
        assert_eq!(
            (hardware.machine.as_str(), hardware.cpu.as_ref(), hardware.disk_bus),
            ("q35", None, DiskBus::Virtio)
        );
        assert_eq!(hardware.firmware, Firmware::Bios);
        let planned = Hardware {
            machine: "pc-i440fx-10.0".parse().expect("type"),
            cpu: Some(CpuModel::Named("Westmere".into())),
            disk_bus: DiskBus::Scsi,
            firmware: Firmware::Uefi { secure_boot: true },
            tpm: false,
            ..Hardware::default()
        };
        let text = serde_json::to_string(&planned).expect("written");
        assert_eq!(
            text,
            r#"{"machine":"pc-i440fx-10.0","cpu":"Westmere","disk_bus":"scsi","firmware":{"uefi":{"secure_boot":true}}}"#
        );
        assert_eq!(serde_json::from_str::<Hardware>(&text).expect("read"), planned);
        serde_json::from_str::<Hardware>(r#"{"machine":"virt"}"#).expect_err("not of this release");
    }
}
