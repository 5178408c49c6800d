//! What a guest finds itself on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::cpu_setting::CpuSetting;
use super::described::Described;
use super::disk_bus::DiskBus;
use super::extras::Extras;
use super::firmware::Firmware;
use super::machine_type::{MachineType, is_name};

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

/// Why a text is no CPU model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `host-passthrough`, `host-model`, `max`, or the name of a model, as `Westmere`")]
pub struct NoCpuModel;

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

#[cfg(test)]
mod tests {
    use super::*;

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
