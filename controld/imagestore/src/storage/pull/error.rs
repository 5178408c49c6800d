//! Why an image was not pulled.

use std::sync::Arc;

use common::Reason;
use vmimage::error::ErrorKind;
use vmimage::name::ImageRef;

use crate::sources::net::FetchError;
use crate::sources::provider::ProviderError;
use crate::sources::translate::TranslateError;
use crate::storage::content::DiskError;

mod download;

pub use download::{DownloadError, LayerError};

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The name is none.
    #[error("`{name}` is no image name")]
    Name {
        /// The caller's text.
        name: String,
        #[source]
        cause: Reason,
    },
    /// An id or a bare digest says where nothing is.
    #[error(
        "image `{digest}` is not here for this login, and an id does not say where it could be asked for; use its name"
    )]
    OnlyDigest { digest: String },
    /// The name has no URL.
    #[error("failed to translate image `{image}`")]
    Translate {
        image: ImageRef,
        #[source]
        cause: Box<TranslateError>,
    },
    /// The providers that were asked for the name.
    #[error("failed to look up image `{image}`")]
    Find {
        image: ImageRef,
        #[source]
        cause: Box<ProviderError>,
    },
    /// The download failed.
    #[error("failed to pull image `{image}` from `{url}` ({by})")]
    Download {
        image: ImageRef,
        /// Where from, without credentials.
        url: Box<str>,
        /// The rule that said so.
        by: Box<str>,
        /// Why. Shared with whoever waited for the same download.
        #[source]
        cause: Arc<DownloadError>,
    },
    /// What was sent is not taken.
    #[error("failed to import image `{image}`")]
    Import {
        image: ImageRef,
        #[source]
        cause: Arc<DownloadError>,
    },
    /// The store failed.
    #[error("failed to store image `{image}`")]
    Store {
        image: ImageRef,
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
    Offline { image: ImageRef },
    /// Its task panicked.
    #[error("pull of image `{image}` ended early")]
    Lost { image: ImageRef },
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
            Self::Download { cause, .. } | Self::Import { cause, .. } => cause.kind(),
            Self::Store { cause, .. } => cause.kind(),
            Self::Lost { .. } => ErrorKind::Internal,
        }
    }

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

    /// What went wrong on the way to the image's bytes, if it was that.
    #[must_use]
    pub fn fetch(&self) -> Option<&FetchError> {
        let cause = match self {
            Self::Find { cause, .. } => return cause.fetch(),
            Self::Download { cause, .. } => cause,
            _ => return None,
        };
        match &**cause {
            DownloadError::Fetch(error) => Some(error),
            DownloadError::Provider(error) => error.fetch(),
            _ => None,
        }
    }

    /// The provider that was asked for the name, if it was the way to its source that failed.
    #[must_use]
    pub fn asked(&self) -> Option<&str> {
        match self {
            Self::Find { cause, .. } => match &**cause {
                ProviderError::Asked { provider, .. } => Some(provider),
                _ => None,
            },
            _ => None,
        }
    }

    /// How many bytes must be free for another attempt, if it failed for want of room. 0 if that is not known.
    pub(crate) fn wants_room(&self) -> Option<u64> {
        let Self::Download { cause, .. } = self else { return None };
        match &**cause {
            DownloadError::NoSpace { needed, .. } => Some(*needed),
            DownloadError::Ingest(_) | DownloadError::Disk(_) if cause.kind() == ErrorKind::Exhausted => Some(0),
            _ => None,
        }
    }
}
