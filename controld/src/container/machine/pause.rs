//! When a machine that found its disk's file system full may go on.
//!
//! QEMU does the write that found no room again once the machine goes on, so nothing is lost in the guest. No file system
//! tells when it has room again, so it is asked, by a clock that is set only while such a machine is paused.

use std::time::Duration;

use tokio::time::Instant;

/// Between two looks at the file system: at first, and at most.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// A machine that is paused again so soon after it went on has gained nothing: the next look comes later.
const RELAPSE: Duration = Duration::from_secs(60);
/// Part of a file system that has to be free, as its divisor, so that a machine does not go on for a single write.
const PART: u64 = 20;
/// More than this need not be free, in bytes.
const MOST: u64 = 256 << 20;

/// A file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::container) struct Room {
    pub(in crate::container) size: u64,
    /// For whoever is not root, as QEMU.
    pub(in crate::container) available: u64,
}

/// The clock. Not set, nothing is due.
#[derive(Debug)]
pub(in crate::container) struct Lookout {
    next: Option<Instant>,
    interval: Duration,
    went_on: Option<Instant>,
}

impl Room {
    /// Whether a machine may go on.
    pub(in crate::container) fn is_enough(self) -> bool {
        self.available >= (self.size / PART).min(MOST)
    }
}

impl Default for Lookout {
    fn default() -> Self {
        Self { next: None, interval: INTERVAL.0, went_on: None }
    }
}

impl Lookout {
    /// The machine is paused for want of room.
    pub(in crate::container) fn paused(&mut self, now: Instant) {
        if self.next.is_some() {
            return;
        }
        let relapsed = self.went_on.is_some_and(|at| now < at + RELAPSE);
        self.interval = if relapsed { (self.interval * 2).min(INTERVAL.1) } else { INTERVAL.0 };
        self.next = Some(now + self.interval);
    }

    /// The machine is not, or no longer, paused for want of room.
    pub(in crate::container) fn over(&mut self) {
        self.next = None;
    }

    /// When to look for room.
    pub(in crate::container) fn at(&self) -> Option<Instant> {
        self.next
    }

    /// A look is being made.
    pub(in crate::container) fn looked(&mut self, now: Instant) {
        self.next = Some(now + self.interval);
    }

    /// There was room, and the machine was let go on.
    pub(in crate::container) fn went_on(&mut self, now: Instant) {
        self.next = None;
        self.went_on = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_of_a_small_file_system_and_a_fixed_part_of_a_large_one_has_to_be_free() {
        const GIB: u64 = 1 << 30;
        for (size, available, enough) in [
            (64 << 20, 3 << 20, false),
            (64 << 20, 4 << 20, true),
            (1024 * GIB, 255 << 20, false),
            (1024 * GIB, 256 << 20, true),
            (GIB, 0, false),
        ] {
            assert_eq!(Room { size, available }.is_enough(), enough, "{available} of {size}");
        }
    }

    #[test]
    fn looks_are_seldom_for_a_machine_that_is_paused_again_and_again() {
        let mut now = Instant::now();
        let mut lookout = Lookout::default();
        assert_eq!(lookout.at(), None);
        for seconds in [5, 10, 20, 40, 60, 60] {
            lookout.paused(now);
            // Told twice of one pause.
            lookout.paused(now + Duration::from_secs(1));
            assert_eq!(lookout.at(), Some(now + Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            lookout.looked(now);
            assert_eq!(lookout.at(), Some(now + Duration::from_secs(seconds)), "no room yet");
            lookout.went_on(now);
            assert_eq!(lookout.at(), None);
        }
        now += RELAPSE;
        lookout.paused(now);
        assert_eq!(lookout.at(), Some(now + INTERVAL.0), "this one did run");
        lookout.over();
        assert_eq!(lookout.at(), None);
    }
}
