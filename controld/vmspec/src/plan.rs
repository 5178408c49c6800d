//! What a container becomes: planned once, at CreateContainer, kept in the container's record, and rendered into a domain at
//! each StartContainer. The version of the record is the plan's.
//!
//! A plan says what the machine has and nothing of a single start: no token, no seed, no socket. What a part of it makes on
//! the node goes by that part's undo, see `container::parts` of controld.

mod block_device;
mod cgroup;
mod cpu_setting;
mod described;
mod described_hardware;
mod disk_bus;
mod disks;
mod extras;
mod file;
mod firmware;
mod guest;
mod hardware;
mod image;
mod machine_type;
mod passed;
mod persistent;
mod rbd;
mod root;
mod share;
mod size;
mod volume_disk;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

pub use self::block_device::{BlockDevice, DeviceNumber, NoDeviceNumber};
pub use self::cgroup::{Cgroup, CpuLimit, Limits, Scope};
pub use self::cpu_setting::{CpuFeature, CpuMode, CpuSetting, Fallback, NoCpuSetting, Topology};
pub use self::described::{
    Described, DescribedDevices, DescribedDisk, DescribedNic, DescribedSectors, DescribedSource, DiskCache, DiskIo,
    ErrorPolicy, IoThreads, NotDescribed, PanicModel, SLOTS, Shows, TabletBus, Timer, TimerName, VideoModel,
    WatchdogAction,
};
pub use self::disk_bus::DiskBus;
pub use self::disks::{Disk, DiskSource, FilesDisk, MAX_DISKS, MountedDevice, Serial};
pub use self::extras::{Clock, Extras, Graphics, HostPath, Watchdog};
pub use self::file::{DiskFile, FileSystem, OnDisk};
pub use self::firmware::{Firmware, FirmwareKind};
pub use self::guest::{Guest, GuestCommand};
pub use self::hardware::{CpuModel, Hardware, NoCpuModel};
pub use self::image::{DiskImage, Layer};
pub use self::machine_type::{Chipset, MachineType};
pub use self::passed::{CdiEdits, NoCdiEdits, Passed, PassedDevice};
pub use self::persistent::{NoOnImageChange, OnImageChange, PersistentRoot, RootDevice};
pub use self::rbd::{Monitor, NoMonitor, RbdImage};
pub use self::root::{NoRootLifetime, RootDisk, RootLifetime};
pub use self::share::{NoSharedFs, Share, SharedFs, SharedMount};
pub use self::size::{Applied, Cpus, Memory};
pub use self::volume_disk::{Below, FileFormat, FileId, OverlayDisk, VolumeDisk, VolumeFile};
use super::ids::MachineId;

/// A machine, as it was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachinePlan {
    pub id: MachineId,
    /// libvirt's name of it.
    pub domain: String,
    pub cpus: Cpus,
    pub memory: Memory,
    /// That of every machine of earlier releases if it is not said.
    #[serde(default)]
    pub hardware: Hardware,
    pub root: RootDisk,
    /// Bytes of the huge pages that its memory is in, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_page: Option<u64>,
    /// SMBIOS UUID, if the pod wants its own.
    pub smbios: Option<Uuid>,
    /// `None` of a machine that an earlier release made: it stays where libvirt has put it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Cgroup>,
    #[serde(default, skip_serializing_if = "Guest::is_empty")]
    pub guest: Guest,
    /// Volumes of the pod that the guest sees, if it sees any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Disks beside the root disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Devices of the node beside disks and NICs.
    #[serde(default, skip_serializing_if = "Passed::is_empty")]
    pub passed: Passed,
}

/// The plan that says what a machine of records before version 3 says. Such a machine has a fixed size.
#[must_use]
pub fn of_fields(machine: &Value) -> Value {
    let field = |name: &str| machine.get(name).cloned().unwrap_or_default();
    let top = json!({ "path": field("base"), "format": field("base_format") });
    let below = machine.get("below").and_then(Value::as_array).cloned().unwrap_or_default();
    let images: Vec<Value> = std::iter::once(top).chain(below).collect();
    json!({
        "id": field("id"),
        "domain": field("domain"),
        "cpus": { "boot": field("vcpus"), "max": field("vcpus") },
        "memory": { "boot": field("memory"), "max": field("memory") },
        "root": { "overlay": field("root"), "images": images },
        "smbios": field("smbios"),
    })
}
