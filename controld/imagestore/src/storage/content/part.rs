//! The file that an image is written to before it has a name.
//!
//! It lies in `data/` as `part_*` and is removed when it is dropped unpublished; or it is a partial download
//! ([`super::partial`]), which stays if it is given up with [`Part::keep`]. Either way it is locked. Bytes come in
//! order. Runs of zeros are not written: they stay holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::sys::statvfs::fstatvfs;
use vmimage::digest::Digest;

use super::disk::{Disk, DiskError, errno_of, unique};
use super::partial::{PartialFile, PartialRecord};
use super::sum;

/// Start of the names of part files.
pub(crate) const PREFIX: &str = "part_";
/// Unit of the search for zeros, and of the place where a partial download goes on.
pub(crate) const GRAIN: usize = 64 * 1024;
/// After so many bytes a partial's record is brought up to date for the case that the machine dies.
const SAVE_EVERY: u64 = 1 << 30;
/// What a partial's record says of the boot that it was written in.
const BOOT: &str = "boot";

/// What came in, whole and synced, under no name yet.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) part: Part,
    pub(crate) length: u64,
    pub(crate) sha256: Digest,
    /// If it was asked for.
    pub(crate) sha512: Option<Digest>,
}

/// A part file.
#[derive(Debug)]
pub(crate) struct Part {
    place: Place,
    /// Where the next byte goes.
    offset: u64,
    direct: bool,
    /// Bytes of the disk that must stay free.
    reserve: u64,
    /// The end of what was recorded.
    saved: u64,
    keep: bool,
    published: bool,
}

#[derive(Debug)]
enum Place {
    Fresh { disk: Arc<Disk>, name: String, file: Flock<File> },
    Partial { partial: Box<PartialFile>, record: Box<PartialRecord> },
}

/// What a download that may be broken off is recorded as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resumable {
    /// The place, for people.
    pub(crate) source: String,
    /// The strong validator of these bytes, if they have one.
    pub(crate) etag: Option<String>,
    /// Length of the whole.
    pub(crate) total: u64,
}

/// Reads what a part had when it was begun.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    length: u64,
    path: PathBuf,
}

impl Reader {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Fills `room`, which is one that direct I/O accepts.
    pub(crate) fn read(&self, room: &mut [u8], at: u64) -> Result<(), DiskError> {
        let failed =
            |error: io::Error| DiskError::Os { action: "read", path: self.path.clone(), cause: errno_of(&error) };
        self.file.read_exact_at(room, at).map_err(failed)
    }
}

impl Part {
    /// An empty one that nobody goes on with.
    pub(crate) fn create(disk: &Arc<Disk>, reserve: u64) -> Result<Self, DiskError> {
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
        let place = Place::Fresh { disk: disk.clone(), name, file };
        Ok(Self { place, offset: 0, direct, reserve, saved: 0, keep: false, published: false })
    }

    /// Where a partial download can go on.
    pub(crate) fn frontier(partial: &PartialFile) -> u64 {
        let record = partial.record();
        let boot = boot_id();
        // Bytes are written in order. So within one boot, whatever became of the process, all before the file's end is
        // there; what a crash of the machine left is what was synced.
        let there = match partial.file().metadata() {
            Ok(facts) if boot.is_some() && record.state.get(BOOT).and_then(|boot| boot.as_str()) == boot.as_deref() => {
                facts.len().max(record.received)
            }
            _ => record.received,
        };
        let whole = record.total.unwrap_or(0).min(there);
        whole - whole % GRAIN as u64
    }

    /// A partial download that goes on at `from`, or begins anew at 0.
    pub(crate) fn of_partial(
        mut partial: PartialFile,
        from: u64,
        facts: Resumable,
        reserve: u64,
    ) -> Result<Self, DiskError> {
        let Resumable { source, etag, total } = facts;
        let state = boot_id().map_or(serde_json::Value::Null, |boot| serde_json::json!({ BOOT: boot }));
        let record =
            PartialRecord { source, etag, total: Some(total), received: from, state, ..PartialRecord::default() };
        if from == 0 {
            partial.restart()?;
            partial.save(record.clone())?;
        }
        // Not every file system has direct I/O.
        let direct = set_direct(partial.file(), true).is_ok();
        let place = Place::Partial { partial: Box::new(partial), record: Box::new(record) };
        Ok(Self { place, offset: from, direct, reserve, saved: from, keep: false, published: false })
    }

    /// Says that a partial is to stay if it is dropped now, for somebody to go on with. Any other part goes.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    /// Where the next byte goes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads what is there already, if there is anything.
    pub(crate) fn reader(&self) -> io::Result<Option<Reader>> {
        let reader = || Ok(Reader { file: self.file().try_clone()?, length: self.offset, path: self.path() });
        (self.offset > 0).then(reader).transpose()
    }

