//! QEMU's guest agent: a command is started, asked after until it has ended, and gives its output then. Every request is a
//! connection of its own, since QEMU serves one at a time; the agent may be in the middle of an answer to somebody who has
//! gone, so each begins with a synchronisation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::agent::Start;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::output::{MAX_OUTPUT, Output};

/// How long an agent may take to answer at all, of which nobody knows whether it is there.
const GREETING: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(30);
const SHUTDOWN: &str = "guest-shutdown";
const STATUS: &str = "guest-exec-status";
/// How long one may take that has answered before; nobody else has its turn meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is tried to kill a command: the agent of a busy guest answers late, and what runs there is why it is busy.
const KILL_DEADLINE: Duration = Duration::from_secs(180);
/// Between two tries.
const KILL_AGAIN: Duration = Duration::from_secs(2);
/// How long a guest that powers off is listened to.
const SILENCE: Duration = Duration::from_secs(3);
/// Between two questions whether a command has ended: the agent says nothing by itself.
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK_LAST: Duration = Duration::from_millis(400);
/// Longest answer with output: two streams as the agent caps them, in base64.
const MAX_STATUS: usize = 2 * (MAX_OUTPUT / 3 * 4 + 1024) + 4096;
/// Longest other answer.
const MAX_ANSWER: usize = 64 * 1024;
/// Most that is skipped before the answer to a synchronisation.
const MAX_SKIPPED: usize = 1 << 20;

