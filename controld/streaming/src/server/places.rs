//! Places for connections that have not become sessions. They are few, and any local user can connect: where all are taken, the
//! connection that came first makes room for the one that comes. A client sends its request at once, so it is not the first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is logged that connections make room.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The places of a server.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// By age.
    waiting: BTreeMap<u64, CancellationToken>,
    logged: Option<Instant>,
    /// Since then.
    closed: u64,
}

/// A connection's place, until it becomes a session or ends.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    closing: CancellationToken,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// A place for a new connection.
    pub(super) fn take(self: &Arc<Self>, now: Instant) -> Place {
        let mut taken = self.taken();
        while taken.waiting.len() >= self.most
            && let Some((_, first)) = taken.waiting.pop_first()
        {
            first.cancel();
            taken.closed += 1;
        }
        if taken.closed > 0 && taken.logged.is_none_or(|at| now.duration_since(at) >= LOG_EVERY) {
            tracing::warn!(
                most = self.most,
                closed = taken.closed,
                "too many streaming connections without a request; those that came first are closed"
            );
            taken.logged = Some(now);
            taken.closed = 0;
        }
        let (id, closing) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.waiting.insert(id, closing.clone());
        Place { places: self.clone(), id, closing }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Ends when the connection has to make room.
    pub(super) async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// The connection becomes a session, which has to make room for none. False if it has to already.
    pub(super) fn leave(&self) -> bool {
        self.places.taken().waiting.remove(&self.id).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}
