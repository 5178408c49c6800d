//! Reads a volume that kubelet has filled: a ConfigMap, a Secret, a projected volume or the downward API.
//!
//! Its names lead through the link `..data` to a directory that kubelet replaces as a whole, so that directory is read, once. Nothing
//! below it is followed out of it: such a volume has plain files, and who can make it anything else, by a `hostPath` that looks
//! like one, is not to have controld read more for him than the volume. Blocks.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use vmspec::seed::{MAX_SEED, MAX_USER_DATA, Volume, VolumeFile};

/// The link to what counts.
const DATA: &str = "..data";
/// What names of kubelet's own begin with.
const OWN: &str = "..";
/// Most files of a volume, and how deep they may lie.
const MAX_FILES: usize = 1024;
const MAX_DEPTH: usize = 8;
/// How often a volume is read that is being replaced meanwhile.
const TRIES: usize = 3;

/// Why a volume cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error("failed to open it")]
    Open(#[source] io::Error),
    #[error("failed to read {name:?}")]
    File { name: String, cause: io::Error },
    #[error("{name:?} is a link, or leads out of it")]
    Link { name: String },
    #[error("{name:?} is not a regular file")]
    Special { name: String },
    #[error("{name:?} is longer than {limit} bytes")]
    Long { name: String, limit: usize },
    #[error("it has more than {MAX_SEED} bytes")]
    Large,
    #[error("it has more than {MAX_FILES} files, or directories in more than {MAX_DEPTH} others")]
    Many,
    #[error("the name {name:?} is not UTF-8")]
    Name { name: String },
    #[error("it was replaced each time that it was read")]
    Unsteady,
}

/// Reads all files of the volume at `dir`.
///
/// # Errors
/// When it cannot be read, or has anything but files of a bearable size.
pub(super) fn read(dir: &Path) -> Result<Volume, VolumeError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let top = File::options().read(true).custom_flags(flags.bits()).open(dir).map_err(VolumeError::Open)?;
    for _ in 0..TRIES {
        let data = data_of(&top)?;
        let read = open(&top, data.as_deref().unwrap_or(Path::new(".")), OFlag::O_DIRECTORY).and_then(read_all);
        // kubelet removes the directory before once the link leads to another.
        if data_of(&top)? == data {
            return read;
        }
    }
    Err(VolumeError::Unsteady)
}

/// Reads the beginning of a regular file in a directory, at most so many bytes. No link is followed below that. Blocks.
///
/// # Errors
/// When it cannot be read, or is no regular file.
pub(super) fn head(dir: &Path, name: &str, limit: u64) -> Result<Vec<u8>, VolumeError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = File::options().read(true).custom_flags(flags.bits()).open(dir).map_err(VolumeError::Open)?;
    let file = open(&dir, Path::new(name), OFlag::empty())?;
    let failed = |cause| VolumeError::File { name: name.to_owned(), cause };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(VolumeError::Special { name: name.to_owned() });
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Where the link leads, if there is one: a name in the same directory.
fn data_of(top: &File) -> Result<Option<PathBuf>, VolumeError> {
    match readlinkat(top, DATA) {
        Ok(target) => Ok(Some(target.into())),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::EINVAL) => Err(VolumeError::Special { name: DATA.to_owned() }),
        Err(cause) => Err(VolumeError::Open(cause.into())),
    }
}

/// Opens what is below a directory of the volume, and nothing else.
fn open(dir: &File, name: &Path, flags: OFlag) -> Result<File, VolumeError> {
    let flags = flags | OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    match openat2(dir, name, OpenHow::new().flags(flags).resolve(resolve)) {
        Ok(fd) => Ok(File::from(fd)),
        Err(Errno::ELOOP | Errno::EXDEV) => Err(VolumeError::Link { name: shown(name) }),
        // Of a socket.
        Err(Errno::ENXIO) => Err(VolumeError::Special { name: shown(name) }),
        Err(cause) => Err(VolumeError::File { name: shown(name), cause: cause.into() }),
    }
}

fn read_all(data: File) -> Result<Volume, VolumeError> {
    let mut volume = Volume::default();
    let mut left = MAX_SEED;
    let mut dirs = vec![(PathBuf::new(), 0)];
    while let Some((dir, depth)) = dirs.pop() {
        for name in names(&data, &dir)? {
            let path = dir.join(&name);
            let file = open(&data, &path, OFlag::empty())?;
            let found = file.metadata().map_err(|cause| VolumeError::File { name: shown(&path), cause })?;
            if found.is_dir() && depth < MAX_DEPTH {
                dirs.push((path, depth + 1));
                continue;
            }
            if found.is_dir() || volume.0.len() + dirs.len() >= MAX_FILES {
                return Err(VolumeError::Many);
            }
            if !found.is_file() {
                return Err(VolumeError::Special { name: shown(&path) });
            }
            let bytes = content(file, &path)?;
            left = left.checked_sub(bytes.len()).ok_or(VolumeError::Large)?;
            let key = path.to_str().ok_or_else(|| VolumeError::Name { name: shown(&path) })?.to_owned();
            volume.0.insert(key, VolumeFile { bytes, mode: found.mode() & 0o777 });
        }
    }
    Ok(volume)
}

/// Names in a directory, without kubelet's own.
fn names(data: &File, dir: &Path) -> Result<Vec<PathBuf>, VolumeError> {
    use std::os::unix::ffi::OsStrExt as _;
    let at = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let failed = |cause: Errno| VolumeError::File { name: shown(dir), cause: cause.into() };
    let mut open = Dir::from_fd(OwnedFd::from(open(data, at, OFlag::O_DIRECTORY)?)).map_err(failed)?;
    let mut names = Vec::new();
    for entry in open.iter() {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name.starts_with(OWN.as_bytes()) {
            continue;
        }
        if names.len() > MAX_FILES {
            return Err(VolumeError::Many);
        }
        names.push(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    }
    Ok(names)
}

fn content(file: File, path: &Path) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_USER_DATA as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|cause| VolumeError::File { name: shown(path), cause })?;
    match bytes.len() > MAX_USER_DATA {
        true => Err(VolumeError::Long { name: shown(path), limit: MAX_USER_DATA }),
        false => Ok(bytes),
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().chars().take(128).collect()
}

#[cfg(test)]
mod tests;
