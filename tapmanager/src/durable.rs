//! Writes small files such that a crash of the daemon leaves either the old file or the new one, whole.
//!
//! A file written with [`Keep::ForGood`] also survives a power failure, after which a replaced file may be the old one
//! again. A file written with [`Keep::ForThisBoot`] may be torn or gone after a power failure, unless [`flush`] has
//! returned since.
//!
//! Called by [`crate::journal`], for the daemon's own notes, and for the CNI result cache. Nothing else writes into the
//! state directory.
//!
//! [`common::small_file`] always replaces a JSON file as a whole. The journal also needs a write that fails if the file
//! exists, a flush that comes later than the write, and lines appended to a file; so it has this module.
//!
//! All functions but [`read`] block for a disk flush or two (0.3 to 0.6 ms on the machines measured): call them off the reactor.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};

/// What to do about a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It is an earlier state of the same thing.
    Replace,
    /// It is not ours to overwrite: fail with [`io::ErrorKind::AlreadyExists`].
    Keep,
}

/// What a file has to outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A power failure.
    ForGood,
    /// The daemon: the kernel's cache has it, and no flush is waited for.
    ForThisBoot,
}

/// A file could not be written, flushed or removed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{}`", path.display())]
pub(crate) struct DurableError {
    action: &'static str,
    path: PathBuf,
    #[source]
    cause: io::Error,
}

impl DurableError {
    /// Whether the file was there and [`Existing::Keep`] was asked for.
    pub(crate) fn is_occupied(&self) -> bool {
        self.cause.kind() == io::ErrorKind::AlreadyExists
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DurableError {
    move |cause| DurableError { action, path: path.to_owned(), cause }
}

/// Name of the file that the content of `name` is written to before it takes its place.
pub(crate) fn temp_name(name: &str) -> String {
    format!(".{name}.tmp")
}

/// The name that a [`temp_name`] was made of.
pub(crate) fn name_of_temp(temp: &str) -> Option<&str> {
    temp.strip_prefix('.')?.strip_suffix(".tmp")
}

/// Writes the file `name` in `dir`, mode 0600.
///
/// # Errors
/// Any step's; nothing is left behind then but, at worst, the temporary file.
pub(crate) fn write(dir: &Path, name: &str, bytes: &[u8], existing: Existing, keep: Keep) -> Result<(), DurableError> {
    let temp = dir.join(temp_name(name));
    let path = dir.join(name);
    let written = write_temp(&temp, bytes, keep).map_err(failed("write", &temp));
    let placed = written.and_then(|()| {
        let placed = match existing {
            Existing::Replace => fs::rename(&temp, &path),
            Existing::Keep => place_first(&temp, &path),
        };
        placed.map_err(failed("put in place", &path))
    });
    if placed.is_err() {
        // On a full disk this is what makes room again. If it fails too, the journal's sweep does it, or the removal of
        // a cache's entry.
        let _ = fs::remove_file(&temp);
    }
    // Where it replaces one, a power failure may bring the earlier state back, whole. It takes links and namespaces away
    // as well, and what is done about the earlier state then is right: all networks that it names are given back.
    placed
}

/// Adds a line to the file `name` in `dir`, which is made with mode 0600 if there is none, for as long as this boot lasts.
/// It stands on a line of its own whatever was torn before. A file of more than `limit` bytes is replaced by the line.
///
/// This costs a third of replacing the file: ext4 begins to write out what takes the place of another file.
///
/// # Errors
/// The kernel's; half of the line may be there then.
pub(crate) fn append(dir: &Path, name: &str, line: &[u8], limit: u64) -> Result<(), DurableError> {
    let path = dir.join(name);
    let open = || {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)?;
        Ok((file.metadata()?.len(), file))
    };
    let (len, mut file) = open().map_err(failed("open", &path))?;
    if len > limit {
        return write(dir, name, line, Existing::Replace, Keep::ForThisBoot);
    }
    file.write_all(&[b"\n", line].concat()).map_err(failed("write", &path))
}

/// Gives `temp` the name `path`, which nothing has.
fn place_first(temp: &Path, path: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, temp, AT_FDCWD, path, RenameFlags::RENAME_NOREPLACE) {
        // Not every file system knows the flag.
        Err(Errno::EINVAL | Errno::ENOSYS) => link_first(temp, path),
        done => Ok(done?),
    }
}

/// The same where a rename always replaces. A crash in between leaves both names, and the temporary one is swept.
fn link_first(temp: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(temp, path)?;
    fs::remove_file(temp)
}

/// The bytes of a file; `None` if there are more than `most`. Neither a link nor a fifo in its place may lead us away or hold us up.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Makes the file `name` in `dir` stay through a power failure.
///
/// # Errors
/// The kernel's.
pub(crate) fn flush(dir: &Path, name: &str) -> Result<(), DurableError> {
    let path = dir.join(name);
    File::open(&path).and_then(|file| file.sync_data()).map_err(failed("flush", &path))?;
    flush_names(dir)
}

/// Makes the names in `dir` stay through a power failure: all that a file needs that was written with [`Keep::ForGood`].
///
/// # Errors
/// The kernel's.
pub(crate) fn flush_names(dir: &Path) -> Result<(), DurableError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("flush", dir))
}

/// Removes the file `name` in `dir`; fine if there is none.
///
/// Not flushed: if a power failure brings it back, so that its removal is done a second time, no harm is done.
///
/// # Errors
/// The kernel's.
pub(crate) fn remove(dir: &Path, name: &str) -> Result<(), DurableError> {
    let path = dir.join(name);
    match fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(DurableError { action: "remove", path, cause }),
        _ => Ok(()),
    }
}

fn write_temp(temp: &Path, bytes: &[u8], keep: Keep) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        // The directory is root's alone; a link in it is somebody's mistake, and is not followed out of it.
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(temp)?;
    file.write_all(bytes)?;
    match keep {
        Keep::ForGood => file.sync_data(),
        Keep::ForThisBoot => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_file_takes_no_place_that_is_taken_on_any_file_system() {
        for place in [place_first, link_first] {
            let dir = tempfile::tempdir().expect("tempdir");
            let (temp, path) = (dir.path().join(temp_name("p1.json")), dir.path().join("p1.json"));
            fs::write(&temp, "new").expect("written");
            fs::write(&path, "precious").expect("written");
            let error = place(&temp, &path).expect_err("taken");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).expect("there"), "precious");
            fs::remove_file(&path).expect("removed");
            place(&temp, &path).expect("free");
            assert_eq!((fs::read_to_string(&path).expect("there").as_str(), temp.exists()), ("new", false));
        }
    }
}