/// Kills a process with its descendants; children are stopped before their own are looked for, so that none is missed. It does nothing
/// to a process that is not the agent's own, as the shell is: the number of one that has ended may be another's.
const KILL: &str = r#"
read -r l 2>/dev/null <"/proc/$0/stat" || exit 0
r=${l##*) }; r=${r#* }
[ "${r%% *}" = "$PPID" ] || exit 0
t() {
	kill -STOP "$1" 2>/dev/null
	for s in /proc/[0-9]*/stat; do
		read -r l 2>/dev/null <"$s" || continue
		r=${l##*) }; r=${r#* }
		[ "${r%% *}" != "$1" ] || (t "${l%% *}")
	done
	kill -KILL "$1" 2>/dev/null
}
t "$0""#;

/// What the agent runs as. kubelet names a user also where the pod does not.
const ROOT: [&str; 5] = ["", "0", "0:0", "root", "root:root"];

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum QgaError {
    #[error("QEMU's guest agent does not answer")]
    Absent(#[source] io::Error),
    #[error("QEMU's guest agent does not answer `{0}` within {1} s")]
    Late(&'static str, u64),
    #[error("connection to QEMU's guest agent failed")]
    Connection(#[source] io::Error),
    /// By these words virtletctl knows that a command was not started.
    #[error("QEMU's guest agent refused `{command}`: {why}")]
    Refused { command: &'static str, why: String },
    #[error("QEMU's guest agent cannot start it as user `{0}`, which the pod asks for; `virtlet-agent` can")]
    User(String),
    #[error("QEMU's guest agent answered `{0}` with what is no answer to it")]
    Answer(&'static str),
    #[error("it still runs after it was killed")]
    Survives,
}

impl QgaError {
    /// Whether the agent may answer yet.
    fn is_late(&self) -> bool {
        match self {
            Self::Absent(cause) => cause.kind() == io::ErrorKind::TimedOut,
            Self::Late(..) => true,
            _ => false,
        }
    }
}

/// An answer. What else the guest says in it is passed over, and not kept.
#[derive(Deserialize)]
struct Answer<T> {
    #[serde(rename = "return")]
    value: Option<T>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    desc: String,
}

#[derive(Deserialize)]
struct Started {
    pid: i64,
}

/// Of `guest-exec-status`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    exited: bool,
    exitcode: Option<i64>,
    signal: Option<i64>,
    #[serde(default)]
    out_data: String,
    #[serde(default)]
    err_data: String,
    #[serde(default)]
    out_truncated: bool,
    #[serde(default)]
    err_truncated: bool,
}

/// The agent of one machine.
#[derive(Debug, Clone)]
pub(super) struct Qga {
    socket: PathBuf,
    one: Arc<Mutex<()>>,
    /// How often the guest was rebooted: processes of its last life have numbers that others may have in this one.
    reboots: Arc<AtomicU64>,
}

/// A connection to the agent, for one question.
struct Talk {
    agent: UnixStream,
    _turn: OwnedMutexGuard<()>,
}

/// A command that runs, and is killed unless its end is seen.
struct Running {
    qga: Qga,
    pid: Option<i64>,
    /// Of the guest, when it began.
    reboots: u64,
}

impl Qga {
    pub(super) fn at(socket: PathBuf) -> Self {
        Self { socket, one: Arc::default(), reboots: Arc::default() }
    }

    /// Nothing that was started runs any more.
    pub(super) fn rebooted(&self) {
        self.reboots.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs a command, as the agent's own user, in its directory and with its variables; `found` tells whether the agent answered. When the future is dropped the command is killed.
    pub(super) async fn run(&self, start: &Start, found: &watch::Sender<bool>) -> Result<Output, QgaError> {
        if !ROOT.contains(&start.user.as_str()) {
            return Err(QgaError::User(start.user.clone()));
        }
        let (path, args) = start.argv.split_first().ok_or(QgaError::Answer("guest-exec"))?;
        let wanted = json!({"path": path, "arg": args, "capture-output": true});
        let mut running = self.start(wanted, found.clone()).await?;
        let pid = running.pid.ok_or(QgaError::Answer("guest-exec"))?;
        let (mut pause, mut heard) = (ASK_FIRST, Instant::now());
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(ASK_LAST);
            let status = self.status(pid).await;
            match &status {
                Ok(_) => heard = Instant::now(),
                // Another agent: the guest was restarted, and the number may be somebody else's by now.
                Err(QgaError::Refused { .. }) => running.pid = None,
                // The command goes on, and may be why the guest is busy.
                Err(error) if error.is_late() && heard.elapsed() < DEADLINE => continue,
                Err(_) => {}
            }
            let status = status?;
            if !status.exited {
                continue;
            }
            running.pid = None;
            let code = status.exitcode.or_else(|| status.signal.map(|signal| 128 + signal));
            let data = (STANDARD.decode(status.out_data), STANDARD.decode(status.err_data));
            let (Ok(mut stdout), Ok(mut stderr)) = data else { return Err(QgaError::Answer(STATUS)) };
            let cut = status.out_truncated || status.err_truncated || stdout.len() + stderr.len() > MAX_OUTPUT;
            stdout.truncate(MAX_OUTPUT);
            stderr.truncate(MAX_OUTPUT - stdout.len());
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            return Ok(Output { stdout, stderr, cut, code });
        }
    }

    /// Asks the guest to power off.
    pub(super) async fn power_off(&self) -> Result<(), QgaError> {
        let how = json!({"mode": "powerdown"});
        let asked =
            self.talk(SHUTDOWN, GREETING).await?.ask_within::<IgnoredAny>(SILENCE, MAX_ANSWER, SHUTDOWN, how).await;
        match asked {
            // It answers only if it cannot.
            Err(QgaError::Late(..) | QgaError::Connection(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether it is there.
    pub(super) async fn answers(&self) -> Result<(), QgaError> {
        self.talk("guest-sync-delimited", GREETING).await.map(drop)
    }

    /// Starts a command in a task of its own: whoever waits may leave while the agent starts it, and it is killed then.
    async fn start(&self, wanted: Value, found: watch::Sender<bool>) -> Result<Running, QgaError> {
        let qga = self.clone();
        let starting = tokio::spawn(async move {
            let talk = qga.talk("guest-exec", GREETING).await?;
            found.send_replace(true);
            let reboots = qga.reboots.load(Ordering::Relaxed);
            let Started { pid } = talk.ask("guest-exec", wanted).await?;
            Ok(Running { pid: Some(pid), qga, reboots })
        });
        // Fails only by a panic, of which the log tells.
        starting.await.unwrap_or(Err(QgaError::Answer("guest-exec")))
    }

    async fn status(&self, pid: i64) -> Result<Status, QgaError> {
        self.talk(STATUS, PATIENCE).await?.ask_within(DEADLINE, MAX_STATUS, STATUS, json!({"pid": pid})).await
    }

    /// Kills a command with its descendants, unless it has ended. Again and again while the agent is late, unless the guest was
    /// rebooted since then.
    async fn kill_in_time(&self, pid: i64, reboots: u64) -> Result<(), QgaError> {
        let until = Instant::now() + KILL_DEADLINE;
        while self.reboots.load(Ordering::Relaxed) == reboots {
            match self.kill(pid, until).await {
                Err(error) if error.is_late() && Instant::now() < until => sleep(KILL_AGAIN).await,
                done => return done,
            }
        }
        Ok(())
    }

    async fn kill(&self, pid: i64, until: Instant) -> Result<(), QgaError> {
        if self.has_ended(pid).await? {
            return Ok(());
        }
        let kill = json!({"path": "/bin/sh", "arg": ["-c", KILL, pid.to_string()]});
        let killer: Started = self.talk("guest-exec", PATIENCE).await?.ask("guest-exec", kill).await?;
        // The agent keeps what it has started until somebody has seen its end.
        for pid in [killer.pid, pid] {
            while !self.has_ended(pid).await? {
                if Instant::now() > until {
                    return Err(QgaError::Survives);
                }
                sleep(ASK_LAST).await;
            }
        }
        Ok(())
    }

    async fn has_ended(&self, pid: i64) -> Result<bool, QgaError> {
        match self.status(pid).await {
            Err(QgaError::Refused { .. }) => Ok(true),
            status => Ok(status?.exited),
        }
    }

    /// A connection that the agent answers on, and that is the only one.
    async fn talk(&self, command: &'static str, patience: Duration) -> Result<Talk, QgaError> {
        let turn = timeout(DEADLINE, self.one.clone().lock_owned()).await;
        let turn = turn.map_err(|_elapsed| QgaError::Late(command, DEADLINE.as_secs()))?;
        let synchronised = timeout(patience, synchronised(&self.socket)).await;
        let agent = synchronised.unwrap_or_else(|elapsed| Err(elapsed.into())).map_err(QgaError::Absent)?;
        Ok(Talk { agent, _turn: turn })
    }
}

impl Talk {
    async fn ask<T: DeserializeOwned>(self, command: &'static str, arguments: Value) -> Result<T, QgaError> {
        self.ask_within(DEADLINE, MAX_ANSWER, command, arguments).await
    }

    async fn ask_within<T: DeserializeOwned>(
        mut self,
        deadline: Duration,
        limit: usize,
        command: &'static str,
        arguments: Value,
    ) -> Result<T, QgaError> {
        let answer = async {
            let request = json!({"execute": command, "arguments": arguments});
            self.agent.write_all(format!("{request}\n").as_bytes()).await?;
            line(&mut self.agent, limit).await
        };
        let answer = timeout(deadline, answer).await.map_err(|_elapsed| QgaError::Late(command, deadline.as_secs()))?;
        let answer: Answer<T> = serde_json::from_slice(&answer.map_err(QgaError::Connection)?)
            .map_err(|_another| QgaError::Answer(command))?;
        if let Some(Refusal { desc }) = answer.error {
            let why = desc.chars().filter(|c| !c.is_control()).take(1024).collect();
            return Err(QgaError::Refused { command, why });
        }
        answer.value.ok_or(QgaError::Answer(command))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (Some(pid), qga, reboots) = (self.pid, self.qga.clone(), self.reboots) else { return };
        tokio::spawn(async move {
            if let Err(error) = qga.kill_in_time(pid, reboots).await {
                tracing::warn!(pid, error = %common::Chain(&error), "command in a guest not killed");
            }
        });
    }
}

/// A connection that the agent answers on.
async fn synchronised(socket: &Path) -> io::Result<UnixStream> {
    let mut agent = UnixStream::connect(socket).await?;
    let id = Uuid::new_v4().as_u64_pair().0 >> 12;
    let request = json!({"execute": "guest-sync-delimited", "arguments": {"id": id}});
    // The mark ends what somebody else may have left half said, at both ends.
    agent.write_all(&[&[0xff], request.to_string().as_bytes(), b"\n"].concat()).await?;
    for _ in 0..MAX_SKIPPED {
        if agent.read_u8().await? != 0xff {
            continue;
        }
        let answer = line(&mut agent, 4096).await?;
        if serde_json::from_slice::<Answer<u64>>(&answer).is_ok_and(|answer| answer.value == Some(id)) {
            return Ok(agent);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "what it says is no answer"))
}

async fn line(agent: &mut UnixStream, limit: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        // Nothing follows an answer that was not asked for.
        if agent.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.ends_with(b"\n") {
            return Ok(line);
        }
        if line.len() > limit {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
        }
    }
}
