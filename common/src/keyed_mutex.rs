//! A mutex for each key: one change at a time for each object. It is there as long as somebody holds it or waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Mutexes by key. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct KeyedMutex {
    locks: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

/// Holds a key until it is dropped.
#[derive(Debug)]
pub struct KeyGuard {
    mutex: KeyedMutex,
    name: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyedMutex {
    /// Waits until nobody else holds `name`. Whoever holds it works under deadlines of its own.
    pub async fn lock(&self, name: impl Into<String>) -> KeyGuard {
        let name = name.into();
        let lock = self.locks().entry(name.clone()).or_default().clone();
        let guard = lock.lock_owned().await;
        KeyGuard { mutex: self.clone(), name, guard: Some(guard) }
    }

    /// Whether somebody waits for `name` behind its holder.
    #[must_use]
    pub fn is_contended(&self, name: &str) -> bool {
        // One is the map's, one the holder's.
        self.locks().get(name).is_some_and(|lock| Arc::strong_count(lock) > 2)
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let mut locks = self.mutex.locks();
        self.guard = None;
        // Waiters hold clones of the lock: only the last one leaves no one behind.
        if locks.get(&self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_stays() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock("a").await;
        let other = mutex.lock("b").await;
        let second = tokio::spawn({
            let mutex = mutex.clone();
            async move { drop(mutex.lock("a").await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.expect("second passes");
        drop(other);
        assert!(mutex.locks().is_empty());
    }
}
