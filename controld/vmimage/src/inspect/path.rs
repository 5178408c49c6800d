//! Inspects a local file without a store: whether a store would take it as it is.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc::O_NONBLOCK;

use super::{DiskFormat, Expected, Policy, Refusal, Summary, examine};

/// Largest file that a store takes unless it is told otherwise, in bytes.
pub const LARGEST_FILE: u64 = 64 << 30;
/// Largest disk that an image may describe unless a store is told otherwise, in bytes.
pub const LARGEST_DISK: u64 = 2 << 40;

/// How a file is judged.
#[derive(Debug, Clone, Copy)]
pub struct InspectOptions {
    /// What it is said to be; qcow2 if nothing is said.
    pub format: Option<DiskFormat>,
    /// Largest file, in bytes; default 64 GiB.
    pub max_length: u64,
    /// Largest disk that it may describe, in bytes; default 2 TiB.
    pub max_virtual_size: u64,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self { format: None, max_length: LARGEST_FILE, max_virtual_size: LARGEST_DISK }
    }
}

/// Why a file is not taken, or could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be opened.
    #[error("failed to open the image")]
    Open(#[source] io::Error),
    /// A directory, a FIFO, a device.
    #[error("the image is not a regular file")]
    NotAFile,
    /// It cannot be read.
    #[error("failed to read the image")]
    Read(#[source] io::Error),
    /// A store would not take it.
    #[error("the image is refused")]
    Refused(#[from] Refusal),
}

/// Judges the file at `path` as a pull judges what it has received. The path is a path, whatever it looks like.
///
/// # Errors
/// [`InspectError::Refused`] if a store would not take the file as it is; others if that cannot be found out.
pub fn inspect_path(path: impl AsRef<Path>, options: InspectOptions) -> Result<Summary, InspectError> {
    let InspectOptions { format, max_length, max_virtual_size } = options;
    // A FIFO without a writer must not hold us.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).map_err(InspectError::Open)?;
    let metadata = file.metadata().map_err(InspectError::Open)?;
    if !metadata.is_file() {
        return Err(InspectError::NotAFile);
    }
    let length = metadata.len();
    if length > max_length {
        return Err(Refusal::FileTooLarge { length, limit: max_length }.into());
    }
    let policy = Policy { allow_raw: format == Some(DiskFormat::Raw), max_virtual_size };
    let expected =
        Expected { policy, declared: Some(format.unwrap_or(DiskFormat::Qcow2)), layered: true, written: false };
    Ok(examine(&file, length, expected).map_err(InspectError::Read)??)
}
