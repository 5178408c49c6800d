//! Disks beside the root disk, and what a guest knows each of them by.

use std::fmt;
use std::path::PathBuf;

use proto::agent::ANY_FILE_SYSTEM;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::block_device::BlockDevice;
use super::file::{DiskFile, OnDisk};
use super::image::DiskImage;
use super::rbd::RbdImage;
use super::volume_disk::VolumeDisk;
use crate::MountOptions;

/// Most disks of a machine beside root disk and seed.
pub const MAX_DISKS: usize = 60;
/// What a virtio disk shows of its serial (virtio, "Block Device", `VIRTIO_BLK_ID_BYTES`): the rest is cut off without a word.
const MAX_SERIAL: usize = 20;
/// Of a serial that is cut: what is kept of the name, before `-` and the digest.
const KEPT: usize = 11;

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// What the machine's description calls it; empty if that says nothing of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub serial: Serial,
    pub source: DiskSource,
    /// Where the pod wants it in the guest: a link to the disk. Empty if the guest is told nothing of it.
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// What the guest holds where it mounts what is on it.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub options: MountOptions,
}

/// What is on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskSource {
    /// A block device of the node.
    Block(BlockDevice),
    /// A file in an emptyDir, or one of the pod's own.
    File(DiskFile),
    /// An image of the store, which the guest may only read.
    Image(DiskImage),
    /// A block device of the node of which the guest mounts what is on it.
    Mounted(MountedDevice),
    /// An image of a Ceph cluster.
    Rbd(RbdImage),
    /// Files of a volume of the pod's, on a disk that is made of them at each start.
    Files(FilesDisk),
    /// Of a volume that kubelet has mounted.
    Volume(VolumeDisk),
}

/// What a disk with files is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesDisk {
    /// Where kubelet has the volume.
    pub volume: PathBuf,
    /// By which the guest finds it.
    pub label: String,
}

/// A block device of the node, and what the guest mounts of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedDevice {
    pub device: BlockDevice,
    pub on: OnDisk,
}

impl DiskSource {
    /// The device, if it is one.
    #[must_use]
    pub const fn block(&self) -> Option<&BlockDevice> {
        match self {
            Self::Block(device) | Self::Mounted(MountedDevice { device, .. }) => Some(device),
            Self::File(_) | Self::Image(_) | Self::Rbd(_) | Self::Files(_) | Self::Volume(_) => None,
        }
    }

    /// The file, if it is one.
    #[must_use]
    pub const fn file(&self) -> Option<&DiskFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Block(_) | Self::Image(_) | Self::Mounted(_) | Self::Rbd(_) | Self::Files(_) | Self::Volume(_) => {
                None
            }
        }
    }

    /// The image, if it is one.
    #[must_use]
    pub const fn rbd(&self) -> Option<&RbdImage> {
        match self {
            Self::Rbd(image) => Some(image),
            Self::Block(_) | Self::File(_) | Self::Image(_) | Self::Mounted(_) | Self::Files(_) | Self::Volume(_) => {
                None
            }
        }
    }

    /// What the guest mounts of it, if that is known here; a link to the disk is in its place if that is nothing.
    #[must_use]
    pub fn mounted(&self) -> Option<OnDisk> {
        match self {
            Self::Block(_) | Self::Image(_) | Self::Files(_) | Self::Volume(_) => None,
            Self::File(file) => file.file_system.map(|file_system| OnDisk { partition: 0, file_system }),
            Self::Mounted(mounted) => Some(mounted.on),
            Self::Rbd(image) => image.on,
        }
    }

    /// The image, if it is one.
    #[must_use]
    pub const fn image(&self) -> Option<&DiskImage> {
        match self {
            Self::Block(_) | Self::File(_) | Self::Mounted(_) | Self::Rbd(_) | Self::Files(_) | Self::Volume(_) => None,
            Self::Image(image) => Some(image),
        }
    }

    /// What it is made of, if it is made of files.
    #[must_use]
    pub const fn files(&self) -> Option<&FilesDisk> {
        match self {
            Self::Files(files) => Some(files),
            Self::Block(_) | Self::File(_) | Self::Image(_) | Self::Mounted(_) | Self::Rbd(_) | Self::Volume(_) => None,
        }
    }

    /// What it is of a mounted volume, if it is of one.
    #[must_use]
    pub const fn volume(&self) -> Option<&VolumeDisk> {
        match self {
            Self::Block(_) | Self::File(_) | Self::Image(_) | Self::Mounted(_) | Self::Rbd(_) | Self::Files(_) => None,
            Self::Volume(volume) => Some(volume),
        }
    }
}

