//! A stop under way: when the power button is pressed, when the plug is pulled, and when that is given up.
//!
//! A stop has no state of its own in the records: a daemon that is killed amid one finds the machine running, and kubelet
//! stops it again.

use std::time::Duration;

use tokio::time::Instant;

/// A stop that has not ended this long after the plug was pulled has failed.
const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

/// A stop under way: the power button is pressed now and then, and at the deadline the plug is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::container) struct Stopping {
    deadline: Instant,
    next_press: Instant,
    press_interval: Duration,
    /// When those who wait are told that the machine does not end. Set when the plug is pulled first.
    give_up: Option<Instant>,
    /// Why the plug did not come out.
    cause: Option<String>,
}

/// What is due in a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::container) enum Due {
    /// Press the power button.
    Press,
    /// Pull the plug.
    Destroy,
    /// Tell those who wait that it has failed; see [`Stopping::failure`].
    GiveUp,
}

impl Stopping {
    /// A stop that may take until `grace` from `now`. The first press is due at once.
    pub(in crate::container) fn begin(now: Instant, grace: Duration, press_interval: Duration) -> Self {
        Self { deadline: now + grace, next_press: now, press_interval, give_up: None, cause: None }
    }

    /// Another stop of the same machine: the shorter one wins.
    pub(in crate::container) fn shorten(&mut self, now: Instant, grace: Duration) {
        self.deadline = self.deadline.min(now + grace);
    }

    /// When something is due next.
    pub(in crate::container) fn next(&self) -> Instant {
        let next = self.deadline.min(self.next_press);
        self.give_up.map_or(next, |give_up| next.min(give_up))
    }

    /// What is due `now`, if anything.
    pub(in crate::container) fn due(&mut self, now: Instant) -> Option<Due> {
        if self.give_up.is_some_and(|give_up| now >= give_up) {
            return Some(Due::GiveUp);
        }
        if now >= self.deadline {
            self.give_up.get_or_insert(now + DESTROY_DEADLINE);
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

    /// The plug did not come out, and why.
    pub(in crate::container) fn resisted(&mut self, cause: String) {
        self.cause = Some(cause);
    }

    /// What those are told who wait for a stop that is given up.
    pub(in crate::container) fn failure(&self) -> String {
        let cause = self.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
        format!("libvirt did not end the machine within {} s{cause}", DESTROY_DEADLINE.as_secs())
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
    fn a_plug_that_does_not_come_out_is_given_up_with_the_last_cause() {
        let start = Instant::now();
        let mut stopping = Stopping::begin(start, s(0), s(5));
        assert_eq!(stopping.due(start), Some(Due::Destroy));
        assert_eq!(stopping.failure(), "libvirt did not end the machine within 30 s");
        stopping.resisted("busy".into());
        stopping.resisted("gone".into());
        let mut at = stopping.next();
        while let Some(Due::Destroy | Due::Press) = stopping.due(at) {
            at = stopping.next();
        }
        assert_eq!((at - start, stopping.due(at)), (s(30), Some(Due::GiveUp)));
        assert_eq!(stopping.failure(), "libvirt did not end the machine within 30 s: gone");
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
