//! What can be asked of a pod's actor, and what it answers.

use std::sync::Arc;

use proto::tap::{Attach, CheckReport, CollectReport, PodNet};
use tokio::sync::oneshot;

use super::error::PodError;
use super::shortened;
use crate::cni::Leftover;

/// Most lines of a report, and most bytes of a line: two reports fit into a packet, and one beside the largest request.
pub(super) const MAX_LINES: usize = 128;
pub(super) const MAX_LINE: usize = 400;

/// What can be asked of a pod. The larger parts are boxed, because queues are made of these.
#[derive(Debug)]
pub(super) enum Command {
    Attach(Box<Attach>, oneshot::Sender<Result<Arc<PodNet>, PodError>>),
    Detach(oneshot::Sender<Result<(), PodError>>),
    Recover(oneshot::Sender<Result<Arc<PodNet>, PodError>>),
    Check(oneshot::Sender<Result<CheckReport, PodError>>),
    /// Look after the pod if it stands.
    LookAfter(oneshot::Sender<()>),
    /// Take away what is overdue, or belongs to no pod.
    Collect {
        leftovers: Vec<Leftover>,
        occasion: Occasion,
        reply: oneshot::Sender<Collected>,
    },
    /// Take away what is left of the pod without knowing all of it.
    Forget {
        leftovers: Vec<Leftover>,
        reply: oneshot::Sender<Result<Collected, PodError>>,
    },
}

/// What a collection did about one pod: lines for people.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) removed: Vec<String>,
    pub(super) kept: Vec<String>,
}

/// Why a collection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The start of the daemon, or it is time again.
    Routine,
    /// Somebody asked for it.
    Asked,
}

impl Command {
    /// Whether it is worth a thread of its own.
    pub(super) const fn is_operation(&self) -> bool {
        matches!(self, Self::Attach(..) | Self::Detach(..))
    }
}

impl Collected {
    pub(super) fn kept(line: String) -> Self {
        Self { removed: Vec::new(), kept: vec![line] }
    }

    pub(super) fn removed(line: String) -> Self {
        Self { removed: vec![line], kept: Vec::new() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.removed.extend(other.removed);
        self.kept.extend(other.kept);
    }

    pub(super) fn report(self) -> CollectReport {
        CollectReport { removed: bounded(self.removed), kept: bounded(self.kept) }
    }
}

/// At most [`MAX_LINES`] lines, each of at most [`MAX_LINE`] bytes of JSON.
pub(crate) fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    for line in &mut lines {
        *line = shortened(line, MAX_LINE);
    }
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}
