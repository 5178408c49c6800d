//! Limits the connections that are served at once, in all and for each process. Pure but for a lock, which is never
//! held while waiting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limits, and the connections of each process.
#[derive(Debug)]
pub(super) struct PeerLimit {
    all: usize,
    of_a_process: usize,
    /// Never zero.
    taken: Mutex<BTreeMap<Option<i32>, usize>>,
}

/// One connection, counted until it is dropped.
#[derive(Debug)]
pub(super) struct PeerSlot {
    places: Arc<PeerLimit>,
    pid: Option<i32>,
}

impl PeerLimit {
    /// So many places, and so many of them for one process.
    pub(super) const fn new(all: usize, of_a_process: usize) -> Self {
        Self { all, of_a_process, taken: Mutex::new(BTreeMap::new()) }
    }

    /// A place for the process `pid`, if there is one. Processes that cannot be seen count as one.
    pub(super) fn take(this: &Arc<Self>, pid: Option<i32>) -> Option<PeerSlot> {
        let mut taken = this.lock();
        let of_it = taken.get(&pid).copied().unwrap_or_default();
        if of_it >= this.of_a_process || taken.values().sum::<usize>() >= this.all {
            return None;
        }
        taken.insert(pid, of_it + 1);
        Some(PeerSlot { places: Arc::clone(this), pid })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<i32>, usize>> {
        // The map is whole between two statements, so a panic elsewhere does not spoil it.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.pid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_cannot_take_the_places_of_others() {
        let places = Arc::new(PeerLimit::new(4, 2));
        let take = |pid| PeerLimit::take(&places, Some(pid));
        let first = take(1).expect("a place");
        let second = take(1).expect("a place");
        assert!(take(1).is_none(), "a third of one process");
        let others = [take(2).expect("a place"), take(3).expect("a place")];
        assert!(take(4).is_none(), "a fifth of all");
        drop(others);
        drop(first);
        let third = take(1).expect("free again");
        assert!(take(1).is_none(), "a third of one process");
        drop((second, third));
        assert!(places.lock().is_empty());
    }
}
