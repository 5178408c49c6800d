//! What the connection's task and its streams share: the state under a lock that is never held over a wait, and the two
//! signals of the task.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Closed;
use super::state::State;

pub(super) struct Shared {
    state: Mutex<State>,
    /// There may be something to write.
    to_write: Notify,
    /// A stream may have been read from.
    room: Notify,
    closed: CancellationToken,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            to_write: Notify::new(),
            room: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    /// For reading, and for changes that the connection's task need not know of.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and lets the connection's task look at it.
    pub(super) fn act<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.to_write.notify_one();
        self.room.notify_one();
        result
    }

    /// Ends all streams. The first reason stands.
    pub(super) fn close(&self, why: Closed) {
        self.act(|state| state.close(why));
        self.closed.cancel();
    }

    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    pub(super) async fn to_write(&self) {
        self.to_write.notified().await;
    }

    pub(super) async fn room(&self) {
        self.room.notified().await;
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("closed", &self.closed.is_cancelled()).finish_non_exhaustive()
    }
}
