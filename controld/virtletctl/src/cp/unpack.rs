//! An archive from a guest, which may be hostile, as files of ours.
//!
//! Nothing is written but what was [asked for](super::asked): names are walked one by one from the place that the user named, no link
//! is followed, and none is made.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, mkdirat};
use vmimage::tar::{Data, Entry, Kind, Tar};

use super::super::error::{CopyError, CtlError};
use super::asked::{Asked, text};
use super::pack::failed;

/// Bytes that are written at once.
const CHUNK: usize = 64 << 10;
/// Bytes that an entry takes in an archive beside its content.
const HEADER: u64 = 512;
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

/// Writes what `archive` has as `name` to `to`, or into it, if that is a directory. `limit` bytes of archive at most.
pub(super) fn unpack(archive: impl Read, name: &str, to: &Path, limit: u64) -> Result<Unpacked, CtlError> {
    let asked = Asked::new(name, to);
    let mut tar = Tar::of(archive, limit / HEADER);
    let (mut done, mut made) = (Unpacked::default(), Made::default());
    let mut left = limit;
    while let Some(entry) = tar.next_entry().map_err(CopyError::Archive)? {
        // Holes are written, too; files without a byte fill a disk's table of files, and names of links memory.
        let costs = [HEADER, entry.ahead, entry.path.len() as u64]
            .iter()
            .fold(entry.size, |sum, part| sum.saturating_add(*part));
        left = left.checked_sub(costs).ok_or(CopyError::TooMuch { limit })?;
        let names = asked.below(&entry.path)?;
        match entry.kind {
            Kind::Directory => {
                directory(to, &names, entry.mode)?;
                done.entries += 1;
            }
            Kind::Regular => {
                let (mut file, path) = create(to, &names, OFlag::empty(), entry.mode)?;
                write(&mut tar, entry, &mut file, &path)?;
                made.add(&file, &path)?;
                done.entries += 1;
            }
            Kind::Hardlink => {
                let (mut source, size) = made.open(&asked, &entry)?;
                left = left.checked_sub(size).ok_or(CopyError::TooMuch { limit })?;
                let (mut file, path) = create(to, &names, OFlag::O_EXCL, entry.mode)?;
                // Links are not made: whoever changed one file would change two.
                io::copy(&mut source, &mut file).map_err(failed("write", &path))?;
                made.add(&file, &path)?;
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

/// Opens a file for writing.
fn create(to: &Path, names: &[OsString], flags: OFlag, mode: u32) -> Result<(File, PathBuf), CtlError> {
    let flags = writing() | flags;
    let (opened, path) = match names.split_last() {
        // The user's own word, which may be a link too.
        None => (openat(nix::fcntl::AT_FDCWD, to, flags - OFlag::O_NOFOLLOW, permissions(mode)), to.to_owned()),
        Some((file, parents)) => {
            let (parent, path) = enter(to, parents)?;
            (openat(&parent, file.as_os_str(), flags, permissions(mode)), path.join(file))
        }
    };
    match opened {
        Err(nix::Error::EEXIST) => Err(CopyError::LinkOver(path).into()),
        opened => Ok((opened.map_err(io::Error::from).and_then(regular).map_err(failed("write", &path))?, path)),
    }
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

/// Which files an archive has made, by device and inode: these take more room on a disk than here.
#[derive(Debug, Default)]
struct Made(BTreeSet<(u64, u64)>);

impl Made {
    fn add(&mut self, file: &File, path: &Path) -> Result<(), CtlError> {
        let metadata = file.metadata().map_err(failed("look at", path))?;
        self.0.insert((metadata.dev(), metadata.ino()));
        Ok(())
    }

    /// Opens the file that `entry` is another name of, and says how long it is. Only one of this archive: what was there before is not
    /// for a guest to copy, as under another name, of other permissions, others may read it.
    fn open(&self, asked: &Asked<'_>, entry: &Entry) -> Result<(File, u64), CtlError> {
        let names: PathBuf = asked.below(&entry.target)?.iter().collect();
        let path = asked.to.join(&names);
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = enter(asked.to, &[])
            .and_then(|(to, _)| openat2(&to, &names, how).map_err(io::Error::from).map_err(failed("open", &path)));
        let source = File::from(opened?);
        let metadata = source.metadata().map_err(failed("look at", &path))?;
        if !self.0.contains(&(metadata.dev(), metadata.ino())) {
            return Err(CopyError::StrangeLink { name: text(&entry.path), target: text(&entry.target) }.into());
        }
        Ok((source, metadata.len()))
    }
}

fn write(tar: &mut Tar<impl Read>, entry: Entry, file: &mut File, path: &Path) -> Result<(), CtlError> {
    let mut data = Data::of(entry);
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = data.read(tar, &mut buffer).map_err(CopyError::Archive)?;
        if read == 0 {
            return Ok(());
        }
        file.write_all(buffer.get(..read).unwrap_or_default()).map_err(failed("write", path))?;
    }
}
