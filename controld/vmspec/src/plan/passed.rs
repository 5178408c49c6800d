//! Devices of the node that a machine has because kubelet allocated them to its container: a device plugin's, or those of CDI. NICs and
//! disks are not among them.

use std::fmt;

use proto::tap::PciAddress;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::words::words;

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Passed {
    /// What the guest has, in the order of its slots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PassedDevice>,
    /// Device nodes that say where a pod may run, and that no guest is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<String>,
}

/// A device that QEMU gets by VFIO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedDevice {
    Pci(PciAddress),
    /// A part of a device, which its driver shares out.
    Mdev(Uuid),
}

words! {
    /// What becomes of a CDI device whose container would be changed in a way that no machine can be.
    CdiEdits or NoCdiEdits "use `refuse` or `ignore`" {
        Refuse = "refuse",
        /// The device is given without the rest.
        Ignore = "ignore",
    }
}

impl Passed {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.tokens.is_empty()
    }
}

impl fmt::Display for PassedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => address.fmt(f),
            Self::Mdev(uuid) => uuid.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_devices_is_read_as_it_was_written() {
        let passed = Passed {
            devices: vec![
                PassedDevice::Pci("0000:01:10.0".parse().expect("address")),
                PassedDevice::Mdev(Uuid::from_u128(7)),
            ],
            tokens: vec!["/dev/kvm".into()],
        };
        let text = serde_json::to_string(&passed).expect("written");
        assert_eq!(
            text,
            r#"{"devices":[{"pci":"0000:01:10.0"},{"mdev":"00000000-0000-0000-0000-000000000007"}],"tokens":["/dev/kvm"]}"#
        );
        assert_eq!(serde_json::from_str::<Passed>(&text).expect("read"), passed);
        assert_eq!(serde_json::from_str::<Passed>("{}").expect("of an earlier release"), Passed::default());
    }
}
