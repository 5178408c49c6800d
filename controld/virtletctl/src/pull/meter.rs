//! How fast bytes come, and when the last one will. Time is what its caller says.

use std::collections::VecDeque;
use std::time::Duration;

use proto::images::Progress;

/// What the speed is the mean of.
const WINDOW: Duration = Duration::from_secs(5);
/// A shorter time says nothing about speed.
const SHORTEST: Duration = Duration::from_millis(400);
/// Points closer than this are one: there are never many.
const APART: Duration = Duration::from_millis(100);

/// Counts a pull's bytes.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When there were how many bytes, of the last while.
    points: VecDeque<(Duration, u64)>,
    bytes: u64,
    /// Those of an earlier attempt.
    resumed: u64,
    total: Option<u64>,
}

/// What a meter shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) bytes: u64,
    pub(super) total: Option<u64>,
    /// Bytes a second.
    pub(super) speed: Option<u64>,
    pub(super) left: Option<Duration>,
}

impl Meter {
    /// Takes down how many bytes there are. No total is 0.
    pub(super) fn note(&mut self, at: Duration, &Progress { bytes, total, resumed }: &Progress) {
        if bytes < self.bytes || resumed != self.resumed {
            // The pull has begun, anew or with bytes that did not come now.
            self.points.clear();
        }
        (self.bytes, self.resumed) = (bytes, resumed);
        self.total = (total > 0).then_some(total);
        if self.points.back().is_none_or(|(last, _)| at.saturating_sub(*last) >= APART) {
            self.points.push_back((at, bytes));
        }
        // One from before the window is kept: what came since is all that came in the window.
        while self.points.get(1).is_some_and(|(second, _)| at.saturating_sub(*second) >= WINDOW) {
            self.points.pop_front();
        }
    }

    /// Nothing before the first note.
    pub(super) fn read(&self, now: Duration) -> Option<Reading> {
        let before = |point: &&(Duration, u64)| now.saturating_sub(point.0) >= WINDOW;
        let (since, base) = *self.points.iter().rev().find(before).or(self.points.front())?;
        let took = now.saturating_sub(since);
        let came = self.bytes.saturating_sub(base);
        let speed = (took >= SHORTEST).then(|| per_second(came, took));
        let missing = self.total.and_then(|total| total.checked_sub(self.bytes));
        let left = missing.zip(speed).and_then(|(missing, speed)| missing.checked_div(speed)).map(Duration::from_secs);
        Some(Reading { bytes: self.bytes, total: self.total, speed, left })
    }
}

fn per_second(bytes: u64, took: Duration) -> u64 {
    let speed = u128::from(bytes) * 1000 / took.as_millis().max(1);
    u64::try_from(speed).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    impl Meter {
        fn note_of(&mut self, at: Duration, bytes: u64, total: u64) {
            self.note(at, &Progress { bytes, total, resumed: 0 });
        }
    }

    #[test]
    fn what_an_earlier_attempt_has_brought_is_no_speed() {
        let mut meter = Meter::default();
        // Before its source has answered, nothing is known of it.
        meter.note_of(at(0), 0, 0);
        let resumed = |bytes| Progress { bytes, total: 2000, resumed: 1000 };
        meter.note(at(400), &resumed(1000));
        assert_eq!(meter.read(at(500)).expect("noted").speed, None);
        meter.note(at(1400), &resumed(1100));
        let reading = meter.read(at(1400)).expect("noted");
        assert_eq!((reading.bytes, reading.speed, reading.left), (1100, Some(100), Some(Duration::from_secs(9))));
    }

    #[test]
    fn speed_is_of_the_last_while() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(at(0)), None);
        // A resumed pull has bytes that did not come now.
        meter.note_of(at(0), 10_000, 20_000);
        assert_eq!(meter.read(at(100)), Some(Reading { bytes: 10_000, total: Some(20_000), speed: None, left: None }));
        for second in 1..=10 {
            meter.note_of(at(second * 1000), 10_000 + second * 100, 20_000);
        }
        let reading = meter.read(at(10_000)).expect("noted");
        assert_eq!((reading.speed, reading.left), (Some(100), Some(Duration::from_secs(90))));
        meter.note_of(at(11_000), 16_000, 20_000);
        assert_eq!(meter.read(at(11_000)).expect("noted").speed, Some((5_000 + 4 * 100) / 5));
        assert_eq!(meter.points.len(), 6);
    }

    #[test]
    fn a_stalled_pull_gets_slower_and_stands() {
        let mut meter = Meter::default();
        meter.note_of(at(0), 0, 1000);
        meter.note_of(at(1000), 500, 1000);
        let speeds: Vec<_> = [1000, 2000, 5000, 6000].map(|now| meter.read(at(now)).expect("noted").speed).into();
        assert_eq!(speeds, [Some(500), Some(250), Some(100), Some(0)]);
        assert_eq!(meter.read(at(6000)).expect("noted").left, None, "never");
    }

    #[test]
    fn a_pull_that_begins_anew_is_measured_anew() {
        let mut meter = Meter::default();
        meter.note_of(at(0), 0, 1000);
        meter.note_of(at(1000), 900, 1000);
        meter.note_of(at(2000), 10, 1000);
        assert_eq!(meter.read(at(2100)).expect("noted").speed, None);
        meter.note_of(at(3000), 110, 1000);
        assert_eq!(meter.read(at(3000)).expect("noted").speed, Some(100));
    }

    #[test]
    fn numbers_that_cannot_be_are_borne() {
        let mut meter = Meter::default();
        meter.note_of(at(5000), 0, 5);
        meter.note_of(at(6000), u64::MAX, 5);
        let reading = meter.read(at(6000)).expect("noted");
        assert_eq!((reading.speed, reading.left), (Some(u64::MAX), None));
        // A clock that goes back.
        meter.note_of(at(0), u64::MAX, 0);
        assert_eq!(meter.read(at(0)).expect("noted").speed, None);
        for _ in 0..10_000 {
            meter.note_of(at(7000), u64::MAX, 5);
        }
        assert!(meter.points.len() < 5);
    }
}
