//! Physical functions of SR-IOV cards (PFs), as tapmanager told of them last.
//!
//! A scrape waits for nobody. So tapmanager is asked from time to time while metrics are served, and while it does not answer
//! there are no figures of PFs. One of a release that knows no such question has none either.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::Chain;
use proto::tap::PfSummary;
use tokio::time::{MissedTickBehavior, interval};

use crate::tap::Tap;

/// How often tapmanager is asked.
const EVERY: Duration = Duration::from_secs(15);

/// What is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Functions(Arc<Mutex<Vec<PfSummary>>>);

impl Functions {
    /// Asks for ever.
    pub(super) async fn keep(self, tap: Tap) {
        let mut times = interval(EVERY);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            self.ask(&tap).await;
        }
    }

    /// Asks once.
    pub(super) async fn ask(&self, tap: &Tap) {
        let pfs = tap.pfs().await.unwrap_or_else(|error| {
            tracing::debug!(error = %Chain(&error), "no figures of physical functions");
            Vec::new()
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pfs;
    }

    /// As of the last answer.
    pub(super) fn known(&self) -> Vec<PfSummary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
