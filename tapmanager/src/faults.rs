//! Failure injection for tests: an Attach can be made to fail after its N-th step. [`Faults::none`] in production.
//!
//! Whoever makes a step of an Attach reports it here once it is done; what a test then gets is the failure that it
//! asked for at exactly that place, so the undo of every step is shown to work. Without a failure wanted this is one
//! relaxed counter.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Which step is to fail, and how many were seen.
#[derive(Debug)]
pub struct Faults {
    fail_after: Option<usize>,
    seen: AtomicUsize,
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
        Self { fail_after: None, seen: AtomicUsize::new(0) }
    }

    /// Fails once, after the `n`-th step counted from 1.
    #[must_use]
    pub const fn after_step(n: usize) -> Self {
        Self { fail_after: Some(n), seen: AtomicUsize::new(0) }
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
        let done = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fail_after == Some(done) { Err(InjectedFault { step }) } else { Ok(()) }
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
