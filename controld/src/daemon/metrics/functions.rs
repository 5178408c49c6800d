//! Physical functions of SR-IOV cards (PFs), as tapmanager told of them last.
//!
//! A scrape waits for nobody. So tapmanager is asked from time to time while metrics are served, and while it does not answer
//! there are no figures of PFs. One of a release that knows no such question has none either.

use std::sync::{Arc, Mutex, PoisonError};

use common::Chain;
use proto::tap::PfSummary;

use crate::tap::Tap;

/// What is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Functions(Arc<Mutex<Vec<PfSummary>>>);

impl Functions {
    /// Asks for ever.
    pub(super) async fn keep(self, tap: Tap) {
        let mut turns = super::turns();
        loop {
            turns.tick().await;
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
