//! How a disk is read and written: as its source has it, unless the pod describes it otherwise.

use vmspec::plan::{DescribedDisk, DescribedSectors, DiskCache, DiskIo, ErrorPolicy};

use super::io_threads::Workers;
use super::{Doc, DomainError};
use crate::model::domain::{AsyncIo, DiskNow, Sectors};

/// What disks of one kind have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver<'a> {
    pub(super) format: &'a str,
    /// QEMU's own ways if it is `None`.
    pub(super) cache: Option<&'static str>,
    pub(super) io: Option<&'static str>,
    pub(super) on_write: Option<&'static str>,
    pub(super) on_read: Option<&'static str>,
    pub(super) discards: bool,
}

impl Driver<'static> {
    /// That of a device or file of the node, as it is used in this start.
    pub(super) fn raw(now: DiskNow, on_write: &'static str) -> Self {
        let (io, cache) = match now.io {
            AsyncIo::IoUring => ("io_uring", "none"),
            AsyncIo::Native => ("native", "none"),
            AsyncIo::Threads => ("threads", "writeback"),
        };
        let (on_write, on_read) = (Some(on_write), Some("report"));
        Self { format: "raw", cache: Some(cache), io: Some(io), on_write, on_read, discards: true }
    }
}

impl Driver<'_> {
    /// With these workers if it is of a virtio disk.
    pub(super) fn write(
        self,
        doc: &mut Doc,
        said: &DescribedDisk,
        workers: Option<Workers>,
    ) -> Result<(), DomainError> {
        let Self { format, cache, io, on_write, on_read, discards } = self.as_said(said);
        let words = [("cache", cache), ("error_policy", on_write), ("rerror_policy", on_read), ("io", io)];
        let mut driver = vec![("name", "qemu"), ("type", format)];
        driver.extend(words.into_iter().filter_map(|(name, word)| Some((name, word?))));
        driver.extend((discards && !said.is_cd).then_some(("discard", "unmap")));
        let workers = workers.map(Workers::words).unwrap_or_default();
        driver.extend(workers.iter().map(|(name, word)| (*name, word.as_str())));
        doc.leaf("driver", &driver)
    }

    fn as_said(mut self, said: &DescribedDisk) -> Self {
        if let Some(cache) = said.cache {
            self.cache = Some(cache.word());
            // QEMU does Linux AIO past the node's cache alone.
            self.io = self.io.map(|io| if cache == DiskCache::None { io } else { "threads" });
        }
        if let Some(io) = said.io {
            self.io = Some(io.word());
            if io == DiskIo::Native {
                self.cache = Some("none");
            }
        }
        if let Some(policy) = said.error_policy {
            self.on_write = Some(policy.word());
            // Nothing that is read wants room.
            self.on_read = Some(if policy == ErrorPolicy::Enospace { "report" } else { policy.word() });
        }
        self
    }
}

/// Sizes of sectors, if they are not what every guest takes for granted.
pub(super) fn sectors(doc: &mut Doc, said: &DescribedDisk, now: Option<Sectors>) -> Result<(), DomainError> {
    let (Sectors { logical, physical }, discard) = match (said.block_size, now) {
        (Some(DescribedSectors::Said { logical, physical, discard }), _) => (Sectors { logical, physical }, discard),
        // A CD has sectors of its own.
        (_, Some(now)) if !said.is_cd => (now, None),
        (_, _) => return Ok(()),
    };
    let [logical, physical] = [logical, physical].map(|bytes| bytes.to_string());
    let discard = discard.map(|bytes| bytes.to_string());
    let mut sizes = vec![("logical_block_size", &*logical), ("physical_block_size", &*physical)];
    sizes.extend(discard.as_deref().map(|bytes| ("discard_granularity", bytes)));
    doc.leaf("blockio", &sizes)
}

/// Its place among what the firmware tries, in front of which the root disk is if nobody says where that is.
pub(super) fn boot(doc: &mut Doc, said: &DescribedDisk) -> Result<(), DomainError> {
    match said.boot_order {
        Some(order) => doc.leaf("boot", &[("order", &order.saturating_add(1).to_string())]),
        None => Ok(()),
    }
}
