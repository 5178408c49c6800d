//! The place of a task's work in a trace. It is not the span of the log ([`tracing::Span`]): tasks that outlive a call have that one,
//! too, and are no part of what the call took.

use std::future::Future;

use common::Chain;
use vmspec::error::Result;

use super::span::{Place, Span};

tokio::task_local! {
    static HERE: Place;
}

/// Where this task's work belongs, if it does.
pub(crate) fn here() -> Option<Place> {
    HERE.try_with(Clone::clone).ok()
}

/// Does work that belongs there.
pub(crate) async fn within<T>(place: Option<Place>, work: impl Future<Output = T>) -> T {
    match place {
        Some(place) => HERE.scope(place, work).await,
        None => work.await,
    }
}

/// The same work, for a task of its own that the caller waits for.
pub(crate) fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    within(here(), work)
}

/// What the work here is about, by OpenTelemetry's or containerd's name of it.
pub(crate) fn note(key: &str, value: impl ToString) {
    if let Some(place) = here() {
        place.note(key, value.to_string());
    }
}

/// Does `work`, by which `what` is asked of another program, `peer`.
pub(crate) async fn step<T>(peer: &str, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(place) = here() else { return work.await };
    let span = Span::of_step(&place, peer, what);
    let outcome = work.await;
    span.ended(outcome.as_ref().err().map(|error| Chain(error).to_string()));
    outcome
}
