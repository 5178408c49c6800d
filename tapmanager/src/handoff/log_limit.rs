//! Limits the rate of a log line that a stranger can provoke: at most once in [`WHILE`], with the number of those left out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const WHILE: Duration = Duration::from_secs(10);

/// When the line was last logged, and how often it was left out since.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    since: u64,
}

impl LogLimit {
    /// It happened. `Some` if that is to be told now, with the number of times that were not.
    pub(super) fn tell(&self) -> Option<u64> {
        self.tell_at(Instant::now())
    }

    fn tell_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.told.is_some_and(|told| now < told + WHILE) {
            state.since += 1;
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_told_once_with_its_size_the_next_time() {
        let (quiet, now) = (LogLimit::default(), Instant::now());
        assert_eq!(quiet.tell_at(now), Some(0));
        for _ in 0..1000 {
            assert_eq!(quiet.tell_at(now + WHILE - Duration::from_nanos(1)), None);
        }
        assert_eq!(quiet.tell_at(now + WHILE), Some(1000));
        assert_eq!(quiet.tell_at(now + 2 * WHILE), Some(0));
    }
}
