//! The pod's log: opened, written, and rotated where nobody else does.
//!
//! kubelet rotates the logs of its pods: it renames one that is too long, then asks for a new file of its name. Nobody does
//! that for `virtletctl run` or `crictl`, so a log that would pass [`PodLog`]'s limit becomes `<name>.1`, in place of the one
//! before. kubelet, whose limit is to be the smaller one, takes such a file for an older log of its own.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// An open log.
#[derive(Debug)]
pub(super) struct PodLog {
    path: PathBuf,
    file: File,
    /// Bytes.
    limit: u64,
}

/// Makes a log of which nothing is to be written, for who reads it. Blocks.
///
/// # Errors
/// When it cannot be made.
pub fn make_log(path: &Path) -> io::Result<()> {
    open(path).map(drop)
}

impl PodLog {
    pub(super) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        Ok(Self { file: open(&path)?, path, limit })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Goes on in the file that has the log's name by now, new if there is none.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Appends to a log that has this length.
    pub(super) fn append(&mut self, lines: &[u8], length: u64) -> io::Result<()> {
        self.file.write_all(lines).inspect_err(|_| {
            // A part of it may be there: take it back, so that the next try does not write it twice.
            let _ = self.file.set_len(length);
        })
    }

    /// Goes on in a new file if a log that has this length has no room for so many bytes more; whether it did.
    pub(super) fn make_room(&mut self, more: usize, length: u64) -> io::Result<bool> {
        if length == 0 || length + more as u64 <= self.limit {
            return Ok(false);
        }
        // Somebody has removed it: nobody sees what it takes of the disk. A directory that is gone is not made again.
        if self.metadata()?.nlink() == 0 {
            self.reopen().or_else(|_| self.file.set_len(0))?;
            return Ok(true);
        }
        if !self.has_its_name()? {
            return Ok(false);
        }
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        fs::rename(&self.path, &older)?;
        // Without a new file the old one stays the log.
        self.reopen().inspect_err(|_| drop(fs::rename(&older, &self.path)))?;
        Ok(true)
    }

    /// Whether the log's name stands for this very file. It does not once kubelet has renamed it; a new file is for kubelet to
    /// ask for.
    fn has_its_name(&self) -> io::Result<bool> {
        let this = self.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok(found.is_file() && (found.dev(), found.ino()) == (this.dev(), this.ino())),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A new log has this mode whatever our umask is: who collects logs is in its group.
fn open(path: &Path) -> io::Result<File> {
    let mut log = OpenOptions::new();
    log.append(true);
    match log.clone().create_new(true).mode(0o600).open(path) {
        Ok(made) => {
            made.set_permissions(Permissions::from_mode(0o640))?;
            Ok(made)
        }
        Err(there) if there.kind() == io::ErrorKind::AlreadyExists => log.open(path),
        Err(error) => Err(error),
    }
}
