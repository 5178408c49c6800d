//! Single flight: all who pull the same name at the same time wait for one download.
//!
//! Each waiter holds the flight; when the last one leaves before the end, the flight's task is aborted. What it had on
//! its way cleans up after itself. A failure goes to all who wait and is not remembered.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::PullError;
use crate::name::ImageRef;
use crate::shelf::Image;

/// How far a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that will come, if the server said.
    pub total: Option<u64>,
}

/// What a flight brings.
pub(crate) type Outcome = Result<Image, Arc<PullError>>;

/// All flights of a store, by name.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<BTreeMap<ImageRef, Weak<Flight>>>);

#[derive(Debug)]
pub(crate) struct Flight {
    image: ImageRef,
    flights: Weak<Flights>,
    outcome: watch::Receiver<Option<Outcome>>,
    progress: watch::Receiver<Progress>,
    task: AbortHandle,
}

impl Flights {
    /// The flight for a name: the one that is under way, or a new one.
    pub(crate) fn join<F>(
        self: &Arc<Self>,
        image: &ImageRef,
        work: impl FnOnce(watch::Sender<Progress>) -> F,
    ) -> Arc<Flight>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        // Dropped behind the lock, which its drop takes.
        let _finished;
        let mut live = self.lock();
        if let Some(flight) = live.get(image).and_then(Weak::upgrade) {
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
        let flight = Arc::new(Flight { image: image.clone(), flights, outcome, progress, task: task.abort_handle() });
        live.insert(image.clone(), Arc::downgrade(&flight));
        flight
    }

    /// The progress of a flight that is under way.
    pub(crate) fn progress(&self, image: &ImageRef) -> Option<watch::Receiver<Progress>> {
        // As above: it may be the last to hold it.
        let flight = self.lock().get(image).and_then(Weak::upgrade)?;
        let under_way = flight.outcome.borrow().is_none();
        under_way.then(|| flight.progress.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ImageRef, Weak<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Waits for the end. `None` if the task ended without a word.
    pub(crate) async fn outcome(&self) -> Option<Outcome> {
        let mut outcome = self.outcome.clone();
        outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(flights) = self.flights.upgrade() {
            let mut live = flights.lock();
            // A newer flight may have taken the place.
            if live.get(&self.image).is_some_and(|flight| flight.strong_count() == 0) {
                live.remove(&self.image);
            }
        }
    }
}
