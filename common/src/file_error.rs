//! A file operation that failed, as the errors of those who keep files have it.

use std::io;
use std::path::{Path, PathBuf};

/// What was tried on which file, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{}`", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    cause: io::Error,
}

impl FileError {
    /// For `map_err`.
    pub fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self { action, path: path.to_owned(), cause }
    }
}
