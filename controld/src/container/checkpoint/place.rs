//! The directory of a checkpoint: which ones are none, its files as they are made, and what of one that broke off is removed.
//!
//! The memory of a guest is in it, so nobody but root may write to it, and what is in it is root's alone, whatever the umask. While a
//! checkpoint is made, all of it is in `checkpoint.partial`, a directory that is made for it and by nobody else: it has an empty file by
//! the checkpoint's own name. One that is whole becomes `checkpoint`, all at once. So two at one directory do not touch each other's
//! files, and nothing is removed that is not in a directory with that name in it.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, fstat, mkdirat, openat, renameat, stat, statat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::FileId;

use super::manifest::{self, PartMade};
use super::plan::{MEMORY, Of, Part};
use super::{BLOCK, copy, failed, too_large, wanted_still};
use crate::disks::volume_disks::OF_EMPTY;

/// Of one that is being made.
const PARTIAL: &str = "checkpoint.partial";
/// Of one that is whole.
pub(super) const WHOLE: &str = "checkpoint";
/// Of files that are removed while somebody has them open, as NFS calls them.
const STILL_OPEN: &str = ".nfs";
/// Longest path, with room for the names of files.
const MAX_PATH: usize = 3072;
const ABSENT: &str = "it is not there; make a directory";

/// Files of a checkpoint that is being made.
#[derive(Debug)]
pub(super) struct Files {
    /// The directory that the caller has named, and what there is of the checkpoint's own.
    dir: PathBuf,
    top: File,
    half: File,
    /// The checkpoint's own name.
    id: String,
    memory: File,
    /// Each with its source and its copy.
    parts: Vec<(Part, File, File)>,
}

/// Where a path leads, but for a link at its end.
///
/// # Errors
/// When it is no path for a checkpoint, or leads nowhere.
pub(super) fn way(text: &str) -> Result<String> {
    let path = named(text).ok_or_else(|| unnamed(text))?;
    let real = match path.parent().zip(path.file_name()) {
        Some((above, name)) => above.canonicalize().map(|above| above.join(name)),
        None => path.canonicalize(),
    };
    let real = match real {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Err(refused(Kind::State, path, ABSENT)),
        real => real.map_err(|cause| failed("the checkpoint's directory not looked at", cause))?,
    };
    let no_text = |_real| refused(Kind::Invalid, path, "it leads to a name that is not UTF-8, which libvirt wants");
    real.into_os_string().into_string().map_err(no_text)
}

/// A path that can be one of a checkpoint's directory.
pub(super) fn named(text: &str) -> Option<&Path> {
    let is_path = Path::new(text).is_absolute() && text.len() <= MAX_PATH && !text.chars().any(char::is_control);
    is_path.then(|| Path::new(text))
}

fn unnamed(text: &str) -> Error {
    let why = "it has to be an absolute path of no more than 3072 bytes, without control characters";
    refused(Kind::Invalid, Path::new(text), why)
}

/// The directory that a path names, if a checkpoint may be written to it: one that is there, empty, root's alone to write to, and not in `ours`.
///
/// # Errors
/// When it is not such a one.
pub(super) fn judge(text: &str, ours: &[PathBuf]) -> Result<PathBuf> {
    let path = named(text).ok_or_else(|| unnamed(text))?;
    let none = |kind, why: &str| Err(refused(kind, path, why));
    let invalid = |why| none(Kind::Invalid, why);
    let state = |why: &str| none(Kind::State, why);
    let found = match fs::symlink_metadata(path) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return state(ABSENT),
        found => found.map_err(|cause| failed("the checkpoint's directory not looked at", cause))?,
    };
    if !found.is_dir() {
        return state("it is no directory");
    }
    if !is_root(&found) || found.permissions().mode() & 0o022 != 0 {
        return state("others than root may write to it; `chmod 0700` and `chown root` mend that");
    }
    let real = path.canonicalize().map_err(|cause| failed("the checkpoint's directory not looked at", cause))?;
    let is_ours =
        |ours: &PathBuf| real.starts_with(ours) || ours.canonicalize().is_ok_and(|ours| real.starts_with(ours));
    if ours.iter().any(is_ours) {
        return invalid("controld keeps its own files there");
    }
    // Who may rename one above it may put another in its place.
    let is_roots = |dir: &Path| {
        let is_roots = |found: fs::Metadata| {
            let is_sticky = found.permissions().mode() & 0o1000 != 0;
            is_root(&found) && (is_sticky || found.permissions().mode() & 0o022 == 0)
        };
        fs::metadata(dir).is_ok_and(is_roots)
    };
    if let Some(above) = real.ancestors().skip(1).find(|above| !is_roots(above)) {
        return state(&format!("others than root may move what is in `{}`", above.display()));
    }
    let listed = open_dir(CWD, &real).and_then(|dir| other_than("", &dir));
    match listed.map_err(|cause| failed("the checkpoint's directory not listed", cause))? {
        Some(other) => Err(taken(&real, &other)),
        None => Ok(real),
    }
}

