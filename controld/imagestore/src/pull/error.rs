//! Why an image was not pulled.

use std::io;
use std::sync::Arc;

use tokio::task::JoinError;

use crate::convert::{ConvertError, ForeignFormat};
use crate::declared::Declared;
use crate::error::{ErrorKind, of_io};
use crate::inspect::{DiskFormat, Refusal};
use crate::intake::IntakeError;
use crate::name::{ImageRef, NameError};
use crate::net::FetchError;
use crate::provider::ProviderError;
use crate::shelf::DiskError;
use crate::translate::TranslateError;

use super::LayerError;

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The name is none.
    #[error("`{name}` is no image name")]
    Name {
        /// The caller's text.
        name: String,
        /// Why not.
        #[source]
        cause: NameError,
    },
    /// An id or a bare digest says where nothing is.
    #[error(
        "image `{digest}` is not here for this login, and an id does not say where it could be asked for; use its name"
    )]
    OnlyDigest {
        /// The digest.
        digest: String,
    },
    /// The name has no URL.
    #[error("failed to translate image `{image}`")]
    Translate {
        /// The image.
        image: ImageRef,
        /// Why.
        #[source]
        cause: Box<TranslateError>,
    },
    /// The providers that were asked for the name.
    #[error("failed to look up image `{image}`")]
    Find {
        /// The image.
        image: ImageRef,
        /// Why.
        #[source]
        cause: Box<ProviderError>,
    },
    /// The download failed.
    #[error("failed to pull image `{image}` from `{url}` ({by})")]
    Download {
        /// The image.
        image: ImageRef,
        /// Where from, without credentials.
        url: Box<str>,
        /// The rule that said so.
        by: Box<str>,
        /// Why. Shared with whoever waited for the same download.
        #[source]
        cause: Arc<DownloadError>,
    },
    /// The store failed.
    #[error("failed to store image `{image}`")]
    Store {
        /// The image.
        image: ImageRef,
        /// Why.
        #[source]
        cause: DiskError,
    },
    /// There is no such handler.
    #[error("unknown runtime handler `{handler}`; this node has {}", known.join(", "))]
    Handler {
        /// The caller's text.
        handler: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Not here, and nobody may be asked.
    #[error(
        "image `{image}` is not in the store for this login, and the store is offline; turn `offline` off, or pull it elsewhere"
    )]
    Offline {
        /// The image.
        image: ImageRef,
    },
    /// A thread or task panicked.
    #[error("pull of image `{image}` ended early")]
    Lost {
        /// The image.
        image: ImageRef,
        /// How, if that is known.
        #[source]
        cause: Option<JoinError>,
    },
}

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
    Intake(#[from] IntakeError),
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
    /// The handler may not have it from there.
    #[error("provider `{provider}` is not one of those that the runtime handler may be served by")]
    NotServed {
        /// The provider.
        provider: String,
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
        /// Why.
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
    TooLarge {
        /// The limit.
        limit: u64,
    },
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
    /// A thread panicked.
    #[error("a thread of the download ended early")]
    Lost(#[from] JoinError),
    /// A task ended without a word.
    #[error("download ended early")]
    Ended,
}

impl PullError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. } | Self::Handler { .. } => ErrorKind::InvalidName,
            Self::Offline { .. } => ErrorKind::Server,
            Self::OnlyDigest { .. } => ErrorKind::NotFound,
            Self::Translate { cause, .. } => match **cause {
                TranslateError::Untranslated { .. } | TranslateError::Platform { .. } => ErrorKind::NotFound,
                TranslateError::Property { .. } | TranslateError::Url { .. } | TranslateError::Rejected { .. } => {
                    ErrorKind::InvalidName
                }
                TranslateError::Rules(_) => ErrorKind::Internal,
            },
            Self::Find { cause, .. } => cause.kind(),
            Self::Download { cause, .. } => cause.kind(),
            Self::Store { cause, .. } => cause.kind(),
            Self::Lost { .. } => ErrorKind::Internal,
        }
    }
}

impl PullError {
    /// Whether the source could not be asked, as opposed to having said no or something that is not to be believed.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        let cause = match self {
            Self::Find { cause, .. } => return cause.is_unreachable(),
            Self::Download { cause, .. } => cause,
            _ => return false,
        };
        match &**cause {
            DownloadError::Fetch(error) => error.is_unreachable(),
            DownloadError::Provider(error) => error.is_unreachable(),
            _ => false,
        }
    }

    /// How many bytes must be free for another attempt, if it failed for want of room. 0 if that is not known.
    pub(crate) fn wants_room(&self) -> Option<u64> {
        let Self::Download { cause, .. } = self else { return None };
        match &**cause {
            DownloadError::NoSpace { needed, .. } => Some(*needed),
            DownloadError::Intake(_) | DownloadError::Disk(_) if cause.kind() == ErrorKind::Exhausted => Some(0),
            _ => None,
        }
    }
}

impl DownloadError {
    /// Whether a server was asked for the rest of a file and gave something else.
    pub(super) fn is_of_range(&self) -> bool {
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
            Self::Intake(error) => error.kind(),
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
            Self::NotServed { .. } => ErrorKind::Denied,
            Self::Undelimited | Self::Unchanged | Self::Changing => ErrorKind::Server,
            Self::TooLarge { .. } | Self::NoSpace { .. } => ErrorKind::Exhausted,
            Self::Length { .. } => ErrorKind::DigestMismatch,
            Self::Gone | Self::Lost(_) | Self::Ended => ErrorKind::Internal,
        }
    }
}
