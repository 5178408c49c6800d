//! What a service answers when it could not do what was asked.
//!
//! Parts below the services have typed errors of their own. At the service they meet one question only: which answer
//! CRI wants for it. So they become an [`Error`]: a [`Kind`], what was being done, and the cause beneath.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::store::StoreError;

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

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Unread(_) => Kind::DataLoss,
            StoreError::Closed => Kind::Unavailable,
            error if is_disk_full(error) => Kind::Exhausted,
            _ => Kind::Internal,
        };
        Self::because(kind, "database failed; see the cause, then try again", error)
    }
}

/// Whether a full disk or quota is at the bottom of an error.
#[must_use]
pub fn is_disk_full(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return matches!(io.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
        }
        // redb hands the system's error on inside its own, without naming it a source.
        let shared = error.downcast_ref::<Arc<redb::Error>>().map(AsRef::as_ref);
        if let Some(redb::Error::Io(io)) = shared.or_else(|| error.downcast_ref()) {
            return matches!(io.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_found_under_the_database() {
        let io = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let error = StoreError::Write(Arc::new(redb::Error::Io(io)));
        assert!(is_disk_full(&error));
        assert_eq!(Error::from(error).kind(), Kind::Exhausted);
        assert!(!is_disk_full(&StoreError::Closed));
    }
}
