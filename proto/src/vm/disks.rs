//! Disks of a described machine.

use serde::{Deserialize, Serialize};

/// Where a block volume is, by its name, of whose disk the description says more.
pub const DEVICE_DIR: &str = "/dev/virtlet/";
/// The same of an image that is a volume.
pub const IMAGE_DIR: &str = "/mnt/";
/// The same of a volume with files that only the node reads: of a disk in it, or under a layer.
pub const VOLUME_DIR: &str = "/run/virtlet/seed/";

/// What a disk is beyond what its volume says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Disk {
    /// The pod's volume; of the root disk, what the object called it. kubelet tells no names of claims' volumes and of images: such a
    /// volume is at [`DEVICE_DIR`], [`VOLUME_DIR`] or [`IMAGE_DIR`] by its name.
    pub name: String,
    /// Whether it is the disk that the machine boots from, which is of no volume, or of one at `/`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root: bool,
    /// What the guest takes it for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<DiskKind>,
    /// What is made of its volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    /// `virtio`, `scsi` or `sata`, if it is not that of all disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Its place among what the firmware tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// What the guest knows it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// `none`, `writethrough` or `writeback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// `native`, `threads` or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    /// What becomes of a guest whose disk has an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_policy: Option<String>,
    /// Whether other machines may write to it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<bool>,
    /// Sizes of its sectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Whether the guest may not write to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// Where it is on PCI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
}

/// What a guest takes a disk for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// A disk.
    Disk,
    /// A CD.
    Cdrom,
}

/// What is made of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum DiskSource {
    /// The file `disk.img` of the volume, which is made if there is none.
    DiskImage {
        /// Bytes of the volume, if that is known: a disk that is made is smaller. The volume's file system may be larger than what the
        /// claim has of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// A layer on top of the volume, which lasts as long as the pod.
    Overlay {},
    /// A file system of ISO 9660 with the volume's files.
    Files {
        /// Its label.
        label: String,
    },
}

/// Sizes of a disk's sectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockSize {
    /// As said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomBlockSize>,
    /// Those of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_volume: Option<super::State>,
}

/// Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomBlockSize {
    /// What the guest reads and writes at least.
    pub logical: u32,
    /// What the device does.
    pub physical: u32,
    /// What is given back at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u32>,
}
