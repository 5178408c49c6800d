//! Disks that are of a volume otherwise than as a device: a file in it, or a layer on it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::block_device::{BlockDevice, DeviceNumber};
use crate::words::words;

/// A disk that is of a volume, and no device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeDisk {
    /// The file of a volume, which the guest writes to.
    File(VolumeFile),
    /// A layer of the pod's own, which the guest writes to.
    Overlay(OverlayDisk),
}

/// A layer that lasts as long as its container, on what a volume has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayDisk {
    /// qcow2, in the folder of the pod's disks.
    pub overlay: PathBuf,
    pub below: Below,
}

/// What a layer is on. Nobody writes to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Below {
    Block(BlockDevice),
    File(VolumeFile),
}

/// The file of a volume. Others may write to the volume, so a start looks whether it still is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFile {
    /// Where kubelet has the volume.
    pub dir: PathBuf,
    pub id: FileId,
    pub format: FileFormat,
}

/// What no two files of a node have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// Of the file system.
    pub device: DeviceNumber,
    pub inode: u64,
}

impl FileId {
    /// Of what `stat` tells in `st_dev` and `st_ino`.
    #[must_use]
    pub fn of(device: u64, inode: u64) -> Self {
        Self { device: DeviceNumber::of(device), inode }
    }
}

words! {
    /// What is in a file.
    FileFormat {
        /// Sector after sector.
        Raw = "raw",
        /// QEMU's copy-on-write format.
        Qcow2 = "qcow2",
    }
}

impl VolumeFile {
    /// The file's name, as KubeVirt has it.
    pub const NAME: &str = "disk.img";

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(Self::NAME)
    }
}

impl VolumeDisk {
    /// The file of the volume, if it is of one.
    #[must_use]
    pub const fn file(&self) -> Option<&VolumeFile> {
        match self {
            Self::File(file) | Self::Overlay(OverlayDisk { below: Below::File(file), .. }) => Some(file),
            Self::Overlay(OverlayDisk { below: Below::Block(_), .. }) => None,
        }
    }

    /// Where what the guest writes takes room.
    #[must_use]
    pub fn written_in(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(&file.dir),
            Self::Overlay(layer) => layer.overlay.parent(),
        }
    }
}
