//! Places for sessions. They are counted in all, for a session has buffers, and for each container or pod that they are of, so that who
//! may use one pod does not take the places of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handshake::Refusal;

/// The places of a server.
#[derive(Debug)]
pub(super) struct Sessions {
    most: usize,
    most_of_one: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

/// A session's place, until it ends.
#[derive(Debug)]
pub(super) struct Seat {
    sessions: Arc<Sessions>,
    of: String,
}

impl Sessions {
    pub(super) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_one, taken: Mutex::default() })
    }

    /// A place for a session of this container or pod.
    pub(super) fn take(self: &Arc<Self>, of: &str) -> Result<Seat, Refusal> {
        let mut taken = self.taken();
        if taken.get(of).is_some_and(|of_it| *of_it >= self.most_of_one) {
            return Err(Refusal::TooManyOfOne(self.most_of_one));
        }
        if taken.values().sum::<usize>() >= self.most {
            return Err(Refusal::TooMany(self.most));
        }
        *taken.entry(of.to_owned()).or_default() += 1;
        Ok(Seat { sessions: self.clone(), of: of.to_owned() })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.sessions.taken();
        if let Some(of_it) = taken.get_mut(&self.of) {
            *of_it -= 1;
            if *of_it == 0 {
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
        assert_eq!(*sessions.taken(), BTreeMap::from([("a".to_owned(), 1)]));
    }
}
