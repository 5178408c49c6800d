//! Bounds the connections to one host at a time, over all downloads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sources::provider::Source;

/// Most connections to one host.
const MAX: usize = 8;

/// The hosts that somebody is connected to.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<BTreeMap<String, Arc<Semaphore>>>);

impl Hosts {
    /// Waits until there may be one more connection to where the bytes are. For as long as what comes back is held.
    pub(super) async fn enter(&self, source: &Source) -> Option<OwnedSemaphorePermit> {
        // Never closed; without leave the download would only be less polite.
        self.of(source)?.acquire_owned().await.ok()
    }

    /// The same if it need not be waited for.
    pub(super) fn try_enter(&self, source: &Source) -> Option<OwnedSemaphorePermit> {
        self.of(source)?.try_acquire_owned().ok()
    }

    fn of(&self, source: &Source) -> Option<Arc<Semaphore>> {
        let Source::Http(request) = source else { return None };
        let host = request.url().authority().to_owned();
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, connections| Arc::strong_count(connections) > 1);
        Some(hosts.entry(host).or_insert_with(|| Arc::new(Semaphore::new(MAX))).clone())
    }
}
