//! Small JSON files that stand beside what they are about: versioned, for root only, and replaced as a whole.
//!
//! A file that is damaged, or of a newer release, is an error and never an absence: whoever reads it must not act as if
//! there were none, and must not write over it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::FileError;

/// More than any of them has, in bytes.
const MAX_LEN: u64 = 64 << 10;

/// Why such a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SmallFileError {
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] FileError),
    /// A newer release wrote it.
    #[error("`{}` has version {found}, and this release reads version {known}; install the newer release again", path.display())]
    Newer {
        path: PathBuf,
        /// Its version.
        found: u32,
        /// What is understood here.
        known: u32,
    },
    /// It is not what any release wrote.
    #[error("`{}` is damaged", path.display())]
    Damaged {
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: serde_json::Error,
    },
}

/// Only the version, which says whether the rest can be understood.
#[derive(serde::Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Reads a file of version `known`; `None` if there is none.
///
/// # Errors
/// See [`SmallFileError`].
pub fn read<T: DeserializeOwned>(path: &Path, known: u32) -> Result<Option<T>, SmallFileError> {
    let failed = |cause| FileError::of("read", path)(cause);
    let damaged = |cause| SmallFileError::Damaged { path: path.to_owned(), cause };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(failed(cause).into()),
    };
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes).map_err(failed)?;
    let VersionOnly { version: found } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if found != known {
        return Err(SmallFileError::Newer { path: path.to_owned(), found, known });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

/// Writes a file, or replaces it; it outlives a power failure.
///
/// # Errors
/// When it cannot be written; then what was there before still is.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), SmallFileError> {
    put(path, value, true)
}

/// [`write()`] without waiting for the disk: a power failure may tear it.
///
/// # Errors
/// See [`write()`].
pub fn write_unflushed<T: Serialize>(path: &Path, value: &T) -> Result<(), SmallFileError> {
    put(path, value, false)
}

fn put<T: Serialize>(path: &Path, value: &T, flushed: bool) -> Result<(), SmallFileError> {
    let failed = |action| FileError::of(action, path);
    let bytes = serde_json::to_vec(value).map_err(|cause| failed("describe")(cause.into()))?;
    let half = path.with_extension("new");
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half);
    let written = written.and_then(|mut file| {
        file.write_all(&bytes)?;
        if flushed { file.sync_all() } else { Ok(()) }
    });
    if let Err(cause) = written {
        // The error that matters is the first one.
        let _ = std::fs::remove_file(&half);
        return Err(failed("write")(cause).into());
    }
    std::fs::rename(&half, path).map_err(failed("replace"))?;
    if !flushed {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    Ok(File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("flush the directory of"))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Example {
        version: u32,
        text: String,
    }

    #[test]
    fn what_was_written_is_read_and_is_for_root_alone() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("a.json");
        assert!(read::<Example>(&path, 1).expect("readable").is_none());
        for (text, write) in [("one", write as fn(&Path, &Example) -> _), ("two", write_unflushed)] {
            let example = Example { version: 1, text: text.into() };
            write(&path, &example).expect("written");
            assert_eq!(read(&path, 1).expect("readable"), Some(example));
        }
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1, "no half of it is left");
    }

    #[test]
    fn damaged_and_newer_are_not_absent() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("a.json");
        for (text, said) in [
            ("", "damaged"),
            ("{\"version\":1}", "damaged"),
            ("{\"version\":2,\"text\":\"x\"}", "has version 2, and this release reads version 1"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = read::<Example>(&path, 1).expect_err(text);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
