//! What kinds of seeds there are, and which way ConfigMaps and Secrets take.

use std::fmt;
use std::str::FromStr;

/// How a guest is told what its pod wants of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SeedKind {
    /// A disk with label `cidata`, for cloud-init.
    #[default]
    NoCloud,
    /// A disk with label `config-2` as OpenStack has it, for cloud-init and others.
    ConfigDrive,
    /// Not at all.
    None,
    /// User-data alone, by the firmware's interface, for Ignition.
    Ignition,
}

/// How a guest comes by the ConfigMaps, Secrets, projected volumes and downward API of its pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConfigDelivery {
    /// As by other volumes.
    #[default]
    Share,
    /// By copies that cloud-init writes.
    Seed,
    /// Not at all.
    None,
}

/// A text that names no kind.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of {}", .0.join(", "))]
pub struct NoSuchName(Vec<&'static str>);

// === impl SeedKind ===

impl SeedKind {
    pub const ALL: [Self; 4] = [Self::NoCloud, Self::ConfigDrive, Self::None, Self::Ignition];

    /// As Virtlet's annotation has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCloud => "nocloud",
            Self::ConfigDrive => "configdrive",
            Self::None => "none",
            Self::Ignition => "ignition",
        }
    }
}

impl fmt::Display for SeedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SeedKind {
    type Err = NoSuchName;

    fn from_str(text: &str) -> Result<Self, NoSuchName> {
        let named = Self::ALL.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| NoSuchName(Self::ALL.map(Self::name).to_vec()))
    }
}

// === impl ConfigDelivery ===

impl ConfigDelivery {
    pub const ALL: [Self; 3] = [Self::Share, Self::Seed, Self::None];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Seed => "seed",
            Self::None => "none",
        }
    }
}

impl fmt::Display for ConfigDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ConfigDelivery {
    type Err = NoSuchName;

    fn from_str(text: &str) -> Result<Self, NoSuchName> {
        let named = Self::ALL.into_iter().find(|way| way.name() == text);
        named.ok_or_else(|| NoSuchName(Self::ALL.map(Self::name).to_vec()))
    }
}
