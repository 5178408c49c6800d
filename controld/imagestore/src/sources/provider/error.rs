//! Why a provider did not answer.

use std::io;
use std::path::PathBuf;

use vmimage::decode::DecodeError;
use vmimage::error::{ErrorKind, of_io};

use crate::sources::net::FetchError;

/// Why a provider did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The way to the source.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The way to a source that was asked for a name.
    #[error("failed to ask provider `{provider}`")]
    Asked {
        provider: String,
        #[source]
        cause: FetchError,
    },
    /// What a source finds all of its images by is not there, which says nothing of an image.
    #[error(
        "{what} of provider `{provider}` is not at `{url}`; the provider's address in the configuration may be wrong"
    )]
    Absent {
        provider: String,
        /// Which of its documents.
        what: &'static str,
        /// Where it was looked for, without credentials.
        url: String,
    },
    /// Nobody resolves such URLs.
    #[error("no provider for URLs of scheme `{scheme}` is configured")]
    Scheme { scheme: String },
    /// A name of a provider that is none.
    #[error("no provider `{id}` is configured")]
    Unknown {
        /// The name.
        id: String,
    },
    /// The runtime handler may not have images from it.
    #[error("provider `{provider}` is not one of those that the runtime handler may be served by")]
    NotServed { provider: String },
    /// The source has no such image.
    #[error("`{provider}` has no image `{name}`")]
    NotFound { provider: String, name: String },
    /// The source has the image for other platforms.
    #[error("`{provider}` has image `{name}` not for {wanted}, only for {}", available.join(", "))]
    Platform {
        provider: String,
        name: String,
        /// What was wanted.
        wanted: String,
        /// What there is.
        available: Vec<String>,
    },
    /// Its settings cannot be used.
    #[error("provider `{provider}` is not configured soundly")]
    Config {
        provider: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What the source says about its images cannot be used.
    #[error("{what} of `{provider}` cannot be used")]
    Metadata {
        provider: String,
        /// Which of its documents.
        what: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The signature is not that of the key that the operator named.
    #[error("{what} of `{provider}` is not signed as it must be")]
    Signature {
        provider: String,
        /// Which of its documents.
        what: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The source gives no hash that can be relied on.
    #[error("`{provider}` gives only weak hashes for `{name}`; allow weak hashes for it, or pull by digest")]
    WeakHash { provider: String, name: String },
    /// A part of an image could not be looked through, for no reason of its own.
    #[error("failed to look through a layer")]
    Decoder(#[source] DecodeError),
    /// The provider cannot do that.
    #[error("provider `{provider}` has no {what}")]
    Unsupported {
        provider: String,
        /// What was asked of it.
        what: &'static str,
    },
    /// A file that is not below a directory from which images may come.
    #[error("`{}` is below none of the directories that local images may come from", path.display())]
    NotAllowed { path: PathBuf },
    /// A file that cannot be read.
    #[error("failed to open `{}`", path.display())]
    File {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

impl ProviderError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Fetch(error) | Self::Asked { cause: error, .. } => error.kind(),
            Self::Scheme { .. } | Self::Unknown { .. } => ErrorKind::InvalidName,
            Self::NotFound { .. } | Self::Platform { .. } => ErrorKind::NotFound,
            Self::Absent { .. } | Self::Metadata { .. } | Self::Unsupported { .. } => ErrorKind::Server,
            Self::Signature { .. } => ErrorKind::Signature,
            Self::WeakHash { .. } => ErrorKind::Refused,
            Self::NotAllowed { .. } | Self::NotServed { .. } => ErrorKind::Denied,
            Self::File { cause, .. } if cause.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            Self::File { cause, .. } => of_io(cause),
            Self::Config { .. } | Self::Decoder(_) => ErrorKind::Internal,
        }
    }

    /// Whether the source could not be reached, as opposed to having answered.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Fetch(error) | Self::Asked { cause: error, .. } if error.is_unreachable())
    }

    /// What went wrong on the way to its source, if it was that.
    pub(crate) fn fetch(&self) -> Option<&FetchError> {
        match self {
            Self::Fetch(error) | Self::Asked { cause: error, .. } => Some(error),
            _ => None,
        }
    }

    /// The same, of the provider that was asked: what happened on the way does not say whose way it was.
    pub(super) fn asked(self, provider: &str) -> Self {
        match self {
            Self::Fetch(cause) => Self::Asked { provider: provider.to_owned(), cause },
            other => other,
        }
    }
}