    /// Writes `length` bytes behind the last, padded with zeros to what direct I/O accepts. Only the last piece may
    /// need padding.
    pub(crate) fn append(&mut self, padded: &[u8], length: u64) -> io::Result<()> {
        // Before each growth, as nobody else may know how long it will be: a look costs nothing beside the write.
        self.check_room(length)?;
        let start = self.offset;
        let mut end = 0;
        for (at, run) in data_runs(padded) {
            self.write_at(run, start + at as u64)?;
            end = at + run.len();
        }
        if end < padded.len() && matches!(self.place, Place::Partial { .. }) {
            // The end of the file says how far it is.
            self.file().set_len(start + padded.len() as u64)?;
        }
        if !self.direct {
            // Keeps the page cache for others; what is dirty is not dropped by this, only started on its way.
            let _ = posix_fadvise(self.file(), to_off(start), to_off(length), PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
        self.offset += length;
        if self.offset - self.saved >= SAVE_EVERY {
            self.saved = self.offset;
            self.save()?;
        }
        Ok(())
    }

    /// Whether the reserve stays free when so many bytes more are written.
    fn check_room(&self, more: u64) -> io::Result<()> {
        let stat = fstatvfs(self.file())?;
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        let short = stat.blocks() > 0 && free < self.reserve.saturating_add(more);
        if short { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }

    fn save(&mut self) -> io::Result<()> {
        if let Place::Partial { partial, record } = &mut self.place {
            record.received = self.offset;
            partial.save((**record).clone()).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.file().write_all_at(bytes, at) {
            Err(error) if self.direct && error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                self.stop_direct()?;
                self.file().write_all_at(bytes, at)
            }
            written => written,
        }
    }

    /// Lets somebody else write and read its file, who knows nothing of direct I/O.
    pub(crate) fn lend(&mut self) -> io::Result<&File> {
        self.stop_direct()?;
        Ok(self.file())
    }

    /// Takes what somebody else wrote to its file for its own: hashes it, and brings it to the disk.
    pub(crate) fn adopt(&mut self) -> io::Result<(u64, Digest)> {
        self.stop_direct()?;
        let (length, digest) = sum::sha256(self.file())?;
        self.offset = length;
        self.complete()?;
        Ok((length, digest))
    }

    /// Cuts the padding off and brings everything to the disk.
    pub(crate) fn complete(&mut self) -> io::Result<()> {
        self.stop_direct()?;
        self.file().set_len(self.offset)?;
        fchmod(self.file(), Mode::from_bits_truncate(0o444))?;
        self.file().sync_all()
    }

    fn stop_direct(&mut self) -> io::Result<()> {
        if self.direct {
            set_direct(self.file(), false)?;
            self.direct = false;
        }
        Ok(())
    }

    pub(crate) fn file(&self) -> &File {
        match &self.place {
            Place::Fresh { file, .. } => file,
            Place::Partial { partial, .. } => partial.file(),
        }
    }

    /// Gives it the name `name` in `data/`, in place of what may be there. The name must still be that of the file
    /// that was written and judged.
    pub(crate) fn publish(&mut self, name: &str) -> Result<(), DiskError> {
        match &self.place {
            Place::Fresh { disk, name: own, file } => {
                let data = &disk.data;
                let opened = fstat(&**file).map_err(|cause| data.failed("examine", own, cause))?;
                let named = data.stat(own)?;
                if named.is_none_or(|named| (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)) {
                    return Err(DiskError::Obstructed { path: data.path().join(own) });
                }
                data.rename(own, name)?;
            }
            Place::Partial { partial, .. } => partial.publish(name)?,
        }
        self.published = true;
        Ok(())
    }

    /// Where it is, for errors.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.place {
            Place::Fresh { disk, name, .. } => disk.data.path().join(name),
            Place::Partial { partial, .. } => partial.path(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        let keep = self.keep && self.offset >= GRAIN as u64;
        if keep && let Err(error) = self.save() {
            tracing::warn!(%error, "partial download not recorded");
        }
        let removed = match &self.place {
            Place::Fresh { disk, name, .. } => disk.data.remove(name),
            Place::Partial { .. } if keep => Ok(()),
            Place::Partial { partial, .. } => partial.discard(),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "part file left behind");
        }
    }
}

fn set_direct(file: &File, direct: bool) -> nix::Result<()> {
    let mut flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    flags.set(OFlag::O_DIRECT, direct);
    fcntl(file, FcntlArg::F_SETFL(flags)).map(drop)
}

/// Names the time since the machine was started.
fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
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
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(512).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

fn to_off(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_looked_at_before_each_growth() {
        let root = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(Disk::open(&root.path().join("images")).expect("opened"));
        let block = vec![1; GRAIN];
        let refused = |reserve: u64| {
            let mut part = Part::create(&disk, reserve).expect("created");
            part.stop_direct().expect("set");
            part.append(&block, GRAIN as u64).err().and_then(|error| error.raw_os_error())
        };
        assert_eq!(refused(0), None);
        assert_eq!(refused(u64::MAX / 2), Some(Errno::ENOSPC as i32), "long before a GiB");
    }
}
