//! Why an image could not be ingested.

use std::io;
use std::time::Duration;

use vmimage::decode::DecodeError;
use vmimage::error::{ErrorKind, in_seconds, of_io};
use vmimage::inspect::Refusal;

use crate::sources::provider::{Covers, ImageHash};
use crate::storage::content::{DiskError, Part};

/// Why bytes could not be taken in.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// Writing failed.
    #[error("failed to write the image to `{path}`")]
    Write {
        /// The part file.
        path: String,
        #[source]
        cause: io::Error,
    },
    /// Something around the file failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The image.
    #[error("image refused")]
    Refused(#[from] Refusal),
    /// The compression around it.
    #[error("failed to decompress the image")]
    Decode(#[from] DecodeError),
    /// The archive around it.
    #[error("failed to take the image out of its archive")]
    Unpack(#[source] io::Error),
    /// Too large a file.
    #[error("decompressed image has more than the {limit} bytes that are allowed")]
    TooLarge { limit: u64 },
    /// More comes out than images have.
    #[error("compressed image grows to more than {ratio} times its size; serve it with less compression")]
    Bomb {
        /// The limit.
        ratio: u64,
    },
    /// Other bytes than were promised.
    #[error("digest mismatch: {} must have `{wanted}`, and has `{got}`", shown(*.covers))]
    Mismatch {
        /// As was promised.
        wanted: ImageHash,
        /// Of what.
        covers: Covers,
        /// As it came.
        got: ImageHash,
    },
    /// No thread to be had.
    #[error("failed to start a thread for the image")]
    Thread(#[source] io::Error),
    /// The disk does not answer.
    #[error("disk took longer than {} to {what}", in_seconds(*.deadline))]
    Slow {
        /// What was waited for.
        what: &'static str,
        /// How long.
        deadline: Duration,
    },
    /// A thread ended without a word.
    #[error("a thread of the ingest ended early")]
    Lost,
}

impl IngestError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Write { cause, .. } => of_io(cause),
            Self::Disk(error) => error.kind(),
            Self::Decode(error) if error.is_ours() => ErrorKind::Internal,
            Self::Refused(_) | Self::Decode(_) | Self::Unpack(_) | Self::Bomb { .. } => ErrorKind::Refused,
            Self::TooLarge { .. } => ErrorKind::Exhausted,
            Self::Mismatch { .. } => ErrorKind::DigestMismatch,
            Self::Slow { .. } => ErrorKind::Deadline,
            Self::Thread(_) | Self::Lost => ErrorKind::Internal,
        }
    }

    pub(super) fn of_write(part: &Part, cause: io::Error) -> Self {
        Self::Write { path: part.path().display().to_string(), cause }
    }
}

fn shown(covers: Covers) -> &'static str {
    match covers {
        Covers::Hosted => "the file on the server",
        Covers::Unpacked => "the decompressed file",
        Covers::Content => "the image",
    }
}
