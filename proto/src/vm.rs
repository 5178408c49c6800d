//! What a pod says of its machine beyond its fields and its other annotations: the value of annotation [`ANNOTATION`], JSON.
//!
//! Whoever makes pods of KubeVirt's objects writes it, and `controld` reads it. It holds only what no other annotation says: one
//! thing in two places could differ. Names and shapes of its parts are those of KubeVirt's v1 where that has them. A key or a version
//! that the reader does not know is an error: a machine that is not what its pod says is worse than no machine.
//!
//! The other way round, [`guest`] is what a node tells of a VM.

mod clock;
mod devices;
mod disks;
mod features;
pub mod guest;
mod nics;

use serde::{Deserialize, Serialize};

pub use self::clock::{Clock, RtcTimer, SimpleTimer, TickTimer, Timers, Timezone, Utc};
pub use self::devices::{Devices, Input, PanicDevice, Video, Watchdog, WatchdogAction};
pub use self::disks::{BlockSize, CustomBlockSize, DEVICE_DIR, Disk, DiskKind, DiskSource, IMAGE_DIR, VOLUME_DIR};
pub use self::features::{Apic, Direct, Features, HyperV, Kvm, Spinlocks, State, TlbFlush, VendorId};
pub use self::nics::{DhcpOptions, Nic, PrivateOption};

/// Name of the annotation.
pub const ANNOTATION: &str = "virtlet.k8s/vm";
/// Version of the description.
pub const VERSION: u32 = 1;
/// Most bytes of it: a fourth of what all annotations of a pod may have.
pub const MAX_BYTES: usize = 64 << 10;

/// A machine, as far as nothing else describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VmDescription {
    /// Version of the description, [`VERSION`].
    pub v: u32,
    /// Its processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Machine type, as libvirt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// What its firmware shows and does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// What its chassis is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chassis: Option<Chassis>,
    /// Its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Features of its platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// Disks that are more than what the pod's volumes say, by the volumes' names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// NICs that are more than what the pod's networks say, by the networks' names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// Other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// What the seed has beside what annotations name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// Whether a guest that reboots ends its machine.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ends_at_reboot: bool,
    /// Whether it waits, paused, until somebody lets it go on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub start_paused: bool,
}

/// Processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cpu {
    /// How the guest sees its vCPUs, whose number an annotation says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Features of the CPU's model that are added or taken away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<CpuFeature>,
}

/// Sockets with cores with threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Sockets that it boots with.
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
}

/// A feature of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuFeature {
    /// As libvirt names it.
    pub name: String,
    /// As libvirt names it; `require` if nothing is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
}

/// What a firmware shows and does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Firmware {
    /// Serial number of the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// Whether a BIOS writes to the serial console.
    #[serde(default, skip_serializing_if = "is_false")]
    pub use_serial: bool,
}

/// What a chassis is called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "each is what its name says, in SMBIOS")]
pub struct Chassis {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manufacturer: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub asset: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sku: String,
}

/// What of a seed no annotation says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInit {
    /// What takes the place of the network-config that is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<Key>,
    /// Volumes each of whose keys has public SSH keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
}

/// A key of a volume of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The volume's name.
    pub volume: String,
    /// The key.
    pub key: String,
}

/// Why a text describes no machine.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// Too much of it.
    #[error("longer than {MAX_BYTES} bytes")]
    TooLong,
    /// Of a version that is not known.
    #[error("of version {0}, and this program knows version {VERSION}")]
    Version(u32),
    /// Not one, or with something that is not known.
    #[error("no description of a machine")]
    Malformed(#[source] serde_json::Error),
}

/// What a description of any version has.
#[derive(Deserialize)]
struct AnyVersion {
    v: u32,
}

impl VmDescription {
    /// Reads the annotation's value.
    ///
    /// # Errors
    /// When it is none, or has a key or a version that is not known.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        if text.len() > MAX_BYTES {
            return Err(DescriptionError::TooLong);
        }
        // The version first: another one may have any keys.
        let AnyVersion { v } = serde_json::from_str(text).map_err(DescriptionError::Malformed)?;
        if v != VERSION {
            return Err(DescriptionError::Version(v));
        }
        serde_json::from_str(text).map_err(DescriptionError::Malformed)
    }

    /// The annotation's value; `None` if there is nothing to say.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let empty = Self { v: self.v, ..Self::default() };
        // Has no map whose keys could be no texts.
        (*self != empty).then(|| serde_json::to_string(self).unwrap_or_default())
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests;
