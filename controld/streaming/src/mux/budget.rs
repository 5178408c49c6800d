//! What many connections together keep for their readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each connection may keep whatever others do: enough for all that is typed, and to copy at full speed to who reads.
const OWN: usize = 64 << 10;

/// Bytes that connections may keep together, beside some kilobytes of each.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    kept: AtomicUsize,
}

/// What one connection keeps. Dropping it gives that back.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: usize,
    budget: Budget,
}

impl Budget {
    /// One of so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, kept: AtomicUsize::new(0) }))
    }

    fn is_spent(&self) -> bool {
        self.0.kept.load(Ordering::Relaxed) > self.0.most
    }
}

impl Kept {
    pub(super) fn new(budget: Budget) -> Self {
        Self { bytes: 0, budget }
    }

    /// Whether a connection that may keep `most` bytes has too many.
    pub(super) fn is_beyond(&self, most: usize) -> bool {
        self.bytes > most || (self.bytes > OWN && self.budget.is_spent())
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.budget.0.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.budget.0.kept.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_keeps_another_has_not_but_for_its_own() {
        let budget = Budget::new(3 * OWN);
        let (mut one, mut other) = (Kept::new(budget.clone()), Kept::new(budget));
        one.add(3 * OWN);
        assert!(!one.is_beyond(usize::MAX) && one.is_beyond(2 * OWN), "its own limit");
        other.add(OWN);
        assert!(one.is_beyond(usize::MAX) && !other.is_beyond(usize::MAX));
        other.add(1);
        assert!(other.is_beyond(usize::MAX));
        one.give_back(2 * OWN);
        assert!(!other.is_beyond(usize::MAX));
        other.add(2 * OWN);
        assert!(other.is_beyond(usize::MAX));
        drop(one);
        assert!(!other.is_beyond(usize::MAX));
    }
}
