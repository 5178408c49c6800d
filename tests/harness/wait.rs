//! The only way to wait: a name, a deadline, and a predicate.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

const POLL: Duration = Duration::from_millis(20);

/// Asks `probe` until it says something; its errors end the wait at once.
///
/// # Errors
/// When `deadline` passes (the error names `what`), and whatever `probe` fails with.
pub fn wait_for<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(anyhow!("no {what} within {} s", deadline.as_secs_f64()));
        }
        // Nobody unparks: it is a wait between two looks at the world.
        std::thread::park_timeout(POLL);
    }
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
}
