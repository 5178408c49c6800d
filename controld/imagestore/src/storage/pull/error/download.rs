//! Why the bytes of an image, or of one that it stands on, are not in the content store.

use std::io;
use std::sync::Arc;

use vmimage::convert::{ConvertError, ForeignFormat};
use vmimage::declared::Declared;
use vmimage::digest::ImageId;
use vmimage::error::{ErrorKind, of_io};
use vmimage::inspect::{DiskFormat, Refusal};

use crate::sources::net::FetchError;
use crate::sources::provider::ProviderError;
use crate::storage::content::{DiskError, MAX_CHAIN};
use crate::storage::ingest::IngestError;

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The server or the way to it.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Who was to know where it is.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Our disk.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// The image.
    #[error("image refused")]
    Refused(#[from] Refusal),
    /// Reading it back for the last verdict.
    #[error("failed to read the image back")]
    Reread(#[source] io::Error),
    /// Nothing came that was asked for without conditions.
    #[error("server says that nothing changed, though it was not asked")]
    Unchanged,
    /// Other bytes each time.
    #[error("server had another file each time the download was to go on; try again when it is left alone")]
    Changing,
    /// More or fewer bytes than were promised.
    #[error("file on the server has {got} bytes, and must have {wanted}")]
    Length {
        /// As was promised.
        wanted: u64,
        /// As it came.
        got: u64,
    },
    /// The handler does not take it.
    #[error("image is {format}, which the runtime handler does not take")]
    Format {
        /// What it is.
        format: DiskFormat,
    },
    /// It is here, and not what it is said to be.
    #[error("image is here as {format}, and is declared as {declared}")]
    Other {
        /// What it is.
        format: DiskFormat,
        /// What a rule or a provider says.
        declared: DiskFormat,
    },
    /// What it stands on.
    #[error(transparent)]
    Layers(#[from] LayerError),
    /// A rule says otherwise than the source.
    #[error("rule declares a {rule} image, and its source says that it is {told}; take `format` out of the rule")]
    Contradiction {
        /// The rule's word.
        rule: Declared,
        /// That of the source.
        told: Declared,
    },
    /// It would have to be converted, which nobody allowed.
    #[error("declared as a {format} image, and those are not converted here; list the format in `images.convert`")]
    NotConverted {
        /// What it was declared as.
        format: ForeignFormat,
    },
    /// It would have to be converted, and then has other bytes than the name demands.
    #[error("a {format} image has other bytes once it is converted; put the digest into the rule, not into the name")]
    ConvertedDigest {
        /// What it was declared as.
        format: ForeignFormat,
    },
    /// It could not be converted.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// What it was converted to cannot be kept.
    #[error("failed to keep the converted image in `{path}`")]
    Converted {
        /// The part file.
        path: String,
        #[source]
        cause: io::Error,
    },
    /// It went as soon as it was there.
    #[error("image was removed while it was pulled")]
    Gone,
    /// Nobody could tell a whole image from a part of one.
    #[error("server gives no length, so a part would look like the whole; let it send one, or pull by digest")]
    Undelimited,
    /// Too large a file.
    #[error("image has more than the {limit} bytes that are allowed")]
    TooLarge { limit: u64 },
    /// It would not fit.
    #[error("image needs {needed} bytes, and the store's disk has {free} left")]
    NoSpace {
        /// What was announced.
        needed: u64,
        /// What is left.
        free: u64,
    },
    /// The store.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A task ended without a word.
    #[error("download ended early")]
    Ended,
}

/// Why what an image stands on is not below it.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Nobody allowed it.
    #[error(
        "image stands on `{named}`, which is not allowed; set `images.layered`, or pull it by `virtletctl image pull`"
    )]
    NotAllowed {
        /// What it stands on.
        named: String,
    },
    /// Nobody has it.
    #[error(
        "image stands on `{named}`, which neither the store nor a provider has; pull that first, or use `--no-recursive`"
    )]
    Missing {
        /// What is missing.
        named: String,
    },
    /// Images that stand on themselves.
    #[error("image stands on itself, by way of `{named}`")]
    Cycle {
        /// Where it begins anew.
        named: String,
    },
    /// Too many.
    #[error("image stands on more than {} others", MAX_CHAIN - 1)]
    Depth,
    /// It is not what the image takes it for.
    #[error("image says that `{named}` is {declared}, but it is {found}")]
    Format {
        /// What it stands on.
        named: String,
        /// What it says.
        declared: DiskFormat,
        /// What is true.
        found: DiskFormat,
    },
    /// Two sources do not mean the same.
    #[error("image stands on `{id}` here already, and its source now gives another `{named}`; remove the image first")]
    Differs {
        /// What it stands on.
        named: String,
        /// Which that is here.
        id: ImageId,
    },
    /// It could not be pulled.
    #[error("failed to pull `{named}`, on which the image stands, from `{url}`")]
    Pull {
        /// What it stands on.
        named: String,
        /// Where from, without credentials.
        url: String,
        #[source]
        cause: Arc<DownloadError>,
    },
    /// A provider failed.
    #[error("failed to find `{named}`, on which the image stands")]
    Find {
        /// What it stands on.
        named: String,
        #[source]
        cause: ProviderError,
    },
    /// It went as soon as it was there.
    #[error("image was removed while what it stands on was pulled")]
    Gone,
    /// The store.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl DownloadError {
    /// Whether a server was asked for the rest of a file and gave something else.
    pub(in crate::storage::pull) fn is_of_range(&self) -> bool {
        let cause = match self {
            Self::Fetch(cause) | Self::Provider(ProviderError::Fetch(cause) | ProviderError::Asked { cause, .. }) => {
                cause
            }
            _ => return false,
        };
        matches!(cause, FetchError::Range { .. } | FetchError::RangeGone { .. })
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Fetch(error) => error.kind(),
            Self::Provider(error) => error.kind(),
            Self::Ingest(error) => error.kind(),
            Self::Disk(error) => error.kind(),
            Self::Layers(error) => error.kind(),
            Self::Convert(error) => error.kind(),
            Self::Converted { cause, .. } => of_io(cause),
            Self::Reread(error) => of_io(error),
            Self::Refused(_)
            | Self::Format { .. }
            | Self::Other { .. }
            | Self::Contradiction { .. }
            | Self::NotConverted { .. }
            | Self::ConvertedDigest { .. } => ErrorKind::Refused,
            Self::Undelimited | Self::Unchanged | Self::Changing => ErrorKind::Server,
            Self::TooLarge { .. } | Self::NoSpace { .. } => ErrorKind::Exhausted,
            Self::Length { .. } => ErrorKind::DigestMismatch,
            Self::Gone | Self::Ended => ErrorKind::Internal,
        }
    }
}

impl LayerError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotAllowed { .. } | Self::Cycle { .. } | Self::Depth | Self::Format { .. } | Self::Differs { .. } => {
                ErrorKind::Refused
            }
            Self::Missing { .. } => ErrorKind::Incomplete,
            Self::Pull { cause, .. } => cause.kind(),
            Self::Find { cause, .. } => cause.kind(),
            Self::Disk(error) => error.kind(),
            Self::Gone => ErrorKind::Internal,
        }
    }
}
