//! What a machine boots with.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A machine's firmware. UEFI has a file of variables, which the machine's own start makes and its removal removes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// SeaBIOS.
    #[default]
    Bios,
    /// OVMF, as libvirt finds it.
    Uefi {
        /// It starts only what is signed, by keys that are in its variables from the start.
        secure_boot: bool,
    },
}

/// Kind of a firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirmwareKind {
    Bios,
    Uefi,
}

/// Why a text is no firmware.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `bios` or `uefi`")]
pub struct NoFirmware;

impl FirmwareKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bios => "bios",
            Self::Uefi => "uefi",
        }
    }
}

impl FromStr for FirmwareKind {
    type Err = NoFirmware;

    fn from_str(text: &str) -> Result<Self, NoFirmware> {
        [Self::Bios, Self::Uefi].into_iter().find(|kind| kind.name() == text).ok_or(NoFirmware)
    }
}
