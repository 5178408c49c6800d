//! The states of a container and what moves it, without clocks or libvirt. Pure.
//!
//! ```text
//! Created --start--> Starting --running--> Running --ended--> Exited
//!                       `-----failed / ended----------------->'
//! ```
//!
//! A stop does not have a state of its own in the records: it is [`Stopping`], which lives in the actor, and a daemon
//! that is killed amid a stop finds the machine running. kubelet then stops it again.

use std::time::{Duration, Instant};

use crate::hypervisor::Ending;
use crate::model::{Exit, ExitReason};

/// A stop under way: the power button is pressed now and then, and at the deadline the plug is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopping {
    deadline: Instant,
    next_press: Instant,
    press_interval: Duration,
}

/// What is due in a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Press the power button.
    Press,
    /// Pull the plug.
    Destroy,
}

/// What the records say of a container that ended like this. `stopping` tells a machine that we destroyed from one that
/// somebody else did.
#[must_use]
pub fn exit_of(ending: Ending, stopping: bool) -> Exit {
    match ending {
        Ending::Shutdown => Exit::now(ExitReason::Completed, ""),
        Ending::Destroyed if stopping => {
            Exit::now(ExitReason::Error, "the guest did not power off in time and was destroyed")
        }
        Ending::Destroyed => Exit::now(ExitReason::Error, "the machine was destroyed from outside"),
        Ending::Panicked => Exit::now(ExitReason::GuestPanicked, "the guest's kernel panicked; see the console log"),
        Ending::Failed => Exit::now(ExitReason::QemuDied, "QEMU died; see libvirt's log of the machine"),
        Ending::Unseen => Exit::now(ExitReason::Unknown, "the machine ended while nobody watched"),
    }
}

impl Stopping {
    /// A stop that may take until `grace` from `now`. The first press is due at once.
    #[must_use]
    pub fn begin(now: Instant, grace: Duration, press_interval: Duration) -> Self {
        Self { deadline: now + grace, next_press: now, press_interval }
    }

    /// Another stop of the same machine: the shorter one wins.
    pub fn shorten(&mut self, now: Instant, grace: Duration) {
        self.deadline = self.deadline.min(now + grace);
    }

    /// When something is due next.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.deadline.min(self.next_press)
    }

    /// What is due `now`, if anything.
    pub fn due(&mut self, now: Instant) -> Option<Due> {
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

    #[test]
    fn only_a_guest_that_powered_off_has_succeeded() {
        use Ending::{Destroyed, Failed, Panicked, Shutdown, Unseen};
        for (ending, stopping, code, reason) in [
            (Shutdown, false, 0, "Completed"),
            (Shutdown, true, 0, "Completed"),
            (Destroyed, true, 137, "Error"),
            (Destroyed, false, 137, "Error"),
            (Panicked, false, 134, "GuestPanicked"),
            (Failed, true, 255, "QemuDied"),
            (Unseen, false, 255, "Unknown"),
        ] {
            let exit = exit_of(ending, stopping);
            assert_eq!((exit.code, exit.reason.as_str()), (code, reason), "{ending:?}");
        }
    }
}
