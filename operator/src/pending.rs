//! What sets have made and deleted, until the watch tells of it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nothing is waited for longer: a watch that is so late has been made anew.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// Of all sets.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<HashMap<String, Notes>>);

/// Of one set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    /// Names of instances that were made, and when.
    pub(crate) made: HashMap<String, Instant>,
    /// Uids of those that were deleted.
    pub(crate) deleted: HashMap<String, Instant>,
}

impl Pending {
    /// What is pending of a set.
    pub(crate) fn of(&self, set: &str) -> Notes {
        self.change(set, |notes| {
            notes.made.retain(|_, since| since.elapsed() < LONGEST);
            notes.deleted.retain(|_, since| since.elapsed() < LONGEST);
            notes.clone()
        })
    }

    pub(crate) fn made(&self, set: &str, name: &str) {
        self.change(set, |notes| notes.made.insert(name.to_owned(), Instant::now()));
    }

    pub(crate) fn not_made(&self, set: &str, name: &str) {
        self.change(set, |notes| notes.made.remove(name));
    }

    pub(crate) fn deleted(&self, set: &str, uid: &str) {
        self.change(set, |notes| notes.deleted.insert(uid.to_owned(), Instant::now()));
    }

    pub(crate) fn not_deleted(&self, set: &str, uid: &str) {
        self.change(set, |notes| notes.deleted.remove(uid));
    }

    /// Whether anything is pending of a set.
    pub(crate) fn is_any(&self, set: &str) -> bool {
        let notes = self.of(set);
        !notes.made.is_empty() || !notes.deleted.is_empty()
    }

    /// The watch has told of an instance.
    pub(crate) fn seen(&self, set: &str, name: &str, uid: &str, is_going: bool) {
        self.change(set, |notes| {
            notes.made.remove(name);
            if is_going {
                notes.deleted.remove(uid);
            }
        });
    }

    fn change<T>(&self, set: &str, change: impl FnOnce(&mut Notes) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = all.entry(set.to_owned()).or_default();
        let changed = change(notes);
        if notes.made.is_empty() && notes.deleted.is_empty() {
            all.remove(set);
        }
        changed
    }
}
