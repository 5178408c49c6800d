//! What a pod describes of its machine's NICs, beyond what its networks say.

use serde::{Deserialize, Serialize};

/// A NIC, as far as it is described.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DescribedNic {
    /// Its place among what the firmware tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// Its slot of the root bus, one of [`SLOTS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// Its number in ACPI, by which guests name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<u16>,
    /// Whether it begins without a carrier.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_down: bool,
}

/// Slots of the root bus for the pod's NICs, and for devices of the node.
pub const SLOTS: std::ops::RangeInclusive<u8> = 0x10..=0x1e;
