//! One change at a time per object: a named lock that is there while somebody wants it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Locks by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    locks: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

/// Holds a name until dropped.
#[derive(Debug)]
pub struct Pass {
    gates: Gates,
    name: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Gates {
    /// Waits until nobody else holds `name`. Whoever holds it works under deadlines of its own.
    pub async fn enter(&self, name: impl Into<String>) -> Pass {
        let name = name.into();
        let lock = self.locks().entry(name.clone()).or_default().clone();
        let guard = lock.lock_owned().await;
        Pass { gates: self.clone(), name, guard: Some(guard) }
    }

    /// Whether somebody waits for `name` behind who holds it.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self, name: &str) -> bool {
        // One is the map's, one the holder's.
        self.locks().get(name).is_some_and(|lock| Arc::strong_count(lock) > 2)
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut locks = self.gates.locks();
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
        let gates = Gates::default();
        let first = gates.enter("a").await;
        let other = gates.enter("b").await;
        let second = tokio::spawn({
            let gates = gates.clone();
            async move { drop(gates.enter("a").await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.expect("second passes");
        drop(other);
        assert!(gates.locks().is_empty());
    }
}
