//! QEMU's guest agent: a command is started, asked after until it has ended, and gives its output then. Every request is a
//! connection of its own, since QEMU serves one at a time; the agent may be in the middle of an answer to somebody who has
//! gone, so each begins with a synchronisation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::agent::Start;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::output::{MAX_OUTPUT, Output};

const GREETING: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(30);
const SHUTDOWN: &str = "guest-shutdown";
/// How long a guest that powers off is listened to.
const SILENCE: Duration = Duration::from_secs(3);
/// Between two questions whether a command has ended: the agent says nothing by itself.
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK_LAST: Duration = Duration::from_millis(400);
/// Longest answer: two streams as the agent caps them, in base64.
const MAX_ANSWER: usize = 2 * (MAX_OUTPUT / 3 * 4 + 1024) + 4096;
/// Most that is skipped before the answer to a synchronisation.
const MAX_SKIPPED: usize = 1 << 20;

/// Kills a process with its descendants; children are stopped before their own are looked for, so that none is missed.
const KILL: &str = r#"
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

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum QgaError {
    #[error("QEMU's guest agent does not answer")]
    Absent(#[source] io::Error),
    #[error("QEMU's guest agent does not answer `{0}` within {1} s")]
    Late(&'static str, u64),
    #[error("connection to QEMU's guest agent failed")]
    Connection(#[source] io::Error),
    #[error("QEMU's guest agent refused `{command}`: {why}")]
    Refused { command: &'static str, why: String },
    #[error("QEMU's guest agent cannot start it as user `{0}`, which the pod asks for; `virtlet-agent` can")]
    User(String),
    #[error("QEMU's guest agent answered `{0}` with what is no answer to it")]
    Answer(&'static str),
}

/// The agent of one machine.
#[derive(Debug, Clone)]
pub(super) struct Qga {
    socket: PathBuf,
    one: Arc<Mutex<()>>,
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
}

impl Qga {
    pub(super) fn at(socket: PathBuf) -> Self {
        Self { socket, one: Arc::default() }
    }

    /// Runs a command, as the agent's own user, in its directory and with its variables; `found` tells whether the agent answered. When the future is dropped the command is killed.
    pub(super) async fn run(&self, start: &Start, found: &Arc<AtomicBool>) -> Result<Output, QgaError> {
        if !start.user.is_empty() {
            return Err(QgaError::User(start.user.clone()));
        }
        let (path, args) = start.argv.split_first().ok_or(QgaError::Answer("guest-exec"))?;
        let wanted = json!({"path": path, "arg": args, "capture-output": true});
        let mut running = self.start(wanted, found.clone()).await?;
        let pid = running.pid.ok_or(QgaError::Answer("guest-exec"))?;
        let mut pause = ASK_FIRST;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(ASK_LAST);
            let status = self.ask("guest-exec-status", json!({"pid": pid})).await?;
            if status["exited"].as_bool() != Some(true) {
                continue;
            }
            running.pid = None;
            let code = status["exitcode"].as_i64().or_else(|| status["signal"].as_i64().map(|signal| 128 + signal));
            let data = |stream: &str| STANDARD.decode(status[stream].as_str().unwrap_or_default());
            let (Ok(mut stdout), Ok(mut stderr)) = (data("out-data"), data("err-data")) else {
                return Err(QgaError::Answer("guest-exec-status"));
            };
            stdout.truncate(MAX_OUTPUT);
            stderr.truncate(MAX_OUTPUT - stdout.len());
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            return Ok(Output { stdout, stderr, code });
        }
    }

    /// Asks the guest to power off.
    pub(super) async fn power_off(&self) -> Result<(), QgaError> {
        let asked = self.talk(SHUTDOWN).await?.ask_within(SILENCE, SHUTDOWN, json!({"mode": "powerdown"})).await;
        match asked {
            // It answers only if it cannot.
            Err(QgaError::Late(..) | QgaError::Connection(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether it is there.
    pub(super) async fn answers(&self) -> Result<(), QgaError> {
        self.talk("guest-sync-delimited").await.map(drop)
    }

    /// Starts a command in a task of its own: whoever waits may leave while the agent starts it, and it is killed then.
    async fn start(&self, wanted: Value, found: Arc<AtomicBool>) -> Result<Running, QgaError> {
        let qga = self.clone();
        let starting = tokio::spawn(async move {
            let talk = qga.talk("guest-exec").await?;
            found.store(true, Ordering::Relaxed);
            let started = talk.ask("guest-exec", wanted).await?;
            let pid = started["pid"].as_i64().ok_or(QgaError::Answer("guest-exec"))?;
            Ok(Running { pid: Some(pid), qga })
        });
        // Fails only by a panic, of which the log tells.
        starting.await.unwrap_or(Err(QgaError::Answer("guest-exec")))
    }

    async fn ask(&self, command: &'static str, arguments: Value) -> Result<Value, QgaError> {
        self.talk(command).await?.ask(command, arguments).await
    }

    /// A connection that the agent answers on, and that is the only one.
    async fn talk(&self, command: &'static str) -> Result<Talk, QgaError> {
        let turn = timeout(DEADLINE, self.one.clone().lock_owned()).await;
        let turn = turn.map_err(|_elapsed| QgaError::Late(command, DEADLINE.as_secs()))?;
        let synchronised = timeout(GREETING, synchronised(&self.socket)).await;
        let agent = synchronised.unwrap_or_else(|elapsed| Err(elapsed.into())).map_err(QgaError::Absent)?;
        Ok(Talk { agent, _turn: turn })
    }
}

impl Talk {
    async fn ask(self, command: &'static str, arguments: Value) -> Result<Value, QgaError> {
        self.ask_within(DEADLINE, command, arguments).await
    }

    async fn ask_within(
        mut self,
        deadline: Duration,
        command: &'static str,
        arguments: Value,
    ) -> Result<Value, QgaError> {
        let answer = async {
            let request = json!({"execute": command, "arguments": arguments});
            self.agent.write_all(format!("{request}\n").as_bytes()).await?;
            line(&mut self.agent, MAX_ANSWER).await
        };
        let answer = timeout(deadline, answer).await.map_err(|_elapsed| QgaError::Late(command, deadline.as_secs()))?;
        let mut answer: Value = serde_json::from_slice(&answer.map_err(QgaError::Connection)?)
            .map_err(|_not_json| QgaError::Answer(command))?;
        if let Some(why) = answer.pointer("/error/desc").and_then(Value::as_str) {
            return Err(QgaError::Refused {
                command,
                why: why.chars().filter(|c| !c.is_control()).take(1024).collect(),
            });
        }
        answer.get_mut("return").map(Value::take).ok_or(QgaError::Answer(command))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (Some(pid), qga) = (self.pid, self.qga.clone()) else { return };
        tokio::spawn(async move {
            let kill = json!({"path": "/bin/sh", "arg": ["-c", KILL, pid.to_string()]});
            if let Err(error) = qga.ask("guest-exec", kill).await {
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
        if serde_json::from_slice::<Value>(&answer).is_ok_and(|answer| answer["return"].as_u64() == Some(id)) {
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
