//! Our own side: the services behind the door, in this process.
//!
//! Each call but that for events has a task of its own, among all that we do for machines: the thread that calls come to has other sides' to pass on. What is
//! asked for a common answer has a deadline, too, so that neither a panic nor a libvirt that hangs is more than a part that is missing.

use std::time::Duration;

use bytes::Bytes;
use common::Chain;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service as _;
use tracing::Instrument as _;

use super::ask::{self, Question};
use crate::api::door::Door;
use crate::trace;

/// How long the other side's part of an answer waits for ours, which is from memory but for a few.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);

/// Our services. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Own {
    door: Door,
    /// Where their work is done.
    runtime: Handle,
    deadlines: Deadlines,
}

/// Of our part of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// Of most: [`DEADLINE`].
    pub(super) most: Duration,
    /// Of lists and Status, for which libvirt and tapmanager are asked.
    pub(super) lists: Duration,
}

impl Own {
    /// What is behind `door`, whose work is done by `runtime`.
    pub(super) fn new(door: Door, runtime: Handle, deadlines: Deadlines) -> Self {
        Self { door, runtime, deadlines }
    }

    /// For what is a stream.
    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    /// A call that is ours alone.
    pub(super) async fn call(&self, request: Request<Body>) -> Response<Body> {
        let mut door = self.door.clone();
        let called = trace::carried(async move { door.call(request).await }).in_current_span();
        match AbortOnDropHandle::new(self.runtime.spawn(called)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(never)) => match never {},
            Err(bug) => ended_in_bug("a call", &bug).into_http(),
        }
    }

    /// Our part of an answer, encoded.
    pub(super) async fn ask(&self, question: Question) -> Result<Bytes, Status> {
        self.ask_within(self.deadlines.most, question).await
    }

    /// [`Self::ask`] for a list or Status.
    pub(super) async fn ask_for_list(&self, question: Question) -> Result<Bytes, Status> {
        self.ask_within(self.deadlines.lists, question).await
    }

    async fn ask_within(&self, deadline: Duration, question: Question) -> Result<Bytes, Status> {
        let call = question.call();
        let asked = ask::one(self.door.clone(), question).in_current_span();
        match timeout(deadline, AbortOnDropHandle::new(self.runtime.spawn(asked))).await {
            Ok(Ok(answer)) => answer.map(tonic::Response::into_inner),
            Ok(Err(bug)) => Err(ended_in_bug(call, &bug)),
            Err(_elapsed) => {
                let text = format!("`{call}` of virtual machines was not answered within {} s", deadline.as_secs_f32());
                Err(Status::deadline_exceeded(text))
            }
        }
    }
}

/// What is said of a task that has panicked.
pub(super) fn ended_in_bug(what: &str, bug: &JoinError) -> Status {
    Status::internal(format!("{what} ended in a bug: {}", Chain(bug)))
}