/// Makes all files of the checkpoint of this name, so that none is made once the guest is paused. `open` are files that the machine's QEMU has
/// open.
///
/// # Errors
/// When there is another one, or a file of the machine's is not there or not among those. What was made by then is for [`clear`].
pub(super) fn begin(
    dir: &Path,
    id: Uuid,
    parts: Vec<Part>,
    open: &[FileId],
    unwanted: &CancellationToken,
) -> Result<Files> {
    wanted_still(unwanted)?;
    let not_marked = |cause: io::Error| failed("the checkpoint's directory not marked", cause);
    let top = open_dir(CWD, dir).map_err(not_marked)?;
    match mkdirat(&top, PARTIAL, Mode::RWXU) {
        Err(Errno::EXIST) => return Err(taken(dir, PARTIAL)),
        marked => marked.map_err(|cause| not_marked(cause.into()))?,
    }
    let id = id.to_string();
    let marked = || {
        let half = open_dir(&top, PARTIAL)?;
        half.set_permissions(fs::Permissions::from_mode(0o700))?;
        made(&half, &id)?.sync_all()?;
        half.sync_all()?;
        top.sync_all()?;
        io::Result::Ok(half)
    };
    let half = marked().map_err(not_marked)?;
    // Somebody may have come after the judge.
    if let Some(other) = other_than(PARTIAL, &top).map_err(not_marked)? {
        return Err(taken(dir, &other));
    }
    let new = |name: &str| made(&half, name).map_err(|cause| failed("a file of the checkpoint not made", cause));
    let memory = new(MEMORY)?;
    let with_files = parts.into_iter().map(|part| {
        let source = source(&part.path, open).map_err(|cause| {
            Error::because(Kind::State, format!("`{}` of the machine not opened", part.path.display()), cause)
        })?;
        let copy = new(&part.name)?;
        Ok((part, source, copy))
    });
    let parts = with_files.collect::<Result<_>>()?;
    Ok(Files { dir: dir.to_owned(), top, half, id, memory, parts })
}

/// Removes what is there of the checkpoint of this name, unless that is whole. Fine if there is nothing, or no directory.
///
/// # Errors
/// When something stays.
pub(super) fn clear(dir: &Path, id: Uuid, names: &[String]) -> Result<()> {
    cleared(dir, &id.to_string(), names).map_err(|cause| failed("a file of a checkpoint that broke off stays", cause))
}

fn cleared(dir: &Path, id: &str, names: &[String]) -> io::Result<()> {
    let Some(top) = there(open_dir(CWD, dir))? else { return Ok(()) };
    // Killed when it was whole, and not yet without its name.
    if let Some(whole) = there(open_dir(&top, WHOLE))? {
        there(unlinkat(&whole, id, AtFlags::empty()).map_err(io::Error::from))?;
    }
    let Some(half) = there(open_dir(&top, PARTIAL))? else { return Ok(()) };
    if there(statat(&half, id, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))?.is_some() {
        for name in names.iter().map(String::as_str).chain([MEMORY, manifest::NAME]) {
            there(unlinkat(&half, name, AtFlags::empty()).map_err(io::Error::from))?;
        }
        if let Some(other) = other_than(id, &half)?.filter(|other| other.starts_with(STILL_OPEN)) {
            return Err(io::Error::other(format!("the file server has `{other}` still, as somebody has it open")));
        }
        // Last: what has no name in it is nobody's.
        there(unlinkat(&half, id, AtFlags::empty()).map_err(io::Error::from))?;
        tracing::info!(dir = %dir.display(), "what was there of a checkpoint that broke off is removed");
    }
    // An empty one is of a checkpoint that came no further. Should another one just have made it, that finds it gone and fails.
    match unlinkat(&top, PARTIAL, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            tracing::warn!(dir = %dir.display(), "`{PARTIAL}` has files that are not this checkpoint's, and stays");
            Ok(())
        }
        Err(cause) => Err(cause.into()),
    }
}

/// A file of root's alone that was not there.
fn made(dir: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// A file that QEMU has open, and nothing that is followed: others may write to the directory of an emptyDir.
fn source(path: &Path, open: &[FileId]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if !open.contains(&FileId::of(found.dev(), found.ino())) {
        return Err(io::Error::other("it is not the file that QEMU has open; somebody has put another in its place"));
    }
    Ok(file)
}

pub(super) fn open_dir(at: impl AsFd, name: impl Arg) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(at, name, flags, Mode::empty())?))
}

/// What there is in a directory beside `name`, and what empty file systems have, as an error can show it.
fn other_than(name: &str, dir: &File) -> io::Result<Option<String>> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let found: &CStr = entry.file_name();
        let mut expected = OF_EMPTY.into_iter().chain([".", "..", name]);
        if !expected.any(|expected| expected.as_bytes() == found.to_bytes()) {
            return Ok(Some(shown(&found.to_string_lossy())));
        }
    }
    Ok(None)
}

/// `None` where nothing of that name is there, or nothing of that kind.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(cause) if matches!(Errno::from_io_error(&cause), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
            Ok(None)
        }
        found => found.map(Some),
    }
}

