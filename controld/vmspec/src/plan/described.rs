//! What a pod says of its machine in one description ([`proto::vm`]), beyond what its other annotations and its runtime handler say.
//!
//! Words are values here, and texts were looked at, so that what a pod says is never copied into the machine's description unseen.

mod devices;
mod disk;
mod nic;
mod read;

use std::collections::BTreeMap;

use proto::tap::{DhcpOptions, IfName, MacAddr};
use proto::vm::{Chassis, CloudInit, Features};
use serde::{Deserialize, Serialize};

use super::cpu_setting::{CpuFeature, Topology};
use super::machine_type::MachineType;
use crate::words::words;

pub use self::devices::{DescribedDevices, IoThreads, PanicModel, TabletBus, VideoModel, WatchdogAction};
pub use self::disk::{DescribedDisk, DescribedSectors, DescribedSource, DiskCache, DiskIo, ErrorPolicy};
pub use self::nic::{DescribedNic, SLOTS};
pub use self::read::NotDescribed;

/// All of it, for the whole life of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Described {
    /// How the guest sees the vCPUs that it boots with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// What its CPU model has more or less.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_features: Vec<CpuFeature>,
    /// `None` is the runtime handler's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineType>,
    /// Whether a BIOS writes to the serial console.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub use_serial: bool,
    /// Serial number of the machine; the pod's UID if it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(skip_serializing_if = "is_default")]
    pub chassis: Chassis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<DescribedClock>,
    /// Of the platform. One that is not there is as every machine has it.
    #[serde(skip_serializing_if = "is_default")]
    pub features: Features,
    /// Its root disk.
    #[serde(skip_serializing_if = "DescribedDisk::is_default")]
    pub root: DescribedDisk,
    /// The volume that its root disk is made of; empty if that is not described.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub root_volume: String,
    /// Its other disks, by the names of their volumes. Each of them is one of the plan's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, DescribedDisk>,
    /// Address of the NIC on the pod's default network, which that network is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Its NICs, by their links in the pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<IfName, DescribedNic>,
    /// What DHCP tells on them, by their links, which tapmanager is asked for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dhcp: BTreeMap<IfName, DhcpOptions>,
    #[serde(skip_serializing_if = "DescribedDevices::is_default")]
    pub devices: DescribedDevices,
    /// What its seed is made of, beside what annotations name. Volumes are known by their names.
    #[serde(skip_serializing_if = "is_default")]
    pub cloud_init: CloudInit,
    /// Whether a guest that reboots ends its machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends_at_reboot: bool,
    /// Whether it waits, paused, at each start, until somebody lets it go on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub start_paused: bool,
}

/// A clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DescribedClock {
    /// What it shows at the start; as the runtime handler says if it is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shows: Option<Shows>,
    /// Each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<Timer>,
}

/// What a clock shows when a machine starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// UTC, and so many seconds more.
    Utc(i64),
    /// The time of a zone, as `Europe/Rome`.
    Zone(String),
}

/// A source of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    pub name: TimerName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<TickPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<Track>,
}

words! {
    /// Which one.
    TimerName {
        Hpet = "hpet",
        Kvm = "kvmclock",
        Pit = "pit",
        Rtc = "rtc",
        Hyperv = "hypervclock",
    }
}

words! {
    /// What becomes of ticks that the guest was too late for.
    TickPolicy {
        Delay = "delay",
        Catchup = "catchup",
        Merge = "merge",
        Discard = "discard",
    }
}

words! {
    /// Whose time it follows.
    Track {
        Guest = "guest",
        Wall = "wall",
    }
}

impl Described {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        is_default(self)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
