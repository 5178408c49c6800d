//! Why the store refused or failed.

use common::Reason;
use vmimage::digest::{ImageId, MIN_PREFIX, is_hex};
use vmimage::error::{ErrorKind, printable};

use crate::sources::provider::ProviderError;
use crate::sources::translate::DirError;
use crate::storage::content::{DiskError, MAX_HOLDER};
use crate::storage::fit::Unfit;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No image name.
    #[error("`{name}` is no image name")]
    Name {
        /// The caller's text.
        name: String,
        #[source]
        cause: Reason,
    },
    /// There is no such handler.
    #[error("unknown runtime handler `{handler}`; this node has {}", known.join(", "))]
    Handler {
        /// The caller's text.
        handler: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A name in the configuration that no handler can have.
    #[error("`{handler}` cannot be the name of a runtime handler: it must be a DNS label")]
    HandlerName {
        /// The name.
        handler: String,
    },
    /// A provider in a handler's configuration that is none.
    #[error("runtime handler `{handler}` names provider `{provider}` in `providers`; there are {}", known.join(", "))]
    HandlerProvider {
        handler: String,
        /// The provider's id.
        provider: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// No name of a holder.
    #[error("holder `{holder}` must be 1 to {MAX_HOLDER} letters, digits, `_`, `.` or `-`, and not begin with `.`")]
    Holder {
        /// The caller's text.
        holder: String,
    },
    /// The image is not here.
    #[error("image `{id}` is not in the store")]
    NotFound { id: ImageId },
    /// No image is meant by that.
    #[error("image `{name}` is not on this node; pull it first")]
    Absent {
        /// The caller's text.
        name: String,
    },
    /// No image is meant by that, and it is too short for the beginning of an id.
    #[error("image `{name}` is not on this node; of an id, write {MIN_PREFIX} characters or more")]
    Short {
        /// The caller's text.
        name: String,
    },
    /// The image is here, but for machines of another kind.
    #[error("image `{name}` is not here for runtime handler `{handler}`, only pulled for handler {}", pulled_for.join(", "))]
    OtherHandler {
        /// The caller's text.
        name: String,
        handler: String,
        /// Those that it was pulled for.
        pulled_for: Vec<String>,
    },
    /// The image is here, and its handler's settings do not allow it.
    #[error("image `{name}` is none for runtime handler `{handler}`; choose another, or pull it for this handler")]
    Unfit {
        /// The caller's text.
        name: String,
        handler: String,
        #[source]
        cause: Unfit,
    },
    /// A layer whose parent is not here.
    #[error("image `{id}` stands on `{missing}`, which is not in the store; pull it without `--no-recursive`")]
    Incomplete {
        /// The layer.
        id: ImageId,
        /// What is missing, as its child names it.
        missing: String,
    },
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The translation rules cannot be read at all.
    #[error("translation rules not readable")]
    Rules(#[from] DirError),
    /// What a provider has seen is still known.
    #[error("failed to remove what was seen of provider `{provider}`")]
    Forget {
        provider: String,
        #[source]
        cause: std::io::Error,
    },
    #[error("image store failed")]
    Disk(#[from] DiskError),
}

impl StoreError {
    /// No image is meant by a caller's text.
    #[must_use]
    pub fn absent(text: &str) -> Self {
        let (name, hex) = (printable(text), text.strip_prefix("sha256:").unwrap_or(text));
        if is_hex(hex) && hex.len() < MIN_PREFIX { Self::Short { name } } else { Self::Absent { name } }
    }

    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. }
            | Self::Handler { .. }
            | Self::HandlerName { .. }
            | Self::HandlerProvider { .. }
            | Self::Holder { .. } => ErrorKind::InvalidName,
            Self::NotFound { .. } | Self::Absent { .. } | Self::Short { .. } | Self::OtherHandler { .. } => {
                ErrorKind::NotFound
            }
            Self::Unfit { .. } => ErrorKind::Refused,
            Self::Incomplete { .. } => ErrorKind::Incomplete,
            Self::Provider(error) => error.kind(),
            Self::Disk(error) => error.kind(),
            Self::Forget { cause, .. } => vmimage::error::of_io(cause),
            Self::Rules(_) => ErrorKind::Internal,
        }
    }
}
