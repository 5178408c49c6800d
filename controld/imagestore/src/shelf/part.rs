//! The file that an image is written to before it has a name.
//!
//! It lies in `data/` as `part_*`, locked, and goes when it is dropped unpublished. Runs of zeros are not written: they
//! stay holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};
use nix::sys::stat::{Mode, fchmod, fstat};

use super::disk::{Disk, DiskError, unique};
use crate::name::Digest;

/// Start of the names of part files.
pub(crate) const PREFIX: &str = "part_";
/// Unit of the search for zeros.
const GRAIN: usize = 64 * 1024;

/// What came in, whole and synced, under no name yet.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) part: Part,
    pub(crate) length: u64,
    pub(crate) sha256: Digest,
    /// If it was asked for.
    pub(crate) sha512: Option<Digest>,
}

/// A part file. Removed when dropped, unless it was published.
#[derive(Debug)]
pub(crate) struct Part {
    disk: Arc<Disk>,
    name: String,
    file: Flock<File>,
    /// Where the next byte goes.
    offset: u64,
    direct: bool,
    published: bool,
}

impl Part {
    pub(crate) fn create(disk: &Arc<Disk>) -> Result<Self, DiskError> {
        let name = unique(PREFIX);
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        // Not every file system has direct I/O (tmpfs, some network ones): EINVAL says so.
        let (fd, direct) = match disk.data.open_file(&name, flags | OFlag::O_DIRECT) {
            Ok(fd) => (fd, true),
            Err(DiskError::Os { cause: Errno::EINVAL, .. }) => {
                // The kernel may have made the name before it refused.
                disk.data.remove(&name)?;
                (disk.data.open_file(&name, flags)?, false)
            }
            Err(error) => return Err(error),
        };
        let locked = Flock::lock(File::from(fd), FlockArg::LockExclusiveNonblock);
        let file = locked.map_err(|(_, cause)| {
            let _ = disk.data.remove(&name);
            disk.data.failed("lock", &name, cause)
        })?;
        Ok(Self { disk: disk.clone(), name, file, offset: 0, direct, published: false })
    }

    /// Writes `length` bytes behind the last, padded with zeros to what direct I/O accepts. Only the last piece may
    /// need padding.
    pub(crate) fn append(&mut self, padded: &[u8], length: u64) -> io::Result<()> {
        let start = self.offset;
        for (at, run) in data_runs(padded) {
            self.write_at(run, start + at as u64)?;
        }
        if !self.direct {
            // Keeps the page cache for others; what is dirty is not dropped by this, only started on its way.
            let _ = posix_fadvise(&*self.file, to_off(start), to_off(length), PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        self.offset += length;
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.file.write_all_at(bytes, at) {
            Err(error) if self.direct && error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                self.stop_direct()?;
                self.file.write_all_at(bytes, at)
            }
            written => written,
        }
    }

    /// Cuts the padding off and brings everything to the disk.
    pub(crate) fn complete(&mut self) -> io::Result<()> {
        self.stop_direct()?;
        self.file.set_len(self.offset)?;
        fchmod(&*self.file, Mode::from_bits_truncate(0o444))?;
        self.file.sync_all()
    }

    fn stop_direct(&mut self) -> io::Result<()> {
        if self.direct {
            let flags = OFlag::from_bits_retain(fcntl(&*self.file, FcntlArg::F_GETFL)?);
            fcntl(&*self.file, FcntlArg::F_SETFL(flags - OFlag::O_DIRECT))?;
            self.direct = false;
        }
        Ok(())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it the name `name` in `data/`, in place of what may be there. The name must still be that of the file
    /// that was written and judged.
    pub(crate) fn publish(&mut self, name: &str) -> Result<(), DiskError> {
        let data = &self.disk.data;
        let opened = fstat(&*self.file).map_err(|cause| data.failed("examine", &self.name, cause))?;
        let named = data.stat(&self.name)?;
        if named.is_none_or(|named| (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)) {
            return Err(DiskError::Obstructed { path: data.path().join(&self.name) });
        }
        data.rename(&self.name, name)?;
        self.published = true;
        Ok(())
    }

    /// Where it is, for errors.
    pub(crate) fn path(&self) -> PathBuf {
        self.disk.data.path().join(&self.name)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = self.disk.data.remove(&self.name)
        {
            tracing::warn!(%error, "part file left behind");
        }
    }
}

/// The runs of blocks that are not all zeros, with their places.
fn data_runs(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(grain(bytes, at)) {
            at += GRAIN;
        }
        let start = at;
        while at < bytes.len() && !is_zero(grain(bytes, at)) {
            at += GRAIN;
        }
        let end = at.min(bytes.len());
        (start < end).then(|| (start, &bytes[start..end]))
    })
}

fn grain(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + GRAIN)]
}

/// Looks at some hundred bytes at a time, which the compiler does many at once, and stops early at data.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(512).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

fn to_off(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
