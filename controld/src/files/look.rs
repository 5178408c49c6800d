//! Runs blocking file work off the reactor, with a deadline, since a file server may hang.

use std::io;
use std::time::Duration;

use common::off_reactor;
use tokio::time::timeout;
use vmspec::error::{Error, Kind, Result};

use crate::store::is_disk_full;

/// How long a look at the pod's volumes may take: a file server may not answer.
const LOOK_DEADLINE: Duration = Duration::from_secs(10);

/// Looks at the pod's volumes on the node.
///
/// # Errors
/// That of the look, or that it does not come to an end.
pub(crate) async fn look<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    timeout(LOOK_DEADLINE, off_reactor(work)).await.map_err(|_elapsed| {
        let seconds = LOOK_DEADLINE.as_secs();
        let what = format!("the pod's volumes did not answer within {seconds} s; a file system of the node hangs");
        Error::new(Kind::Deadline, what)
    })?
}

/// Of a file of the node's that could not be made or removed.
pub(crate) fn io_failed(what: &'static str, cause: io::Error) -> Error {
    let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
    Error::because(kind, what, cause)
}
