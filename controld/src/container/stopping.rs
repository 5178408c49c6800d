//! A stop under way: when the power button is pressed, and when the plug is pulled. Pure.
//!
//! A stop has no state of its own in the records: a daemon that is killed amid one finds the machine running, and kubelet
//! stops it again.

use std::time::Duration;

use tokio::time::Instant;

/// A stop under way: the power button is pressed now and then, and at the deadline the plug is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stopping {
    deadline: Instant,
    next_press: Instant,
    press_interval: Duration,
}

/// What is due in a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Press the power button.
    Press,
    /// Pull the plug.
    Destroy,
}

impl Stopping {
    /// A stop that may take until `grace` from `now`. The first press is due at once.
    pub(super) fn begin(now: Instant, grace: Duration, press_interval: Duration) -> Self {
        Self { deadline: now + grace, next_press: now, press_interval }
    }

    /// Another stop of the same machine: the shorter one wins.
    pub(super) fn shorten(&mut self, now: Instant, grace: Duration) {
        self.deadline = self.deadline.min(now + grace);
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Instant {
        self.deadline.min(self.next_press)
    }

    /// What is due `now`, if anything.
    pub(super) fn due(&mut self, now: Instant) -> Option<Due> {
        if now >= self.deadline {
            // Should it not work, it is tried again.
            self.deadline = now + self.press_interval;
            self.next_press = self.deadline + self.press_interval;
            return Some(Due::Destroy);
        }
        if now >= self.next_press {
            self.next_press = now + self.press_interval;
            return Some(Due::Press);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_button_is_pressed_again_until_the_plug_is_pulled() {
        let start = Instant::now();
        let mut stopping = Stopping::begin(start, s(12), s(5));
        let mut seen = Vec::new();
        for _ in 0..4 {
            let at = stopping.next();
            seen.push(((at - start).as_secs(), stopping.due(at)));
        }
        use Due::{Destroy, Press};
        assert_eq!(seen, [(0, Some(Press)), (5, Some(Press)), (10, Some(Press)), (12, Some(Destroy))]);
        assert_eq!(stopping.due(stopping.next()), Some(Destroy), "a plug that did not come out is pulled again");
    }

    #[test]
    fn no_grace_is_no_press() {
        let now = Instant::now();
        assert_eq!(Stopping::begin(now, s(0), s(5)).due(now), Some(Due::Destroy));
    }

    #[test]
    fn a_shorter_stop_wins_and_a_longer_one_does_not() {
        let now = Instant::now();
        let mut stopping = Stopping::begin(now, s(60), s(5));
        assert_eq!(stopping.due(now), Some(Due::Press));
        stopping.shorten(now + s(1), s(100));
        assert_eq!(stopping.next(), now + s(5));
        stopping.shorten(now + s(1), s(1));
        assert_eq!(stopping.due(now + s(2)), Some(Due::Destroy));
    }
}
