//! The deadline that a call's client has put on it, `grpc-timeout`.
//!
//! A default that gives a call up for it resets the call's stream (grpc-go, `findings/grpc-go-deadline-reset.sh`), and a connection that is
//! lost resets all. They are told apart by the clock, as the client of a default alone tells them.

use std::time::Instant;

use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use crate::api::edge::timeout_of;

/// That of one call, if it has one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientDeadline(Option<Instant>);

impl ClientDeadline {
    /// Of a call that has just come, with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(timeout_of(headers).and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// What the client of a call is told that breaks off now: `broken`, or that its deadline has passed.
    pub(super) fn told(self, broken: Status) -> Status {
        match self.code() {
            Code::DeadlineExceeded => {
                Status::deadline_exceeded(format!("the call's own deadline has passed: {}", broken.message()))
            }
            _ => broken,
        }
    }

    /// As what a call counts that breaks off now.
    pub(super) fn code(self) -> Code {
        if self.0.is_some_and(|deadline| deadline <= Instant::now()) {
            Code::DeadlineExceeded
        } else {
            Code::Unavailable
        }
    }
}
