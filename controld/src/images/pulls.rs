//! What pulls there were, by handler, since the daemon began.
//!
//! [`super::Images::pull`] has each pull counted; the figures are read by [`crate::daemon::metrics`]. Only handlers that there are
//! have figures, so what clients send makes no new ones: a pull for another handler is refused by the store, and counts
//! nowhere. What is begun is ended exactly once: a pull that is dropped was abandoned.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use imagestore::{Image, Progress};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// What pulls there were for a handler. Several who ask for one image at the same time are as many pulls and one download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullCounts {
    /// Begun.
    pub started: u64,
    /// Ended with another image than the name had before.
    pub changed: u64,
    /// Ended with the image that the name had before.
    pub unchanged: u64,
    pub failed: u64,
    /// Given up by who asked.
    pub abandoned: u64,
    /// Bytes that were downloaded, as their sources sent them.
    pub bytes: u64,
}

/// The counters.
#[derive(Debug)]
pub(super) struct Pulls {
    /// By the handlers' own names, the default one's first.
    handlers: Vec<(String, Counters)>,
    downloads: Mutex<Vec<Weak<Download>>>,
}

#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    changed: AtomicU64,
    unchanged: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
    bytes: AtomicU64,
}

/// A pull under way.
struct Running<'a> {
    counters: &'a Counters,
    download: Option<Arc<Download>>,
    ended: bool,
}

/// A download under way, which all share who wait for it.
#[derive(Debug)]
struct Download {
    progress: watch::Receiver<Progress>,
    seen: Mutex<u64>,
}

// === impl Pulls ===

impl Pulls {
    pub(super) fn new(handlers: &[String]) -> Self {
        let handlers = handlers.iter().map(|name| (name.clone(), Counters::default())).collect();
        Self { handlers, downloads: Mutex::default() }
    }

    pub(super) fn counts(&self) -> Vec<(String, PullCounts)> {
        self.handlers.iter().map(|(name, counters)| (name.clone(), counters.read())).collect()
    }

    /// Runs a pull to its end and counts it. `known` is what the name means so far, and `watch` gives the progress of
    /// the download that the pull waits for, once it does.
    pub(super) async fn count<E>(
        &self,
        handler: &str,
        known: Option<&Image>,
        pull: impl Future<Output = Result<Image, E>>,
        watch: impl FnOnce() -> Option<watch::Receiver<Progress>>,
    ) -> Result<Image, E> {
        let Some(counters) = self.of(handler) else { return pull.await };
        let mut running = Running::begin(counters);
        let mut pull = pin!(pull);
        // The first poll begins the download, or joins one.
        let outcome = match std::future::poll_fn(|context| Poll::Ready(pull.as_mut().poll(context))).await {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                running.download = watch().map(|progress| self.download(progress));
                tokio::select! {
                    outcome = &mut pull => outcome,
                    () = running.follow() => pull.await,
                }
            }
        };
        running.end(match &outcome {
            Ok(image) if known.is_some_and(|known| known.id == image.id) => &counters.unchanged,
            Ok(_) => &counters.changed,
            Err(_) => &counters.failed,
        });
        outcome
    }

    fn of(&self, handler: &str) -> Option<&Counters> {
        let found = self.handlers.iter().find(|(name, _)| handler.is_empty() || name == handler);
        found.map(|(_, counters)| counters)
    }

    /// The one download that tells this progress.
    fn download(&self, progress: watch::Receiver<Progress>) -> Arc<Download> {
        let mut downloads = self.downloads.lock().unwrap_or_else(PoisonError::into_inner);
        downloads.retain(|download| download.strong_count() > 0);
        let found = downloads.iter().filter_map(Weak::upgrade).find(|known| known.progress.same_channel(&progress));
        found.unwrap_or_else(|| {
            let download = Arc::new(Download { progress, seen: Mutex::default() });
            downloads.push(Arc::downgrade(&download));
            download
        })
    }
}

// === impl Counters ===

impl Counters {
    fn read(&self) -> PullCounts {
        PullCounts {
            started: self.started.load(Relaxed),
            changed: self.changed.load(Relaxed),
            unchanged: self.unchanged.load(Relaxed),
            failed: self.failed.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

// === impl Running ===

impl<'a> Running<'a> {
    fn begin(counters: &'a Counters) -> Self {
        counters.started.fetch_add(1, Relaxed);
        Self { counters, download: None, ended: false }
    }

    /// Counts bytes as they come, until no more do.
    async fn follow(&self) {
        let Some(download) = &self.download else { return };
        let mut progress = download.progress.clone();
        while progress.changed().await.is_ok() {
            self.look();
        }
    }

    fn look(&self) {
        if let Some(download) = &self.download {
            self.counters.bytes.fetch_add(download.news(), Relaxed);
        }
    }

    fn end(mut self, counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
        self.ended = true;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.look();
        if !self.ended {
            self.counters.abandoned.fetch_add(1, Relaxed);
        }
    }
}

// === impl Download ===

impl Download {
    /// Bytes that came since anybody looked last.
    fn news(&self) -> u64 {
        // Read behind the lock, so that nobody comes with less than was seen before.
        let mut seen: MutexGuard<'_, u64> = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.progress.borrow().came();
        // With fewer than before it is another artifact: that of a layer, or one that is fetched anew.
        let news = bytes.checked_sub(*seen).unwrap_or(bytes);
        *seen = bytes;
        news
    }
}
