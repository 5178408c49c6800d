//! The clock of the bed's deadlines: it goes slower the more the machine is behind with its work.
//!
//! A deadline is written down as it is on a quiet machine. Where six programs want two processors each gets a third of what it
//! would have there, so a second by the clock on the wall counts as a third of one. How many want one is asked at each look (see
//! `load`), so every wait looks often; all looks of a process drive the same clock. It never goes slower than a sixteenth, so
//! that every wait ends.

mod load;

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use load::{LOADAVG, check, processors};

/// Most time between two looks of a wait that nothing else wakes.
const LOOK: Duration = Duration::from_millis(200);
/// And least.
const SHORTEST: Duration = Duration::from_millis(5);
/// So many seconds of the wall at most are one of this clock.
const SLOWEST: u32 = 16;

static CLOCK: LazyLock<Mutex<Clock>> = LazyLock::new(|| Mutex::new(Clock::new(Instant::now(), pace())));

/// A time by this clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Duration);

/// What time it is by this clock.
#[must_use]
pub fn now() -> Moment {
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    Moment(clock.look(Instant::now(), pace()))
}

impl Moment {
    /// How long ago it was, by this clock.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        now().0.saturating_sub(self.0)
    }
}

/// When a wait ends.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Duration);

impl Deadline {
    /// The one that a quiet machine reaches after so long.
    #[must_use]
    pub fn within(quiet: Duration) -> Self {
        Self(now().0.saturating_add(quiet))
    }

    /// Whether it has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.next_look().is_none()
    }

    /// How long a wait may go on before the next look; `None` once it has passed.
    #[must_use]
    pub fn next_look(self) -> Option<Duration> {
        let left = self.0.saturating_sub(now().0);
        // On a busy machine what is left of it is left for longer.
        (!left.is_zero()).then(|| left.clamp(SHORTEST, LOOK))
    }
}

/// Receives a message by `deadline`.
///
/// # Errors
/// When there is none by then, or never will be one.
pub fn receive<T>(from: &Receiver<T>, deadline: Deadline) -> Result<T, RecvTimeoutError> {
    loop {
        let look = deadline.next_look();
        match from.recv_timeout(look.unwrap_or_default()) {
            Err(RecvTimeoutError::Timeout) if look.is_some() => {}
            ended => return ended,
        }
    }
}

/// What `work` comes to.
///
/// # Errors
/// When it takes longer than `quiet`.
pub async fn within<T>(quiet: Duration, work: impl Future<Output = T>) -> Result<T> {
    let mut work = pin!(work);
    // Most is done by then, and benches count microseconds.
    if let Ok(done) = tokio::time::timeout(LOOK, work.as_mut()).await {
        return Ok(done);
    }
    let deadline = Deadline::within(quiet);
    loop {
        let look = deadline.next_look();
        match tokio::time::timeout(look.unwrap_or_default(), work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if look.is_none() => bail!("nothing within {} s", quiet.as_secs_f64()),
            Err(_) => {}
        }
    }
}

/// How long `quiet` may take by the clock on the wall at most: for deadlines that others keep, such as a socket or a tool, and
/// that fail a case. What hangs for good ends at the case's own deadline.
#[must_use]
pub const fn at_worst(quiet: Duration) -> Duration {
    quiet.saturating_mul(SLOWEST)
}

/// How long `quiet` takes by the clock on the wall on a machine that stays as busy as it is now or was in the last minute: for
/// deadlines that others keep and that are a part of what a case shows, so that none is longer than it has to be.
#[must_use]
pub fn stretched(quiet: Duration) -> Duration {
    quiet.div_f64(at_slowest(load::share_lately()))
}

/// [`stretched`], in whole seconds.
#[must_use]
pub fn stretched_seconds(quiet: u32) -> u64 {
    stretched(Duration::from_secs(quiet.into())).as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

fn pace() -> f64 {
    at_slowest(load::share_now())
}

fn at_slowest(pace: f64) -> f64 {
    pace.max(1.0 / f64::from(SLOWEST))
}

/// The clock: what it shows, and the look before.
#[derive(Debug)]
struct Clock {
    shown: Duration,
    at: Instant,
    pace: f64,
}

impl Clock {
    const fn new(at: Instant, pace: f64) -> Self {
        Self { shown: Duration::ZERO, at, pace }
    }

    /// Goes on to `at`. Of the time since the look before nothing is known but how busy the machine was at both of its ends:
    /// the busier one counts.
    fn look(&mut self, at: Instant, pace: f64) -> Duration {
        self.shown += at.saturating_duration_since(self.at).mul_f64(pace.min(self.pace));
        (self.at, self.pace) = (at, pace);
        self.shown
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What the clock shows at the last of these looks: seconds on the wall, and how many want one of two processors.
    fn shown(looks: &[(u64, u32)]) -> Duration {
        let begun = Instant::now();
        let mut clock = Clock::new(begun, 1.0);
        looks.iter().fold(Duration::ZERO, |_, (at, wanting)| {
            clock.look(begun + Duration::from_secs(*at), load::share(f64::from(*wanting), 2))
        })
    }

    #[test]
    fn on_a_quiet_machine_it_goes_as_the_one_on_the_wall() {
        assert_eq!(shown(&[(1, 0), (2, 1), (10, 2)]), 10 * SECOND);
    }

    #[test]
    fn it_goes_slower_the_more_want_a_processor() {
        assert_eq!(shown(&[(0, 4), (10, 4)]), 5 * SECOND);
        assert_eq!(shown(&[(0, 8), (10, 8)]), Duration::from_millis(2500));
    }

    #[test]
    fn between_two_looks_the_busier_one_counts() {
        assert_eq!(shown(&[(0, 2), (10, 4)]), 5 * SECOND);
        assert_eq!(shown(&[(0, 4), (10, 2)]), 5 * SECOND);
        assert_eq!(shown(&[(0, 4), (10, 2), (20, 2)]), 15 * SECOND);
    }

    #[test]
    fn a_message_is_received_and_its_absence_noticed() {
        let (sender, messages) = mpsc::channel();
        sender.send("rain").unwrap();

        assert_eq!(receive(&messages, Deadline::within(SECOND)), Ok("rain"));
        assert_eq!(receive(&messages, Deadline::within(Duration::from_millis(30))), Err(RecvTimeoutError::Timeout));
        drop(sender);
        assert_eq!(receive(&messages, Deadline::within(SECOND)), Err(RecvTimeoutError::Disconnected));
    }
}
