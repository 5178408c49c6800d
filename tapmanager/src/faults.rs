//! Failure injection for tests: an Attach can be made to fail after its N-th step, or the process to die at any step.
//! [`Faults::none`] in production.
//!
//! Whoever makes a step reports it here once it is done; what a test then gets is the failure that it asked for at
//! exactly that place, so the undo of every step, and the recovery from every step, is shown to work. Without a failure
//! wanted this is one relaxed counter.

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Which step is to fail, and how many were seen.
#[derive(Debug)]
pub struct Faults {
    wanted: Wanted,
    seen: AtomicUsize,
}

/// What a test wants.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Nothing,
    /// That the step fails, if it may.
    Failure(usize),
    /// That the process is killed at it.
    Death(usize),
}

/// The failure that a test asked for.
#[derive(Debug, thiserror::Error)]
#[error("failure injected after step `{step}`")]
pub struct InjectedFault {
    step: &'static str,
}

impl Faults {
    /// Never fails.
    #[must_use]
    pub const fn none() -> Self {
        Self { wanted: Wanted::Nothing, seen: AtomicUsize::new(0) }
    }

    /// Fails once, after the `n`-th step counted from 1.
    #[must_use]
    pub const fn after_step(n: usize) -> Self {
        Self { wanted: Wanted::Failure(n), seen: AtomicUsize::new(0) }
    }

    /// Kills the process at the `n`-th step counted from 1, as `kill -9` does.
    #[must_use]
    pub const fn die_at_step(n: usize) -> Self {
        Self { wanted: Wanted::Death(n), seen: AtomicUsize::new(0) }
    }

    /// How many steps were done so far.
    #[must_use]
    pub fn steps_seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    /// Reports that `step` is done.
    ///
    /// # Errors
    /// When this is the step after which a test wants a failure.
    pub(crate) fn after(&self, step: &'static str) -> Result<(), InjectedFault> {
        let done = self.count();
        if matches!(self.wanted, Wanted::Failure(n) if n == done) { Err(InjectedFault { step }) } else { Ok(()) }
    }

    /// Reports a step of taking away, which no failure stops.
    pub(crate) fn passed(&self) {
        if matches!(self.wanted, Wanted::Death(_)) {
            self.count();
        }
    }

    fn count(&self) -> usize {
        let done = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if matches!(self.wanted, Wanted::Death(n) if n == done) {
            // No destructor, no flush, no word to anybody.
            let _ = kill(Pid::this(), Signal::SIGKILL);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fails_once_at_the_wanted_step() {
        let faults = Faults::after_step(2);
        assert!(faults.after("first").is_ok());
        let error = faults.after("second").expect_err("injected");
        assert_eq!(error.to_string(), "failure injected after step `second`");
        assert!(faults.after("third").is_ok());
        assert_eq!(faults.steps_seen(), 3);
    }
}
