//! The task's own clock: when what could not be done is tried again.

use std::time::Duration;

use tokio::time::Instant;

/// Between two tries: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The clock. Not set, nothing is due.
#[derive(Debug)]
pub(in crate::container) struct Again {
    at: Option<Instant>,
    pause: Duration,
}

impl Default for Again {
    fn default() -> Self {
        Self { at: None, pause: PAUSE.0 }
    }
}

impl Again {
    /// When something is due.
    pub(in crate::container) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// A try begins; what fails in it is due again.
    pub(in crate::container) fn begin(&mut self) {
        self.at = None;
    }

    /// Something failed: it is due after a pause, unless something is due already.
    pub(in crate::container) fn failed(&mut self, now: Instant) {
        if self.at.is_none() {
            self.at = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE.1);
        }
    }

    /// The try is over: if nothing in it failed, the next pause is a short one.
    pub(in crate::container) fn end(&mut self) {
        if self.at.is_none() {
            self.pause = PAUSE.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_anew_after_a_success() {
        let now = Instant::now();
        let mut again = Again::default();
        let pauses = (0..7).map(|_| {
            again.begin();
            again.failed(now);
            // Once for a try.
            again.failed(now);
            again.end();
            again.at().map(|at| (at - now).as_secs())
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 30, 30].map(Some));
        again.begin();
        again.end();
        assert_eq!(again.at(), None);
        again.failed(now);
        assert_eq!(again.at(), Some(now + PAUSE.0));
    }
}
