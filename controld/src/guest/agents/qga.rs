//! QEMU's guest agent: a command is started, asked after until it has ended, and gives its output then. Every request is a
//! connection of its own, since QEMU serves one at a time; the agent may be in the middle of an answer to somebody who has
//! gone, so each begins with a synchronisation.

mod intake;
mod port;
mod told;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::agent::Start;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::{Instant, sleep, timeout};

use self::intake::{Intake, MAX_LINE};
use self::port::{Noise, Port};
use super::output::{Budget, Output, Room};

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
    noise: Arc<Noise>,
    /// How often the guest was rebooted: processes of its last life have numbers that others may have in this one.
    reboots: Arc<AtomicU64>,
}

/// A connection to the agent, for one question.
struct Talk {
    port: Port,
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
        Self { socket, one: Arc::default(), noise: Arc::default(), reboots: Arc::default() }
    }

    /// Nothing that was started runs any more.
    pub(super) fn rebooted(&self) {
        self.reboots.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs a command, as the agent's own user, in its directory and with its variables, and keeps of its output what the budget has room for;
    /// `found` tells whether the agent answered. When the future is dropped the command is killed.
    pub(super) async fn run(
        &self,
        start: &Start,
        budget: &Budget,
        found: &watch::Sender<bool>,
    ) -> Result<Output, QgaError> {
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
            let status = self.status(pid, budget.room()).await;
            match &status {
                Ok(_) => heard = Instant::now(),
                // Another agent: the guest was restarted, and the number may be somebody else's by now.
                Err(QgaError::Refused { .. }) => running.pid = None,
                // The command goes on, and may be why the guest is busy.
                Err(error) if error.is_late() && heard.elapsed() < DEADLINE => continue,
                Err(_) => {}
            }
            let (status, intake) = status?;
            if !status.exited {
                continue;
            }
            running.pid = None;
            let code = status.exitcode.or_else(|| status.signal.map(|signal| 128 + signal));
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            let is_cut = status.out_truncated || status.err_truncated;
            let output = intake.output(code, [&status.out_data, &status.err_data], is_cut);
            return output.ok_or(QgaError::Answer(STATUS));
        }
    }

    /// Asks the guest to go down, in one of the agent's modes: `powerdown` or `reboot`.
    pub(super) async fn shut_down(&self, mode: &'static str) -> Result<(), QgaError> {
        let how = json!({"mode": mode});
        let talk = self.talk(SHUTDOWN, GREETING).await?;
        match talk.ask_within::<IgnoredAny>(SILENCE, Room::none(), SHUTDOWN, how).await {
            // It answers only if it cannot.
            Err(QgaError::Late(..) | QgaError::Connection(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Asks one question that has no arguments.
    pub(super) async fn ask<T: DeserializeOwned>(&self, question: &'static str) -> Result<T, QgaError> {
        self.talk(question, GREETING).await?.ask(question, json!({})).await
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

    /// How a command is, with what has room of its output.
    async fn status(&self, pid: i64, room: Room) -> Result<(Status, Intake), QgaError> {
        let talk = self.talk(STATUS, PATIENCE).await?;
        let (status, intake) = talk.ask_within::<Status>(DEADLINE, room, STATUS, json!({"pid": pid})).await?;
        // It tells what was printed at the end, and so once.
        let is_status = status.exited || intake.heard() <= MAX_LINE;
        if is_status { Ok((status, intake)) } else { Err(QgaError::Answer(STATUS)) }
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
        match self.status(pid, Room::none()).await {
            Err(QgaError::Refused { .. }) => Ok(true),
            status => Ok(status?.0.exited),
        }
    }

    /// A connection that the agent answers on, and that is the only one.
    async fn talk(&self, command: &'static str, patience: Duration) -> Result<Talk, QgaError> {
        let turn = timeout(DEADLINE, self.one.clone().lock_owned()).await;
        let turn = turn.map_err(|_elapsed| QgaError::Late(command, DEADLINE.as_secs()))?;
        let opened = timeout(patience, Port::open(&self.socket, self.noise.clone())).await;
        let port = opened.unwrap_or_else(|elapsed| Err(elapsed.into())).map_err(QgaError::Absent)?;
        Ok(Talk { port, _turn: turn })
    }
}

impl Talk {
    async fn ask<T: DeserializeOwned>(self, command: &'static str, arguments: Value) -> Result<T, QgaError> {
        self.ask_within(DEADLINE, Room::none(), command, arguments).await.map(|(answer, _)| answer)
    }

    async fn ask_within<T: DeserializeOwned>(
        mut self,
        deadline: Duration,
        room: Room,
        command: &'static str,
        arguments: Value,
    ) -> Result<(T, Intake), QgaError> {
        let request = json!({"execute": command, "arguments": arguments});
        let heard = timeout(deadline, self.port.ask(&request, Intake::new(room))).await;
        let heard = heard.map_err(|_elapsed| QgaError::Late(command, deadline.as_secs()))?;
        let intake = heard.map_err(QgaError::Connection)?;
        let answer: Answer<T> = serde_json::from_slice(intake.line()).map_err(|_another| QgaError::Answer(command))?;
        if let Some(Refusal { desc }) = answer.error {
            let why = desc.chars().filter(|c| !c.is_control()).take(1024).collect();
            return Err(QgaError::Refused { command, why });
        }
        Ok((answer.value.ok_or(QgaError::Answer(command))?, intake))
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
