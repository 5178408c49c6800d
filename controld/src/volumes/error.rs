//! Why a disk could not be made or removed.

use std::path::PathBuf;
use std::time::Duration;

use common::FileError;
use common::small_file::SmallFileError;

use super::MAX_FOLDERS;

/// Making an overlay writes a few clusters; longer means the disk hangs.
pub(super) const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Why a disk could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A pod UID that is no file name.
    #[error("pod uid `{0}` cannot name a directory")]
    Uid(String),
    /// Every folder that the pod could have is kept.
    #[error("pod uid `{pod_uid}` has {MAX_FOLDERS} folders of unknown owner; `virtletctl orphans` lists them")]
    Folders { pod_uid: String },
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] FileError),
    /// A note of who owns a folder failed.
    #[error(transparent)]
    Note(#[from] SmallFileError),
    /// `qemu-img` refused.
    #[error("qemu-img could not make overlay `{}`: {said}", path.display())]
    QemuImg {
        /// The overlay.
        path: PathBuf,
        /// What it said.
        said: String,
    },
    /// `qemu-img` did not end.
    #[error("qemu-img did not make overlay `{}` within {} s", path.display(), CREATE_DEADLINE.as_secs())]
    Deadline {
        /// The overlay.
        path: PathBuf,
    },
}
