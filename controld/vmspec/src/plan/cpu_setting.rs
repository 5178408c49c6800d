//! A guest's CPU in detail, as libvirt's `<cpu>` has it (<https://libvirt.org/formatdomain.html#cpu-model-and-topology>).
//!
//! Typed, so that what a pod says is never copied into the machine's description as text. NUMA cells are left out: they would say how
//! much memory the guest has, and that is the pod's memory limit.

mod read;

use serde::{Deserialize, Serialize};

pub use self::read::NoCpuSetting;
pub(super) use self::read::features as features_of;
use crate::words::words;

/// A guest's CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSetting {
    pub mode: CpuMode,
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<CpuMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CpuCheck>,
    /// With mode `custom` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<NamedModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CpuCache>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<CpuFeature>,
}

words! {
    /// Where the CPU comes from.
    CpuMode {
        /// A named model.
        Custom = "custom",
        /// The named model that is most like the node's own.
        HostModel = "host-model",
        /// The node's own.
        HostPassthrough = "host-passthrough",
        /// All that the accelerator can do.
        Maximum = "maximum",
    }
}

words! {
    /// How far the guest's CPU may differ from what is said.
    CpuMatch {
        Minimum = "minimum",
        Exact = "exact",
        Strict = "strict",
    }
}

words! {
    /// What libvirt checks before it starts the machine.
    CpuCheck {
        None = "none",
        Partial = "partial",
        Full = "full",
    }
}

words! {
    /// Whether another model will do if the accelerator does not have this one.
    Fallback {
        Allow = "allow",
        Forbid = "forbid",
    }
}

words! {
    /// Whose cache the guest sees.
    CacheMode {
        Emulate = "emulate",
        Passthrough = "passthrough",
        Disable = "disable",
    }
}

words! {
    /// What becomes of a feature.
    FeaturePolicy {
        Force = "force",
        Require = "require",
        Optional = "optional",
        Disable = "disable",
        Forbid = "forbid",
    }
}

/// A model of QEMU's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedModel {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// Twelve characters that the guest reads as the maker's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_id: Option<String>,
}

/// How vCPUs are numbered. All are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    pub sockets: u16,
    pub dies: u16,
    pub cores: u16,
    pub threads: u16,
}

/// The cache that the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCache {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    pub mode: CacheMode,
}

/// A feature that the guest's CPU is to have, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFeature {
    pub name: String,
    pub policy: FeaturePolicy,
}

impl Topology {
    /// How many vCPUs it has places for.
    #[must_use]
    pub fn vcpus(&self) -> u64 {
        [self.sockets, self.dies, self.cores, self.threads].into_iter().map(u64::from).product()
    }
}

#[cfg(test)]
mod tests;
