//! Buses of disks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

/// Why a text is no bus of disks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `virtio`, `scsi` or `sata`")]
pub struct NoDiskBus;

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
