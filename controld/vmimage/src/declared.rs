//! The format that a translation rule or a provider declares for a disk. It is known before the first byte is there;
//! the bytes decide whether it is true.

use std::fmt;

use crate::convert::ForeignFormat;
use crate::inspect::DiskFormat;

/// A format that is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// One that is kept as it is.
    Kept(DiskFormat),
    /// One that is converted, if that is allowed.
    Foreign(ForeignFormat),
}

impl Declared {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Kept(DiskFormat::Qcow2),
        Self::Kept(DiskFormat::Raw),
        Self::Foreign(ForeignFormat::Vmdk),
        Self::Foreign(ForeignFormat::Vhd),
        Self::Foreign(ForeignFormat::Vhdx),
        Self::Foreign(ForeignFormat::Vdi),
    ];

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.to_string() == name)
    }

    /// What it is converted from.
    pub fn foreign(self) -> Option<ForeignFormat> {
        match self {
            Self::Kept(_) => None,
            Self::Foreign(format) => Some(format),
        }
    }
}

impl fmt::Display for Declared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(format) => format.fmt(out),
            Self::Foreign(format) => out.write_str(&format.to_string().to_ascii_lowercase()),
        }
    }
}
