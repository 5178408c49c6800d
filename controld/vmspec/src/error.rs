//! What a service answers when it could not do what was asked.
//!
//! Parts below the services have typed errors of their own. At the service they meet one question only: which answer
//! CRI wants for it. So they become an [`Error`]: a [`Kind`], what was being done, and the cause beneath.

use std::error::Error as StdError;
use std::fmt;

/// Classes of failure, each with one CRI status code (`cri::status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong and will stay so.
    Invalid,
    /// No such object.
    NotFound,
    /// Another object has that identity.
    Exists,
    /// The object's state does not allow it.
    State,
    /// Not allowed here.
    Denied,
    /// Something we need does not answer; trying again may help.
    Unavailable,
    /// A named wait ran out.
    Deadline,
    /// Disk, memory or descriptors ran out.
    Exhausted,
    /// What was kept is not as it was left.
    DataLoss,
    /// Not built.
    Unimplemented,
    /// Known to kubelet by the first word of the text, which it looks for where there is no other code.
    Named,
    /// Anything else.
    Internal,
}

/// A failed call.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    action: String,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

/// What is not done, where a volume is an image that the guest cannot have at `path`. kubelet counts failures that begin with this word
/// (cri-api, `ErrImageVolumeMountFailed`).
#[must_use]
pub fn image_volume(path: &str) -> String {
    format!("ImageVolumeMountFailed: image volume at `{path}`")
}

/// Shorthand of this crate's services.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// === impl Error ===

impl Error {
    /// A failure that nothing beneath caused.
    #[must_use]
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, action: what.into(), cause: None }
    }

    /// A failure with its cause.
    #[must_use]
    pub fn because(kind: Kind, what: impl Into<String>, cause: impl StdError + Send + Sync + 'static) -> Self {
        Self { kind, action: what.into(), cause: Some(Box::new(cause)) }
    }

    /// Several as one: the class of the first, and the texts of all.
    #[must_use]
    pub fn all(errors: &[Self]) -> Self {
        let kind = errors.first().map_or(Kind::Internal, Self::kind);
        let texts: Vec<String> = errors.iter().map(|error| common::Chain(error).to_string()).collect();
        Self::new(kind, texts.join("; "))
    }

    /// Its class.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.action)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
