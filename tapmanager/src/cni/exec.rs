//! One run of a plugin's executable: bytes in, bytes out, within a deadline. Called by [`super::plugin`].
//!
//! [`crate::spawner`] starts the plugin. A run that fails leaves no process of the plugin's group. A run whose caller
//! has gone has the rest of its time, and the next plugin of its pod waits for it.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, timeout_at};

use crate::spawner::{Denied, Spawner, Stdio};

/// Most bytes of a plugin's standard output.
pub(super) const MAX_STDOUT: usize = 1 << 20;
/// How much of the end of its standard error is kept.
const STDERR_TAIL: usize = 4096;

/// Says when a plugin may be told what to do, and false if it must not be. A plugin learns that from its standard input: until
/// then it starts up, which takes it milliseconds.
pub(crate) type Gate<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// What to run.
pub(super) struct Call<'a> {
    /// Absolute path of the executable.
    pub(super) program: &'a Path,
    /// All of its environment.
    pub(super) env: Vec<(&'static str, OsString)>,
    /// Bytes for its standard input.
    pub(super) stdin: &'a [u8],
    /// When it gets them; at once without.
    pub(super) gate: Option<Gate<'a>>,
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
    /// The spawner does not start it.
    #[error("it was not started")]
    Denied(#[source] Denied),
    /// Its pipes failed.
    #[error("failed to speak with it")]
    Pipe(#[source] io::Error),
    /// Its gate stayed closed.
    #[error("it was killed before it was told what to do")]
    Withheld,
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
pub(super) async fn run(spawner: &Spawner, call: Call<'_>) -> Result<Output, ExecError> {
    let deadline = Instant::now() + call.limit;
    let late = ExecError::Deadline { limit: call.limit };
    let (stdin, feed) = io::pipe().map_err(ExecError::Pipe)?;
    let (out, stdout) = io::pipe().map_err(ExecError::Pipe)?;
    let (err, stderr) = io::pipe().map_err(ExecError::Pipe)?;
    let readers = [out.as_fd(), err.as_fd()];
    let stdio = Stdio { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into(), readers };
    let env: Vec<(&str, &OsStr)> = call.env.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    let asked = timeout_at(deadline, spawner.run(call.program.as_os_str(), &env, call.limit, stdio)).await;
    let Ok(asked) = asked else { return Err(late) };
    let mut run = asked.map_err(ExecError::Start)?;
    let outcome = timeout_at(deadline, async {
        let feed = Sender::from_owned_fd(feed.into()).map_err(ExecError::Pipe)?;
        let feed = async {
            if let Some(gate) = call.gate
                && !gate.await
            {
                return Err(ExecError::Withheld);
            }
            feed_all(feed, call.stdin).await
        };
        let out = read_capped(Receiver::from_owned_fd(out.into()).map_err(ExecError::Pipe)?);
        let err = read_tail(Receiver::from_owned_fd(err.into()).map_err(ExecError::Pipe)?);
        // All at once, so that no full pipe can block it. One that did not start has nothing to say.
        let ended = async { run.ended().await.map_err(not_started) };
        let (status, (), stdout, stderr) = tokio::try_join!(ended, feed, out, err)?;
        Ok(Output { status, stdout, stderr })
    });
    match outcome.await.unwrap_or(Err(late)) {
        Ok(output) => run.over().await.map(|()| output).map_err(ExecError::Pipe),
        Err(error) => {
            run.kill();
            Err(error)
        }
    }
}

fn not_started(error: io::Error) -> ExecError {
    error.downcast().map_or_else(ExecError::Start, ExecError::Denied)
}

async fn feed_all(mut stdin: Sender, input: &[u8]) -> Result<(), ExecError> {
    match stdin.write_all(input).await {
        // It need not read what it does not want.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ExecError::Pipe(error)),
        _ => Ok(()), // and the pipe closes here
    }
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
