//! Places of downloads: so many run, the others wait for them.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many downloads there are at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Downloads {
    /// For a place.
    pub waiting: u64,
    /// From the first byte until the image is in the store.
    pub running: u64,
}

/// The places.
#[derive(Debug)]
pub(super) struct Slots {
    all: usize,
    free: Semaphore,
    waiting: AtomicU64,
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicU64);

impl Slots {
    pub(super) fn new(all: usize) -> Self {
        let all = all.clamp(1, Semaphore::MAX_PERMITS);
        Self { all, free: Semaphore::new(all), waiting: AtomicU64::new(0) }
    }

    /// Waits for a place, which is free again when it is dropped. The semaphore is never closed; without a place a download
    /// would only be less polite.
    pub(super) async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(slot) = self.free.try_acquire() {
            return Some(slot);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        self.free.acquire().await.ok()
    }

    pub(super) fn count(&self) -> Downloads {
        let running = self.all.saturating_sub(self.free.available_permits()) as u64;
        Downloads { waiting: self.waiting.load(Ordering::Relaxed), running }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn who_waits_is_counted_until_it_has_a_place_or_is_gone() {
        let slots = Slots::new(1);
        let count = || (slots.count().waiting, slots.count().running);
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(count(), (0, 0));
        let first = slots.free.try_acquire().expect("free");
        assert_eq!(count(), (0, 1));
        let (mut second, mut third) = (Box::pin(slots.enter()), Box::pin(slots.enter()));
        assert!(second.as_mut().poll(&mut context).is_pending() && third.as_mut().poll(&mut context).is_pending());
        assert_eq!(count(), (2, 1));
        drop(third);
        assert_eq!(count(), (1, 1));
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
        drop(second);
        assert_eq!(count(), (0, 0));
    }
}
