//! The node's files as checks see them: below a root, so that a test has a tree of its own.
//!
//! Every read is bounded, and only regular files are read: a FIFO would hold its check up until its deadline. What is read
//! may be anything; text that is no UTF-8 comes with replacement characters.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most bytes of a file. Lists of a kernel's modules are the largest.
pub(super) const MAX_FILE: u64 = 8 << 20;
/// Most entries of a directory that are looked at: `/proc` has one for each process.
const MAX_NAMES: usize = 100_000;

/// Where the node's files are.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    root: PathBuf,
}

/// Who may do what with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Looks {
    pub(super) kind: Kind,
    /// The permission bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Socket,
    Device,
    Other,
}

/// A file that could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{}`: {cause}", path.display())]
pub(crate) struct HostError {
    action: &'static str,
    path: PathBuf,
    // A part of the text: findings are printed in one line each, without their causes.
    cause: io::Error,
}

impl Host {
    /// The files below `root`.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path of the node as this process reaches it.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The file that a path leads to, by which the kernel's security modules call it; the path itself if it leads nowhere.
    pub(super) fn resolved(&self, path: &Path) -> PathBuf {
        let (Ok(root), Ok(real)) = (fs::canonicalize(&self.root), fs::canonicalize(self.at(path))) else {
            return path.to_owned();
        };
        real.strip_prefix(&root).map_or_else(|_| path.to_owned(), |below| Path::new("/").join(below))
    }

    /// The text of a file; `None` if there is none.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Result<Option<String>, HostError> {
        Ok(self.bytes(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What is in a file; `None` if there is none.
    pub(super) fn bytes(&self, path: impl AsRef<Path>) -> Result<Option<Vec<u8>>, HostError> {
        let path = path.as_ref();
        let failed = |cause| HostError { action: "read", path: path.to_owned(), cause };
        let real = self.at(path);
        match fs::metadata(&real) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(failed(io::Error::other("it is not a regular file"))),
            Err(error) => return absent(error).map_err(failed),
        }
        let mut bytes = Vec::new();
        match File::open(&real).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)) {
            Ok(read) if read as u64 <= MAX_FILE => Ok(Some(bytes)),
            Ok(_) => Err(failed(io::Error::other(format!("it is longer than {MAX_FILE} bytes")))),
            Err(error) => absent(error).map_err(failed),
        }
    }

    /// The text of a file without blanks around it; empty if there is no file.
    pub(super) fn word(&self, path: impl AsRef<Path>) -> Result<String, HostError> {
        Ok(self.read(path)?.unwrap_or_default().trim().to_owned())
    }

    /// The names in a directory, in order; none if there is no directory.
    pub(super) fn names(&self, dir: impl AsRef<Path>) -> Result<Vec<String>, HostError> {
        let dir = dir.as_ref();
        let failed = |cause| HostError { action: "list", path: dir.to_owned(), cause };
        let listing = match fs::read_dir(self.at(dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listing => listing.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in listing.take(MAX_NAMES) {
            names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Who may do what with a file, links followed; `None` if there is none.
    pub(super) fn look(&self, path: impl AsRef<Path>) -> Result<Option<Looks>, HostError> {
        let path = path.as_ref();
        let failed = |cause| HostError { action: "look at", path: path.to_owned(), cause };
        let found = match fs::metadata(self.at(path)) {
            Ok(found) => found,
            Err(error) => return absent(error).map_err(failed),
        };
        let kind = found.file_type();
        let kind = if kind.is_file() {
            Kind::File
        } else if kind.is_dir() {
            Kind::Directory
        } else if kind.is_socket() {
            Kind::Socket
        } else if kind.is_char_device() {
            Kind::Device
        } else {
            Kind::Other
        };
        Ok(Some(Looks { kind, mode: found.mode() & 0o7777, uid: found.uid(), gid: found.gid() }))
    }

    /// When a file was written last; `None` if there is none.
    pub(super) fn modified(&self, path: impl AsRef<Path>) -> Result<Option<SystemTime>, HostError> {
        let path = path.as_ref();
        let failed = |cause| HostError { action: "look at", path: path.to_owned(), cause };
        fs::metadata(self.at(path)).and_then(|found| found.modified()).map(Some).or_else(absent).map_err(failed)
    }

    /// Whether there is something; what cannot be looked at is not there.
    pub(super) fn has(&self, path: impl AsRef<Path>) -> bool {
        self.look(path).is_ok_and(|looks| looks.is_some())
    }
}

/// That there is no file, or no longer, is an answer.
fn absent<T>(error: io::Error) -> io::Result<Option<T>> {
    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) { Ok(None) } else { Err(error) }
}
