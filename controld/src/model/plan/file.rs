//! Disks that are files of the node.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::words::words;

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
