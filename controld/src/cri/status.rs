//! What gRPC says of each failure (the codes that kubelet and crictl expect).

use common::Chain;
use tonic::{Code, Status};

use crate::error::{Error, Kind};

/// The status of a failure: its code, and the whole chain of causes as its text.
#[must_use]
pub fn of(error: &Error) -> Status {
    Status::new(code(error.kind()), Chain(error).to_string())
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
