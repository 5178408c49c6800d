//! The only way to wait: a name, a deadline, and a predicate.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::cost::{Wait, spent};
use crate::pace::Deadline;

/// Least time between two looks.
const POLL: Duration = Duration::from_millis(20);
/// Most time between two looks.
const LONGEST: Duration = Duration::from_secs(8);
/// So many times as long as a look took nobody looks again: a program that is started for each would otherwise take a whole
/// processor from the guest that is waited for.
const RESTS: u32 = 4;

/// Asks `probe` until it says something; its errors end the wait at once. `deadline` is as on a quiet machine.
///
/// # Errors
/// When `deadline` passes (the error names `what`), and whatever `probe` fails with.
pub fn wait_for<T>(what: &str, deadline: Duration, probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    spent(Wait::Event, || asked(what, deadline, probe))
}

fn asked<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Deadline::within(deadline);
    loop {
        let begun = Instant::now();
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if end.has_passed() {
            return Err(anyhow!("no {what} within {} s", deadline.as_secs_f64()));
        }
        // Nobody unparks: it is a wait between two looks at the world.
        std::thread::park_timeout((begun.elapsed() * RESTS).clamp(POLL, LONGEST));
    }
}

/// [`wait_for`] for what a guest does once it has booted.
///
/// # Errors
/// As [`wait_for`].
pub fn wait_guest<T>(what: &str, deadline: Duration, probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    spent(Wait::Guest, || wait_for(what, deadline, probe))
}

/// [`wait_for`] for a plain condition.
///
/// # Errors
/// When `deadline` passes.
pub fn wait_until(what: &str, deadline: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    wait_for(what, deadline, || Ok(holds().then_some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_runs_out_names_what_it_waited_for() {
        let error = wait_until("rain", Duration::from_millis(30), || false).unwrap_err();

        assert_eq!(error.to_string(), "no rain within 0.03 s");
    }

    #[test]
    fn a_probe_that_fails_ends_the_wait() {
        let outcome: Result<()> = wait_for("rain", Duration::from_secs(600), || Err(anyhow!("drought")));

        assert_eq!(outcome.unwrap_err().to_string(), "drought");
    }

    #[test]
    fn a_look_that_takes_long_leaves_the_processor_to_what_is_waited_for() {
        let mut looks = Vec::new();

        let _never = wait_until("rain", Duration::from_millis(600), || {
            let begun = Instant::now();
            std::thread::park_timeout(Duration::from_millis(50));
            looks.push((begun, Instant::now()));
            false
        });

        assert!(looks.len() > 1);
        for pair in looks.windows(2) {
            let ((begun, ended), (next, _)) = (pair[0], pair[1]);
            assert!(next - ended >= ((ended - begun) * RESTS).min(LONGEST), "{looks:?}");
        }
    }
}
