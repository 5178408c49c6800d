//! Keeps CNI GC and ADD apart: an attachment that is added during a GC of its network would be missing in the list of
//! those that plugins have to keep. ADD goes first: GC does not start while a pod is added, and sees when an ADD waits.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The networks of the node, which are either added to or collected.
#[derive(Debug, Default)]
pub(super) struct GcLock {
    lock: RwLock<()>,
    waiting: AtomicUsize,
}

/// Counts who waits, however the wait ends.
struct Waits<'a>(&'a AtomicUsize);

impl GcLock {
    /// Held while an ADD runs.
    pub(super) async fn add(&self) -> RwLockReadGuard<'_, ()> {
        if let Ok(added) = self.lock.try_read() {
            return added;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        self.lock.read().await
    }

    /// Held while networks are collected; `None` while any ADD runs.
    pub(super) fn collect(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.lock.try_write().ok()
    }

    /// Whether an ADD waits for the end of a collection.
    pub(super) fn is_add_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
