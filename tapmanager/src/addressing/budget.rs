//! How many frames of a guest may be read: a token bucket. Pure, the time is passed in; used by [`super::receiver`].
//!
//! It keeps the time up to which frames are paid for, so there is no refill and no overflow.

use std::time::{Duration, Instant};

/// A bucket of tokens.
#[derive(Debug)]
pub(super) struct Budget {
    /// How far ahead of now `paid_until` may be before the next token has to be waited for.
    credit: Duration,
    refill: Duration,
    paid_until: Instant,
}

impl Budget {
    /// Full: `burst` tokens can be spent at once, and one more after each `refill`.
    pub(super) fn new(burst: u32, refill: Duration, now: Instant) -> Self {
        Self { credit: refill * burst.saturating_sub(1), refill, paid_until: now }
    }

    /// How long it takes until there is a token.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.paid_until.saturating_duration_since(now).saturating_sub(self.credit)
    }

    /// Spends a token, which has been waited for.
    pub(super) fn spend(&mut self, now: Instant) {
        self.paid_until = self.paid_until.max(now) + self.refill;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REFILL: Duration = Duration::from_millis(10);

    #[test]
    fn a_burst_is_free_and_then_each_token_takes_its_time() {
        let start = Instant::now();
        let mut budget = Budget::new(3, REFILL, start);
        let mut now = start;
        let waits: Vec<_> = (0..6)
            .map(|_| {
                let wait = budget.wait(now);
                now += wait;
                budget.spend(now);
                wait.as_millis()
            })
            .collect();
        assert_eq!(waits, [0, 0, 0, 10, 10, 10]);
        // Full again, and no fuller, after however long a rest.
        now += Duration::from_secs(86_400);
        let waits = [(); 4].map(|()| {
            let wait = budget.wait(now);
            budget.spend(now);
            wait.as_millis()
        });
        assert_eq!(waits, [0, 0, 0, 10]);
    }

    proptest! {
        #[test]
        fn no_pace_gets_more_than_its_share(pauses in prop::collection::vec(0_u64..40, 1..200), burst in 1_u32..20) {
            let start = Instant::now();
            let mut budget = Budget::new(burst, REFILL, start);
            let mut now = start;
            for (spent, pause) in pauses.into_iter().enumerate() {
                now += Duration::from_millis(pause);
                now += budget.wait(now);
                budget.spend(now);
                let granted = u128::from(burst) + now.duration_since(start).as_millis() / REFILL.as_millis();
                prop_assert!((spent as u128) < granted, "{spent} of {granted}");
            }
        }
    }
}
