//! Single flight: all callers that want the same thing at the same time wait for one task.
//!
//! Each waiter holds the flight. When the last one leaves before the end, the task is aborted; its destructors clean up
//! after it. A failure goes to all waiters and is not remembered.
//!
//! A pull uses two flights: one for what was asked for (name, handler, login), and inside it one for the download, as
//! several names may lead to the same bytes.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::Progress;

#[cfg(test)]
mod tests;

/// All flights of a kind.
#[derive(Debug)]
pub(crate) struct Flights<K: Ord, T>(Mutex<BTreeMap<K, Weak<Flight<K, T>>>>);

#[derive(Debug)]
pub(crate) struct Flight<K: Ord, T> {
    key: K,
    flights: Weak<Flights<K, T>>,
    outcome: watch::Receiver<Option<T>>,
    progress: watch::Receiver<Progress>,
    task: AbortHandle,
}

impl<K: Ord, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, T: Clone + Send + Sync + 'static> Flights<K, T> {
    /// The flight for `key`: the one that is under way, or a new one.
    pub(crate) fn join<F>(
        self: &Arc<Self>,
        key: &K,
        work: impl FnOnce(watch::Sender<Progress>) -> F,
    ) -> Arc<Flight<K, T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        // Dropped behind the lock, which its drop takes.
        let _finished;
        let mut live = self.lock();
        if let Some(flight) = live.get(key).and_then(Weak::upgrade) {
            if flight.outcome.borrow().is_none() {
                return flight;
            }
            _finished = flight;
        }
        let (outcome_tx, outcome) = watch::channel(None);
        let (progress_tx, progress) = watch::channel(Progress::default());
        let work = work(progress_tx);
        let task = tokio::spawn(async move {
            let outcome = work.await;
            outcome_tx.send_replace(Some(outcome));
        });
        let flights = Arc::downgrade(self);
        let flight = Arc::new(Flight { key: key.clone(), flights, outcome, progress, task: task.abort_handle() });
        live.insert(key.clone(), Arc::downgrade(&flight));
        flight
    }

    /// The progress of a flight whose key is one of those: of one that is under way, or else of one that has ended and that
    /// somebody has not left yet.
    pub(crate) fn progress(&self, is_it: impl Fn(&K) -> bool) -> Option<watch::Receiver<Progress>> {
        // As above: they may be the last to hold it.
        let live: Vec<_> =
            self.lock().iter().filter(|(key, _)| is_it(key)).filter_map(|(_, flight)| flight.upgrade()).collect();
        let under_way = live.iter().find(|flight| flight.outcome.borrow().is_none());
        under_way.or(live.first()).map(|flight| flight.progress.clone())
    }
}

impl<K: Ord, T> Flights<K, T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Weak<Flight<K, T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord, T: Clone> Flight<K, T> {
    /// Waits for the end. `None` if the task ended without a word.
    pub(crate) async fn outcome(&self) -> Option<T> {
        let mut outcome = self.outcome.clone();
        outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }

    /// The same, telling the progress to somebody else's watchers on the way.
    pub(super) async fn outcome_with(&self, told: &watch::Sender<Progress>) -> Option<T> {
        let mut progress = self.progress.clone();
        let tell = async {
            loop {
                told.send_replace(*progress.borrow_and_update());
                if progress.changed().await.is_err() {
                    // The work is done, and its outcome about to be there.
                    std::future::pending::<()>().await;
                }
            }
        };
        let outcome = tokio::select! {
            outcome = self.outcome() => outcome,
            () = tell => None,
        };
        // The end may be heard before what was told last.
        told.send_replace(*self.progress.borrow());
        outcome
    }
}

impl<K: Ord, T> Drop for Flight<K, T> {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(flights) = self.flights.upgrade() {
            let mut live = flights.lock();
            // A newer flight may have taken the place.
            if live.get(&self.key).is_some_and(|flight| flight.strong_count() == 0) {
                live.remove(&self.key);
            }
        }
    }
}
