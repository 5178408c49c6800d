//! What many connections together keep for their readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Bytes that each connection may keep whatever others do: enough for all that is typed, and to copy at full speed to who reads.
const OWN: usize = 64 << 10;

/// Bytes that connections may keep together, beside some kilobytes of each.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    kept: AtomicUsize,
    /// What this is a part of.
    whole: Option<Budget>,
    /// Told when there is room again in the whole or in a part of it.
    freed: Arc<Notify>,
    /// Connections that are held to it.
    users: AtomicUsize,
    /// Told when there is none any more.
    unused: Notify,
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
        Self::of(most, None, Arc::default())
    }

    /// At most so many bytes of this one: what is kept of the part is kept of the whole, too.
    #[must_use]
    pub fn part(&self, most: usize) -> Self {
        Self::of(most, Some(self.clone()), self.0.freed.clone())
    }

    fn of(most: usize, whole: Option<Self>, freed: Arc<Notify>) -> Self {
        let (kept, users, unused) = (AtomicUsize::new(0), AtomicUsize::new(0), Notify::new());
        Self(Arc::new(Shared { most, kept, whole, freed, users, unused }))
    }

    /// Waits until the last connection that is held to it has gone, with all that it kept. That nobody waited for yet is told at once.
    pub async fn unused(&self) {
        self.0.unused.notified().await;
    }

    /// It and what it is a part of.
    fn all(&self) -> impl Iterator<Item = &Shared> {
        std::iter::successors(Some(&*self.0), |shared| shared.whole.as_ref().map(|whole| &*whole.0))
    }

    fn is_spent(&self) -> bool {
        self.all().any(|shared| shared.kept.load(Ordering::Relaxed) > shared.most)
    }
}

impl Kept {
    pub(super) fn new(budget: Budget) -> Self {
        for shared in budget.all() {
            shared.users.fetch_add(1, Ordering::Relaxed);
        }
        Self { bytes: 0, budget }
    }

    /// Whether a connection that may keep `most` bytes has too many.
    pub(super) fn is_beyond(&self, most: usize) -> bool {
        self.bytes > most || (self.bytes > OWN && self.budget.is_spent())
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        for shared in self.budget.all() {
            shared.kept.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        for shared in self.budget.all() {
            let before = shared.kept.fetch_sub(bytes, Ordering::Relaxed);
            if before > shared.most && before - bytes <= shared.most {
                shared.freed.notify_waiters();
            }
        }
    }

    /// Told when others have given back so much that there is room again.
    pub(super) fn freed(&self) -> Arc<Notify> {
        self.budget.0.freed.clone()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.give_back(self.bytes);
        for shared in self.budget.all() {
            if shared.users.fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.unused.notify_one();
            }
        }
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
        other.add(2 * OWN - 1);
        assert!(other.is_beyond(usize::MAX));
        drop(one);
        assert!(!other.is_beyond(usize::MAX));
    }

    #[tokio::test]
    async fn the_end_of_the_last_connection_is_told_and_no_other() {
        let whole = Budget::new(4 * OWN);
        let told = async || tokio::time::timeout(std::time::Duration::ZERO, whole.unused()).await.is_ok();
        assert!(!told().await, "there was none");
        let (one, other) = (Kept::new(whole.part(OWN)), Kept::new(whole.part(OWN)));
        drop(one);
        assert!(!told().await, "there is another");
        drop(other);
        assert!(told().await);
        assert!(!told().await, "once");
    }

    #[test]
    fn who_fills_a_part_leaves_the_rest_of_the_whole_to_others() {
        let whole = Budget::new(4 * OWN);
        let (first, second) = (whole.part(2 * OWN), whole.part(2 * OWN));
        let (mut one, mut same, mut other) = (Kept::new(first.clone()), Kept::new(first), Kept::new(second));
        one.add(2 * OWN);
        same.add(OWN + 1);
        assert!(one.is_beyond(usize::MAX) && same.is_beyond(usize::MAX), "the part is spent");
        other.add(OWN - 1);
        assert!(!other.is_beyond(usize::MAX), "the whole is not");
        other.add(1);
        assert!(!other.is_beyond(usize::MAX), "its own is its own");
        other.add(1);
        assert!(other.is_beyond(usize::MAX), "the whole is");
        drop(one);
        assert!(!same.is_beyond(usize::MAX) && !other.is_beyond(usize::MAX));
    }
}
