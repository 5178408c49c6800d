//! A client that forwards a port, for as long as something is done with it.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::case::Bed;
use crate::wait::wait_for;

const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a client that forwards a port, and gives `work` its local port and what it has said so far.
///
/// # Errors
/// When it does not forward in time, or the work fails.
pub fn through<T>(
    bed: &Bed,
    client: &mut Command,
    work: impl FnOnce(u16, &dyn Fn() -> Result<String>) -> Result<T>,
) -> Result<T> {
    let said = bed.logs().join("port-forward.log");
    let file = File::create(&said)?;
    let mut running = client.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let read = || Ok(fs::read_to_string(&said)?);
    let done = wait_for("forwarded port", DEADLINE, || {
        let port = read()?.split_once("from 127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok());
        Ok(port)
    })
    .and_then(|port| work(port, &read));
    running.kill()?;
    running.wait()?;
    done
}