fn taken(dir: &Path, other: &str) -> Error {
    let why = if other == PARTIAL {
        format!("it is not empty: another checkpoint is being made there, or has left `{PARTIAL}`")
    } else {
        format!("it is not empty: there is `{other}`")
    };
    refused(Kind::State, dir, &why)
}

fn refused(kind: Kind, dir: &Path, why: &str) -> Error {
    Error::new(kind, format!("a checkpoint is not written to `{}`: {why}", shown(&dir.to_string_lossy())))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Or whoever runs this, who is root but in tests.
pub(super) fn is_root(found: &fs::Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&found.uid())
}

pub(super) fn shown(text: &str) -> String {
    common::shown(text, 256)
}

// === impl Files ===

impl Files {
    /// Where libvirt is to write memory and devices.
    pub(super) fn memory(&self) -> PathBuf {
        self.dir.join(PARTIAL).join(MEMORY)
    }

    /// Bytes of what is copied: without holes, and with them.
    pub(super) fn bytes(&self) -> io::Result<(u64, u64)> {
        self.parts.iter().try_fold((0_u64, 0_u64), |(data, all), (_, source, _)| {
            let found = source.metadata()?;
            Ok((data.saturating_add(found.blocks().saturating_mul(BLOCK)), all.saturating_add(found.len())))
        })
    }

    /// Copies what the guest does not write to now.
    pub(super) fn copy(&self, unwanted: &CancellationToken) -> io::Result<()> {
        self.parts.iter().try_for_each(|(_, source, copy)| copy::content(source, copy, unwanted))
    }

    /// Flushes all to the disk, as root's alone; what they are. The memory may have so many bytes at `most`, and has some.
    pub(super) fn finish(&self, most: u64, unwanted: &CancellationToken) -> io::Result<Vec<PartMade>> {
        let memory = self.memory.metadata()?.len();
        if memory == 0 {
            // By the same path, in a mount namespace of its own.
            return Err(io::Error::other(
                "libvirt wrote no memory to the file that it was given: it has another file system at this path than controld has; \
                 use a directory that both see",
            ));
        }
        if memory > most {
            return Err(io::Error::other(too_large(most)));
        }
        let parts = self.parts.iter().map(|(part, _, copy)| (&*part.name, &part.of, copy));
        let finished = |(name, of, file): (&str, &Of, &File)| {
            if !is_same(&fstat(file)?, &statat(&self.half, name, AtFlags::SYMLINK_NOFOLLOW)?) {
                return Err(io::Error::other(format!("`{name}` is another file than was made")));
            }
            // libvirt gives the memory's file to QEMU's user.
            fchown(file, Some(geteuid().as_raw()), Some(getegid().as_raw()))?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.sync_all()?;
            let (bytes, sha256) = copy::digest(file, unwanted)?;
            Ok(PartMade { name: name.to_owned(), of: of.clone(), bytes, sha256 })
        };
        std::iter::once((MEMORY, &Of::Memory, &self.memory)).chain(parts).map(finished).collect()
    }

    /// Makes a checkpoint of what is finished, with this manifest.
    ///
    /// # Errors
    /// When something else has come to the directory, or to its path, or the disk fails: then there is none.
    pub(super) fn publish(&self, manifest: &[u8], unwanted: &CancellationToken) -> Result<()> {
        let not_written = |cause: io::Error| failed("the checkpoint's manifest not written", cause);
        let write = || {
            let mut file = made(&self.half, manifest::NAME)?;
            file.write_all(manifest)?;
            file.sync_all()?;
            self.half.sync_all()
        };
        write().map_err(not_written)?;
        let is_where_it_was = || {
            let (now, half) = (stat(&self.dir)?, stat(self.dir.join(PARTIAL))?);
            io::Result::Ok(is_same(&now, &fstat(&self.top)?) && is_same(&half, &fstat(&self.half)?))
        };
        if !is_where_it_was().map_err(not_written)? {
            let why = "it is another directory than when this began; has it been moved, or something mounted there?";
            return Err(refused(Kind::State, &self.dir, why));
        }
        if let Some(other) = other_than(PARTIAL, &self.top).map_err(not_written)? {
            return Err(taken(&self.dir, &other));
        }
        wanted_still(unwanted)?;
        match renameat(&self.top, PARTIAL, &self.top, WHOLE) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => return Err(taken(&self.dir, WHOLE)),
            renamed => renamed.map_err(|cause| not_written(cause.into()))?,
        }
        if let Err(cause) = self.top.sync_all() {
            // Who hears of a failure is to find none.
            if let Err(cause) = renameat(&self.top, WHOLE, &self.top, PARTIAL) {
                tracing::warn!(dir = %self.dir.display(), %cause, "a checkpoint that may not be on the disk stays");
            }
            return Err(not_written(cause));
        }
        // It is nobody's to remove now. With its name in it, it is as whole.
        if let Err(cause) = unlinkat(&self.half, &*self.id, AtFlags::empty()) {
            tracing::warn!(dir = %self.dir.display(), %cause, "an empty file stays in a checkpoint that is whole");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
