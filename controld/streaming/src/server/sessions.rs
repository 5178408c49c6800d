//! Places for sessions, and what these keep. Both are counted in all, for a session has buffers, and for each container or pod that they are
//! of, so that who may use one pod does not take the places of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handshake::Refusal;
use crate::mux::Budget;

/// Bytes that all sessions keep of what their clients send faster than pods take it, beside a little for each.
const MAX_KEPT: usize = 64 << 20;
/// And those of one container, or of one pod's ports.
const MAX_KEPT_OF_ONE: usize = 16 << 20;

/// The places of a server.
#[derive(Debug)]
pub(super) struct Sessions {
    most: usize,
    most_of_one: usize,
    budget: Budget,
    taken: Mutex<BTreeMap<String, Taken>>,
}

/// What one container or pod has.
#[derive(Debug)]
struct Taken {
    places: usize,
    budget: Budget,
}

/// A session's place, until it ends.
#[derive(Debug)]
pub(super) struct Seat {
    sessions: Arc<Sessions>,
    of: String,
    /// What it may keep.
    pub(super) budget: Budget,
}

impl Sessions {
    pub(super) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_one, budget: Budget::new(MAX_KEPT), taken: Mutex::default() })
    }

    /// A place for a session of this container or pod.
    pub(super) fn take(self: &Arc<Self>, of: &str) -> Result<Seat, Refusal> {
        let mut taken = self.taken();
        if taken.get(of).is_some_and(|of_it| of_it.places >= self.most_of_one) {
            return Err(Refusal::TooManyOfOne(self.most_of_one));
        }
        if taken.values().map(|of_it| of_it.places).sum::<usize>() >= self.most {
            return Err(Refusal::TooMany(self.most));
        }
        let new = || Taken { places: 0, budget: self.budget.part(MAX_KEPT_OF_ONE) };
        let of_it = taken.entry(of.to_owned()).or_insert_with(new);
        of_it.places += 1;
        Ok(Seat { sessions: self.clone(), of: of.to_owned(), budget: of_it.budget.clone() })
    }

    /// Waits for the end of the last session, after which they keep nothing.
    pub(super) async fn all_ended(&self) {
        self.budget.unused().await;
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.sessions.taken();
        if let Some(of_it) = taken.get_mut(&self.of) {
            of_it.places -= 1;
            if of_it.places == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_takes_no_more_places_than_it_may_and_gives_them_back() {
        let sessions = Sessions::new(3, 2);
        let (one, two) = (sessions.take("a").expect("free"), sessions.take("a").expect("free"));
        assert_eq!(sessions.take("a").expect_err("taken"), Refusal::TooManyOfOne(2));
        let other = sessions.take("b").expect("free");
        assert_eq!(sessions.take("c").expect_err("taken"), Refusal::TooMany(3));
        drop((one, other));
        sessions.take("c").expect("given back");
        let _again = sessions.take("a").expect("given back");
        drop(two);
        let taken: Vec<_> = sessions.taken().iter().map(|(of, of_it)| (of.clone(), of_it.places)).collect();
        assert_eq!(taken, [("a".to_owned(), 1)]);
    }
}