/// What the guest knows a disk by, whatever the order of its disks: `/dev/disk/by-id/virtio-<serial>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Serial(String);

// === impl Serial ===

impl Serial {
    /// As it is said, if that is what each bus shows of it.
    #[must_use]
    pub fn plain(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let fits = !text.is_empty() && text.len() <= MAX_SERIAL && text.chars().all(is_plain);
        fits.then(|| Self(text.to_owned()))
    }

    /// Of a disk that the pod wants at this path of the guest: the path, without `/dev`.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        Self::of_name(path.strip_prefix("/dev/").unwrap_or(path).trim_matches('/'))
    }

    /// Of a disk of this name. One that is too long, is told from others by a digest of all of it.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
        let mut serial: String = name.chars().map(plain).collect();
        if serial.len() > MAX_SERIAL {
            let digest = Sha256::digest(name.as_bytes());
            serial.truncate(KEPT);
            serial.push('-');
            serial.extend(digest.iter().take(4).map(|byte| format!("{byte:02x}")));
        }
        Self(serial)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Disk {
    /// The file system that the guest mounts of it; empty if it has a link to the disk.
    #[must_use]
    pub fn file_system(&self) -> &'static str {
        match &self.source {
            // Whoever made the image knows, and so does the guest.
            DiskSource::Image(_) => ANY_FILE_SYSTEM,
            source => source.mounted().map_or("", |on| on.file_system.word()),
        }
    }

    /// The partition that has it; 0 is the whole disk.
    #[must_use]
    pub fn partition(&self) -> u16 {
        self.source.mounted().map_or(0, |on| on.partition)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block_device::{DeviceNumber, NoDeviceNumber};
    use super::*;
    use crate::plan::Layer;

    #[test]
    fn a_serial_is_the_path_as_far_as_a_virtio_disk_shows_it() {
        let of = |path| Serial::of_path(path).to_string();
        assert_eq!(of("/dev/testpvc"), "testpvc");
        assert_eq!(of("/mnt/a b"), "mnt_a_b");
        assert_eq!(of("/dev/exactly-twenty-char"), "exactly-twenty-char");
        assert_eq!(of("/dev/12345678901234567890"), "12345678901234567890");
        assert_eq!(of("/dev/123456789012345678901").len(), 20);
        assert_ne!(of("/dev/a-name-that-is-long-1"), of("/dev/a-name-that-is-long-2"));
        assert_eq!(of("/dev/a-name-that-is-long-1").split_at(12).0, "a-name-that-");
        assert_eq!(of("/dev/ä"), "_");
    }

    #[test]
    fn a_record_of_a_disk_is_read_as_it_was_written() {
        let node = BlockDevice { node: "/dev/vdb".into(), number: DeviceNumber { major: 252, minor: 16 } };
        let disk = Disk {
            name: String::new(),
            serial: Serial::of_path("/dev/data"),
            source: DiskSource::Block(node),
            path: "/dev/data".into(),
            read_only: true,
            options: MountOptions::default(),
        };
        let text = serde_json::to_string(&disk).expect("written");
        assert_eq!(
            text,
            r#"{"serial":"data","source":{"block":{"node":"/dev/vdb","number":"252:16"}},"path":"/dev/data","read_only":true}"#
        );
        assert_eq!(serde_json::from_str::<Disk>(&text).expect("read"), disk);
        let with_options = Disk { options: MountOptions { noexec: true, ..MountOptions::default() }, ..disk };
        let text = serde_json::to_string(&with_options).expect("written");
        assert!(text.ends_with(r#","read_only":true,"options":{"noexec":true}}"#), "{text}");
        assert_eq!(serde_json::from_str::<Disk>(&text).expect("read"), with_options);
        assert_eq!("252".parse::<DeviceNumber>(), Err(NoDeviceNumber));
    }

    #[test]
    fn a_record_of_an_image_that_is_a_disk_is_read_as_it_was_written() {
        let file = Layer { path: "/images/00".into(), format: "qcow2".into() };
        let disk = Disk {
            name: String::new(),
            serial: Serial::of_path("/models"),
            source: DiskSource::Image(DiskImage { id: "sha256:00".into(), file, below: Vec::new() }),
            path: "/models".into(),
            read_only: true,
            options: MountOptions::default(),
        };
        let text = serde_json::to_string(&disk).expect("written");
        assert_eq!(
            text,
            r#"{"serial":"models","source":{"image":{"id":"sha256:00","file":{"path":"/images/00","format":"qcow2"}}},"path":"/models","read_only":true}"#
        );
        assert_eq!(serde_json::from_str::<Disk>(&text).expect("read"), disk);
    }
}
