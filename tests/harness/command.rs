//! Runs programs to their end, under a deadline, and says all of it when one fails.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cost::{Wait, spent};
use crate::pace::{self, Deadline};

/// Enough for any tool that the bed calls, on a busy machine.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(180);

/// What a program said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A command from its words.
pub fn command(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Runs a command to its end, whatever that is. `deadline` is as on a quiet machine.
///
/// # Errors
/// When it cannot be started, or is still running at the deadline; it is killed then.
pub fn finish(command: &mut Command, deadline: Duration) -> Result<Ended> {
    spent(Wait::Program, || ended(command, deadline))
}

fn ended(command: &mut Command, deadline: Duration) -> Result<Ended> {
    let shown = show(command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {shown}"))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let (sender, ended) = mpsc::channel();
    let waiter = std::thread::spawn(move || sender.send(child.wait_with_output()));
    match pace::receive(&ended, Deadline::within(deadline)) {
        Ok(output) => Ok(Ended::from(output.with_context(|| format!("failed to wait for {shown}"))?)),
        Err(_) => {
            // Not reaped yet, so the number is still this process's.
            kill(pid, Signal::SIGKILL).with_context(|| format!("failed to kill {shown}"))?;
            drop(waiter);
            bail!("{shown} still ran after {} s", deadline.as_secs_f64())
        }
    }
}

/// Runs a command that must succeed; what it printed.
///
/// # Errors
/// Also when its exit code is not 0: the error shows both outputs.
pub fn run(command: &mut Command) -> Result<String> {
    let ended = finish(command, TOOL_DEADLINE)?;
    if ended.code != Some(0) {
        bail!("{} ended with {:?}\n{}{}", show(command), ended.code, ended.stdout, ended.stderr);
    }
    Ok(ended.stdout)
}

/// Runs a line of words, split at blanks.
///
/// # Errors
/// See [`run`].
pub fn sh(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().context("an empty command line")?;
    run(&mut command(program, words))
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn show(command: &Command) -> String {
    let words: Vec<_> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    format!("`{}`", words.join(" "))
}
