//! What of the node a machine's guest sees: the volumes of its pod.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::MountOptions;

/// How a guest comes by the volumes of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedFs {
    /// By one virtiofs device, in which each volume is an entry.
    Virtiofs,
    /// Not at all.
    None,
}

/// Volumes that a guest sees, in the order of their entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub mounts: Vec<SharedMount>,
}

/// A directory or file of the node, and where the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMount {
    /// On the node.
    pub source: PathBuf,
    /// In the guest.
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Whether it may only read what is mounted below it on the node, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
    /// Whether what is mounted below it on the node later is seen, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
    /// Whether kubelet fills it: a ConfigMap, a Secret, a projected volume or the downward API.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filled: bool,
    /// What the guest holds where it sees it.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub options: MountOptions,
}

/// A text that names no way.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither `virtiofs` nor `none`")]
pub struct NoSharedFs;

// === impl SharedFs ===

impl SharedFs {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtiofs => "virtiofs",
            Self::None => "none",
        }
    }
}

impl fmt::Display for SharedFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SharedFs {
    type Err = NoSharedFs;

    fn from_str(text: &str) -> Result<Self, NoSharedFs> {
        match text {
            "virtiofs" => Ok(Self::Virtiofs),
            "none" => Ok(Self::None),
            _ => Err(NoSharedFs),
        }
    }
}
