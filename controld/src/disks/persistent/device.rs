//! A block device as a root disk: opened for us alone, looked at, and written where the guest's disk is not. What waits here waits for the
//! device, so all of it is called off the reactor and under a deadline.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use vmspec::plan::{BlockDevice, DeviceNumber};

use super::decide::Seen;
use super::header::{Header, SECTOR, Written};
use super::signature;
use crate::disks::block_devices::Node;
use crate::model::domain::Slice;

/// Why a device is not ours to write.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceError {
    #[error(
        "block device {0} is in use on this node: it is mounted, or part of a volume group or an array, or an image is being copied to it"
    )]
    Busy(DeviceNumber),
    #[error("`{node}` on the node is not block device {number}")]
    Other { node: String, number: DeviceNumber },
    #[error("block device {number} cannot be {action}")]
    Io {
        action: &'static str,
        number: DeviceNumber,
        #[source]
        cause: io::Error,
    },
}

/// Who else may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is only looked at.
    Look,
    /// Nobody on the node who asks the same, as file systems do, for as long as the file or a copy of it is open.
    Alone,
}

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) file: File,
    number: DeviceNumber,
    pub(super) size: u64,
    /// Bytes of the least that it writes.
    sector: usize,
}

impl Device {
    /// Opens it. Blocks.
    pub(super) fn open(node: &Node, device: &BlockDevice, access: Access) -> Result<Self, DeviceError> {
        let number = device.number;
        let mut options = OpenOptions::new();
        options.read(true);
        if access == Access::Alone {
            options.write(true).custom_flags(libc::O_EXCL);
        }
        let file = options.open(&device.node).map_err(|cause| match cause.raw_os_error() {
            Some(libc::EBUSY) => DeviceError::Busy(number),
            _ => DeviceError::Io { action: "opened", number, cause },
        })?;
        let failed = |cause| DeviceError::Io { action: "looked at", number, cause };
        let found = file.metadata().map_err(failed)?;
        if !found.file_type().is_block_device() || DeviceNumber::of(found.rdev()) != number {
            return Err(DeviceError::Other { node: device.node.display().to_string(), number });
        }
        let size = node.size(number).map_err(failed)?;
        let sector = node.sectors(number).map_or(SECTOR, |sectors| sectors.logical as usize);
        Ok(Self { file, number, size, sector })
    }

    /// What is on it. Blocks.
    pub(super) fn look(&self) -> Result<Seen, DeviceError> {
        let failed = |cause| DeviceError::Io { action: "read", number: self.number, cause };
        // Another node may have written it since this one read it last.
        posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .map_err(|errno| failed(errno.into()))?;
        let length = |most: usize| most.min(usize::try_from(self.size).unwrap_or(usize::MAX));
        let mut head = vec![0; length(signature::HEAD)];
        self.file.read_exact_at(&mut head, 0).map_err(failed)?;
        let mut tail = vec![0; length(signature::TAIL)];
        let at = self.size - tail.len() as u64;
        self.file.read_exact_at(&mut tail, at).map_err(failed)?;
        let header = head.first_chunk::<SECTOR>().map_or(Ok(None), Header::read);
        Ok(Seen { size: self.size, header, data: signature::of(&head, &tail) })
    }

    /// Writes a header, which is on the device afterwards. Blocks.
    pub(super) fn write(&self, header: &Written) -> Result<(), DeviceError> {
        let mut first = vec![0; self.sector.max(SECTOR)];
        first.iter_mut().zip(header.sector()).for_each(|(to, from)| *to = from);
        self.file.write_all_at(&first, 0).map_err(self.not_written())?;
        self.flush()
    }

    /// Blanks what is left of an earlier disk where signatures may be that a copy of `length` bytes at the slice's beginning does not
    /// overwrite: at its end. Blocks.
    pub(super) fn blank_end(&self, slice: Slice, length: u64) -> Result<(), DeviceError> {
        let room = slice.size.saturating_sub(length).min(signature::HEAD as u64);
        let zeros = vec![0; usize::try_from(room).unwrap_or_default()];
        self.file.write_all_at(&zeros, slice.offset + slice.size - room).map_err(self.not_written())
    }

    /// What was written is on the device afterwards. Blocks.
    pub(super) fn flush(&self) -> Result<(), DeviceError> {
        self.file.sync_all().map_err(self.not_written())
    }

    fn not_written(&self) -> impl FnOnce(io::Error) -> DeviceError {
        let number = self.number;
        move |cause| DeviceError::Io { action: "written", number, cause }
    }
}
