//! One run of a plugin's executable: bytes in, bytes out, within a deadline. Called by [`super::plugin`].
//!
//! Invariants: the plugin leads a process group of its own, and however the run ends, also when nobody waits for it any
//! more, no process of that group is left unless the plugin ended by itself. The plugin is not reaped before its output
//! has ended, so its number cannot have become that of a stranger's group when the group is killed.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout, timeout_at};

/// Most bytes of a plugin's standard output.
pub(super) const MAX_STDOUT: usize = 1 << 20;
/// How much of the end of its standard error is kept.
const STDERR_TAIL: usize = 4096;
/// How long a killed plugin may take to die; one that sits in the kernel longer is left to the runtime to reap.
const REAP_DEADLINE: Duration = Duration::from_secs(5);

/// What to run.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// Absolute path of the executable.
    pub(super) program: &'a Path,
    /// All of its environment.
    pub(super) env: Vec<(&'static str, OsString)>,
    /// Bytes for its standard input.
    pub(super) stdin: &'a [u8],
    /// How long it may take, from start to end.
    pub(super) limit: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// The last bytes of its standard error.
    pub(super) stderr: Vec<u8>,
}

/// Why a run has no output.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// It did not start.
    #[error("failed to start it; is it an executable of this machine's kind?")]
    Start(#[source] io::Error),
    /// Its pipes failed.
    #[error("failed to speak with it")]
    Pipe(#[source] io::Error),
    /// It did not end.
    #[error("it did not end within {} s, so it and its children were killed", limit.as_secs_f64())]
    Deadline {
        /// What it was given.
        limit: Duration,
    },
    /// It wrote without end.
    #[error("it wrote more than {MAX_STDOUT} bytes, so it and its children were killed")]
    TooMuch,
}

/// Runs a plugin to its end.
pub(super) async fn run(call: Call<'_>) -> Result<Output, ExecError> {
    let deadline = Instant::now() + call.limit;
    let mut child = Command::new(call.program)
        .env_clear()
        .envs(call.env)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(ExecError::Start)?;
    // Declared after the child, so dropped before it: the group is killed while its leader is not reaped yet.
    let mut group = Group::led_by(&child);
    let outcome = timeout_at(deadline, async {
        let (stdout, stderr) = converse(&mut child, call.stdin).await?;
        let status = child.wait().await.map_err(ExecError::Pipe)?;
        Ok(Output { status, stdout, stderr })
    });
    let outcome = outcome.await.unwrap_or(Err(ExecError::Deadline { limit: call.limit }));
    if outcome.is_ok() {
        group.forget();
    } else {
        group.kill();
        // Its fate is told by the error already; this only keeps a zombie from outliving the call.
        let _ = timeout(REAP_DEADLINE, child.wait()).await;
        group.forget();
    }
    outcome
}

/// Feeds the plugin and reads both of its outputs to their ends, all at once, so that no full pipe can block it.
async fn converse(child: &mut Child, input: &[u8]) -> Result<(Vec<u8>, Vec<u8>), ExecError> {
    let missing = || ExecError::Pipe(io::ErrorKind::NotConnected.into());
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let feed = async move {
        match stdin.write_all(input).await {
            // It need not read what it does not want.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ExecError::Pipe(error)),
            _ => Ok(()), // and the pipe closes here
        }
    };
    let ((), stdout, stderr) = tokio::try_join!(feed, read_capped(stdout), read_tail(stderr))?;
    Ok((stdout, stderr))
}

async fn read_capped(stdout: impl AsyncRead + Unpin) -> Result<Vec<u8>, ExecError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_STDOUT).unwrap_or(u64::MAX) + 1;
    stdout.take(limit).read_to_end(&mut bytes).await.map_err(ExecError::Pipe)?;
    if bytes.len() > MAX_STDOUT { Err(ExecError::TooMuch) } else { Ok(bytes) }
}

/// Reads on however much comes: a chatty plugin is not a broken one, and the deadline ends it anyway.
async fn read_tail(mut stderr: impl AsyncRead + Unpin) -> Result<Vec<u8>, ExecError> {
    let mut tail = Vec::new();
    let mut chunk = [0; STDERR_TAIL];
    loop {
        let read = stderr.read(&mut chunk).await.map_err(ExecError::Pipe)?;
        if read == 0 {
            return Ok(tail);
        }
        tail.extend(chunk.iter().take(read));
        tail.drain(..tail.len().saturating_sub(STDERR_TAIL));
    }
}

/// The process group of a plugin, killed when dropped.
struct Group(Option<Pid>);

impl Group {
    fn led_by(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    fn kill(&self) {
        if let Some(leader) = self.0 {
            // Fails only if all of them are gone, which is what is wanted.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
