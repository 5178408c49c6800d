//! Disks that are files of the node.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::words::words;

/// A raw file in a directory that kubelet made, as large as the guest's disk and with holes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFile {
    /// The directory, of which the file is all that we look at.
    pub dir: PathBuf,
    /// Bytes that a new one has.
    pub size: u64,
    /// What a new one has on it, and the guest mounts; `None` is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystem>,
}

impl DiskFile {
    /// The file's name.
    pub const NAME: &str = "disk.img";
    /// Most bytes: what ext4 has with blocks of 4 KiB and 32 bits.
    pub const MOST: u64 = 16 << 40;

    /// Fewest bytes of one with this on it; mkfs.xfs refuses to make smaller ones.
    #[must_use]
    pub const fn least(file_system: Option<FileSystem>) -> u64 {
        match file_system {
            Some(FileSystem::Xfs) => 300 << 20,
            Some(FileSystem::Ext4) | None => 16 << 20,
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(Self::NAME)
    }
}

words! {
    /// A file system that is made on a disk of the guest.
    FileSystem {
        Ext4 = "ext4",
        Xfs = "xfs",
    }
}

/// A file system that is on a disk already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDisk {
    /// The number of the partition that has it; 0 is the whole disk.
    pub partition: u16,
    pub file_system: FileSystem,
}
