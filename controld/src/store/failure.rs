//! What a failed database means to a service.

use std::error::Error as StdError;
use std::sync::Arc;

use vmspec::error::{Error, Kind};

use super::StoreError;

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
