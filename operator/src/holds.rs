//! What was refused a moment ago and is not to be asked for again at once: news of an object lead to it at any time, those of its own status
//! among them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Until when, by objects' uids.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HashMap<String, Instant>>);

impl Holds {
    /// From now on nothing is asked for an object for so long.
    pub(crate) fn hold(&self, uid: &str, how_long: Duration) {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, until| *until > now);
        all.insert(uid.to_owned(), now + how_long);
    }

    /// How long that is still so; `None` if it is not.
    pub(crate) fn left(&self, uid: &str) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(uid).map(|until| until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}
