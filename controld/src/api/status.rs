//! What gRPC says of each failure (the codes that kubelet and crictl expect).

use std::future::Future;

use common::Chain;
use tonic::{Code, Status};
use tracing::Instrument as _;
use vmspec::error::{Error, Kind, Result};

use crate::trace;

/// The status of a failure: its code, and the whole chain of causes as its text.
#[must_use]
pub fn of(error: &Error) -> Status {
    Status::new(code(error.kind()), Chain(error).to_string())
}

/// Runs work that changes state to its end, whether or not the caller waits for it.
pub(super) async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(trace::carried(work).in_current_span()).await;
    let done = done.unwrap_or_else(|error| Err(Error::because(Kind::Internal, "a call ended in a bug", error)));
    done.map_err(|error| of(&error))
}

fn code(kind: Kind) -> Code {
    match kind {
        Kind::Invalid => Code::InvalidArgument,
        Kind::NotFound => Code::NotFound,
        Kind::Exists => Code::AlreadyExists,
        Kind::State => Code::FailedPrecondition,
        Kind::Denied => Code::PermissionDenied,
        Kind::Unavailable => Code::Unavailable,
        Kind::Deadline => Code::DeadlineExceeded,
        Kind::Exhausted => Code::ResourceExhausted,
        Kind::DataLoss => Code::DataLoss,
        Kind::Unimplemented => Code::Unimplemented,
        // kubelet takes only the words of k8s.io/cri-api/pkg/errors, and only at the beginning of an unknown error.
        Kind::Named => Code::Unknown,
        Kind::Internal => Code::Internal,
    }
}
