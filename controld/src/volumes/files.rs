//! Files and directories, with errors that say which.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use common::FileError;

use super::VolumeError;

/// Makes a directory with exactly this mode, whatever the umask; fine if it is there.
///
/// # Errors
/// When it cannot be made.
pub fn make_dir(dir: &Path, mode: u32) -> Result<(), VolumeError> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(io_error("make", dir))?;
    set_mode(dir, mode)
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), VolumeError> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(io_error("set the mode of", path))
}

/// Fine if there is none.
pub(super) fn remove_file(path: &Path) -> Result<(), VolumeError> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(cause)),
        _ => Ok(()),
    }
}

/// Removes what is in a directory and `wanted`, and the directory if nothing is left. Fine if there is none.
pub(super) fn remove_dir(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), VolumeError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(io_error("list", dir)(cause)),
    };
    let mut left = false;
    for entry in entries {
        let entry = entry.map_err(io_error("list", dir))?;
        if !wanted(&entry.file_name().to_string_lossy()) {
            left = true;
            continue;
        }
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(&path).map_err(io_error("remove", &path))?;
        } else {
            remove_file(&path)?;
        }
    }
    match std::fs::remove_dir(dir) {
        Err(cause) if !left && cause.kind() != io::ErrorKind::NotFound => Err(io_error("remove", dir)(cause)),
        _ => Ok(()),
    }
}

/// What a folder of disks takes of its file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes that are allocated, as `st_blocks` counts them: a sparse file takes less than its length.
    pub bytes: u64,
    /// Files.
    pub inodes: u64,
}

/// What the files of a directory take of the disk; nothing if there is no such directory.
#[must_use]
pub fn disk_usage(dir: &Path) -> DiskUsage {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).fold(DiskUsage::default(), |sum, found| DiskUsage {
        bytes: sum.bytes + found.blocks() * 512,
        inodes: sum.inodes + 1,
    })
}

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    move |cause| FileError::of(action, path)(cause).into()
}
