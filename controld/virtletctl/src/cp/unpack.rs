//! An archive from a guest, which may be hostile, as files of ours.
//!
//! Nothing is written but below the place that the user named: names are walked one by one from there, no link is
//! followed, and none is made.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use imagestore::tar::{Data, Entry, Kind, Tar};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::super::error::CtlError;
use super::pack::failed;

/// Bytes that are written at once.
const CHUNK: usize = 64 << 10;
/// Bytes that an entry takes in an archive beside its content.
const HEADER: u64 = 512;
/// Directories within each other; a path of Linux cannot have more (`PATH_MAX`).
const MAX_DEPTH: usize = 2048;
/// Bytes of a path of Linux (`PATH_MAX`).
const MAX_PATH: usize = 4096;
/// Skipped entries that are named.
const MAX_NAMED: usize = 20;

/// What was copied, and what was not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) entries: u64,
    /// Symbolic links, devices and the like: the first of them.
    pub(super) skipped: Vec<String>,
    /// More of them.
    pub(super) unnamed: u64,
}

/// Writes what `archive` has as `name` to `to`: into it, if that is a directory and this a file. `limit` bytes of archive at most.
pub(super) fn unpack(archive: impl Read, name: &str, to: &Path, limit: u64) -> Result<Unpacked, CtlError> {
    let mut tar = Tar::of(archive, limit / HEADER);
    let mut done = Unpacked::default();
    let mut left = limit;
    while let Some(entry) = tar.next_entry().map_err(CtlError::Archive)? {
        // Files without a byte fill a disk's table of files, and names of links memory.
        let costs = entry.size.saturating_add(HEADER).saturating_add(entry.path.len() as u64);
        left = left.checked_sub(costs).ok_or(CtlError::TooMuch { limit })?;
        let names = below(&entry.path, name)?;
        match entry.kind {
            Kind::Directory => {
                directory(to, &names, entry.mode)?;
                done.entries += 1;
            }
            Kind::Regular => {
                let (file, path) = create(to, &names, name, entry.mode)?;
                write(&mut tar, entry, file, &path)?;
                done.entries += 1;
            }
            Kind::Hardlink => {
                let source = below(&entry.target, name)?;
                let (file, path) = create(to, &names, name, entry.mode)?;
                left = left.checked_sub(again(to, &source, file, &path)?).ok_or(CtlError::TooMuch { limit })?;
                done.entries += 1;
            }
            _ if done.skipped.len() < MAX_NAMED => {
                done.skipped.push(String::from_utf8_lossy(&entry.path).into_owned());
            }
            _ => done.unnamed += 1,
        }
    }
    Ok(done)
}

/// The names that lead from what was asked for to an entry.
fn below(path: &[u8], name: &str) -> Result<Vec<OsString>, CtlError> {
    let stranger = || CtlError::Stranger(String::from_utf8_lossy(path.get(..MAX_PATH).unwrap_or(path)).into_owned());
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if path.len() > MAX_PATH || path.first() == Some(&b'/') || names.contains(&&b".."[..]) || names.len() > MAX_DEPTH {
        return Err(stranger());
    }
    let names = match names.split_first() {
        _ if name == "." => names.as_slice(),
        Some((first, rest)) if *first == name.as_bytes() => rest,
        _ => return Err(stranger()),
    };
    Ok(names.iter().map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

/// Makes a directory, if it is not there.
fn directory(to: &Path, names: &[OsString], mode: u32) -> Result<(), CtlError> {
    let Some((name, parents)) = names.split_last() else {
        return match fs::create_dir(to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && to.is_dir() => Ok(()),
            made => made.map_err(failed("make directory", to)),
        };
    };
    let (parent, path) = enter(to, parents)?;
    make(&parent, name, mode).map_err(failed("make directory", &path.join(name)))
}

fn make(parent: &impl AsFd, name: &OsStr, mode: u32) -> io::Result<()> {
    // We write into it.
    let mode = Mode::from_bits_truncate(mode & 0o777 | 0o700);
    match mkdirat(parent, name, mode) {
        // Whether it is a directory, those find out that write into it.
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file for writing; `name` is its own if it is copied into a directory.
fn create(to: &Path, names: &[OsString], name: &str, mode: u32) -> Result<(File, PathBuf), CtlError> {
    let own = [OsString::from(name)];
    let names = if names.is_empty() && to.is_dir() { &own } else { names };
    let Some((file, parents)) = names.split_last() else {
        // The user's own word, which may be a link too.
        let opened = openat(nix::fcntl::AT_FDCWD, to, writing() - OFlag::O_NOFOLLOW, permissions(mode));
        let opened = opened.map_err(io::Error::from).and_then(regular);
        return Ok((opened.map_err(failed("write", to))?, to.to_owned()));
    };
    let (parent, path) = enter(to, parents)?;
    let path = path.join(file);
    let opened = openat(&parent, file.as_os_str(), writing(), permissions(mode));
    let opened = opened.map_err(io::Error::from).and_then(regular);
    Ok((opened.map_err(failed("write", &path))?, path))
}

/// Without waiting for a FIFO's reader.
fn writing() -> OFlag {
    OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC
}

fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o777)
}

/// Only a regular file is written to, and from its beginning.
fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is there, and no regular file"));
    }
    file.set_len(0)?;
    Ok(file)
}

/// The directory that `names` lead to from `to`; those that are not there are made.
fn enter(to: &Path, names: &[OsString]) -> Result<(OwnedFd, PathBuf), CtlError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut path = to.to_owned();
    let opened = openat(nix::fcntl::AT_FDCWD, to, flags, Mode::empty());
    let mut dir = opened.map_err(io::Error::from).map_err(failed("open directory", to))?;
    for name in names {
        path.push(name);
        make(&dir, name, 0o777).map_err(failed("make directory", &path))?;
        let opened = openat(&dir, name.as_os_str(), flags | OFlag::O_NOFOLLOW, Mode::empty());
        dir = opened.map_err(io::Error::from).map_err(failed("open directory", &path))?;
    }
    Ok((dir, path))
}

/// Copies a file that was copied already, for its other name. Links are not made: whoever changed one file would change two.
fn again(to: &Path, source: &[OsString], mut file: File, path: &Path) -> Result<u64, CtlError> {
    let Some((name, parents)) = source.split_last() else {
        return Err(failed("write", path)(io::Error::other("it is a link to the whole of the archive")));
    };
    let (parent, at) = enter(to, parents)?;
    let at = at.join(name);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let opened = openat(&parent, name.as_os_str(), flags, Mode::empty()).map_err(io::Error::from);
    let mut source = File::from(opened.map_err(failed("open", &at))?);
    let metadata = source.metadata().map_err(failed("look at", &at))?;
    if !metadata.is_file() {
        return Err(failed("open", &at)(io::Error::other("it is no regular file")));
    }
    io::copy(&mut source, &mut file).map_err(failed("write", path))
}

fn write(tar: &mut Tar<impl Read>, entry: Entry, mut file: File, path: &Path) -> Result<(), CtlError> {
    let mut data = Data::of(entry);
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = data.read(tar, &mut buffer).map_err(CtlError::Archive)?;
        if read == 0 {
            return Ok(());
        }
        file.write_all(buffer.get(..read).unwrap_or_default()).map_err(failed("write", path))?;
    }
}
