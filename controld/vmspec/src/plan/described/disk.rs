//! What a pod describes of its machine's disks, beyond what their volumes say.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::plan::{DiskBus, Serial};
use crate::words::words;

/// A disk, as far as it is described.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DescribedDisk {
    /// What is made of its volume; `None` is a disk of what that has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DescribedSource>,
    /// Whether the guest takes it for a CD, to which nobody writes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cd: bool,
    /// `None` is the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// Its place among what the firmware tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// `None` is that of its path or its volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<Serial>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DiskCache>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<DiskIo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_policy: Option<ErrorPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<DescribedSectors>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Its slot of the root bus, if it has one of [`SLOTS`](super::SLOTS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// Whether other machines may write to it, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shareable: bool,
}

impl DescribedDisk {
    /// Whether it is read and written past the node's cache, if that is said.
    #[must_use]
    pub fn is_direct(&self) -> Option<bool> {
        if self.io == Some(DiskIo::Native) {
            return Some(true);
        }
        self.cache.map(|cache| cache == DiskCache::None)
    }
}

words! {
    /// How the node's cache is used. None of them loses what the guest was told is written.
    DiskCache {
        None = "none",
        Writethrough = "writethrough",
        Writeback = "writeback",
    }
}

words! {
    /// How QEMU has more than one request on its way.
    DiskIo {
        /// Linux AIO.
        Native = "native",
        Threads = "threads",
    }
}

words! {
    /// What becomes of a guest whose disk has an error.
    ErrorPolicy {
        /// It waits.
        Stop = "stop",
        /// It is told.
        Report = "report",
        Ignore = "ignore",
        /// It waits if there is no room, and is told of what else there is.
        Enospace = "enospace",
    }
}

/// What is made of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DescribedSource {
    /// The file `disk.img` in it; bytes of the volume, if that is known.
    DiskImage {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// A layer on it, which lasts as long as the container.
    Overlay,
    /// A file system of ISO 9660 with its files, and this label.
    Files { label: String },
}

/// Sizes of a disk's sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DescribedSectors {
    /// Both sizes are those of the block volume.
    Matched,
    /// In bytes.
    Said {
        logical: u32,
        physical: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        discard: Option<u32>,
    },
}

impl DescribedDisk {
    pub(super) fn is_default(&self) -> bool {
        is_default(self)
    }
}
