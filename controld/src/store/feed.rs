//! Tells those who listen each change of what the records show, in the order in which it is shown.
//!
//! A listener that is too slow loses the oldest changes and is told so by its receiver: nothing that is written waits for it.

use std::sync::Arc;

use common::now_nanos;
use tokio::sync::broadcast;

use crate::model::{Container, Sandbox};

/// Changes that a slow listener may be behind: a hundred pods made at once, and some.
const BEHIND: usize = 1024;

/// A change of what the records show.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Nanoseconds since the epoch.
    pub at: i64,
    pub record: Record,
}

/// A record before a change, if it was there, and after it, if it still is.
#[derive(Debug, Clone)]
pub enum Record {
    Sandbox { before: Option<Arc<Sandbox>>, now: Option<Arc<Sandbox>> },
    Container { before: Option<Arc<Container>>, now: Option<Arc<Container>> },
}

/// Where listeners come from.
#[derive(Debug)]
pub(super) struct Feed {
    /// `None` at shutdown.
    sender: Option<broadcast::Sender<Shown>>,
}

impl Feed {
    /// Fails if nobody listens, and that is fine.
    pub(super) fn tell(&self, record: Record) {
        let _ = self.sender.as_ref().map(|sender| sender.send(Shown { at: now_nanos(), record }));
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Shown> {
        match &self.sender {
            Some(sender) => sender.subscribe(),
            // One that has ended.
            None => broadcast::channel(1).1,
        }
    }

    pub(super) fn end(&mut self) {
        self.sender = None;
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self { sender: Some(broadcast::channel(BEHIND).0) }
    }
}
