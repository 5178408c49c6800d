//! Agents in guests: programs there that start processes for us.
//!
//! There are two. Our own (`virtlet-agent`, [`link`]) does all that `exec` is: streams, terminals, signals. QEMU's ([`qga`]), which many
//! images have, runs a command and gives its output at the end. Each has a socket of its own for each machine; libvirt opens
//! neither, so a guest that hangs holds up no call to libvirt. All that comes from a guest may be hostile: it is bounded in
//! size, and each wait has a deadline. QEMU's is asked, too, what it knows of its guest ([`facts`]), and to [`freeze`] file systems. A guest
//! that goes on from a checkpoint is told of that ([`woken`]), and one whose pod starts warm waits for us at the [`gate`].

mod events;
mod facts;
mod freeze;
mod gate;
mod link;
mod output;
mod power;
mod process;
mod qga;
mod setup;
mod shared;
mod told;
mod woken;

use std::collections::{HashMap, HashSet};
use std::future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use common::now_nanos;
use proto::agent::{Message, Setup, Size, Start};
use streaming::Otherwise;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::Span;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

pub use self::events::Event;
pub use self::facts::{Facts, FileSystem, List, User};
pub use self::freeze::{MAX_FROZEN, frozen_file};
pub use self::gate::Gate;
use self::link::Link;
pub use self::output::Output;
use self::output::{Budget, MAX_OF_ALL, MAX_OF_ONE};
pub use self::process::{Input, Process};
use self::qga::{Qga, QgaError};
pub use self::told::{Told, ToldNic};
use crate::config::Config;
use crate::model::{Container, ContainerState};
use crate::store::moments::{Moments, Phase};

/// How long our agent may take to answer our greeting. One that is started later is heard then.
const GREETING: Duration = Duration::from_secs(2);
/// Between two questions whether QEMU's agent is there, which one that boots has not yet.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// After a machine's start a command waits so long for an agent: containers that run can be spoken to. kubelet gives a request
/// two minutes unless it is told otherwise.
const BOOT: Duration = Duration::from_secs(100);

const NO_AGENT: &str = "no agent answers in the guest, so no command can be started there; install `virtlet-agent` or \
                        `qemu-guest-agent` in the image, see docs/guest-agent.md, or wait until the guest is up";

const NOT_THERE: &str = "`virtlet-agent` does not answer in the guest; install it there, see docs/guest-agent.md, or wait until \
                         the guest is up";

const QEMUS_ALONE: &str = "`virtlet-agent` does not answer in the guest, and QEMU's agent, which does, takes neither input nor a \
                           terminal and gives output only at the end; install `virtlet-agent` there, see docs/guest-agent.md";

/// All machines' agents.
#[derive(Debug)]
pub struct Agents {
    dir: PathBuf,
    /// For what is kept of all that commands print.
    budget: Budget,
    /// Where it is noted when an agent has answered first.
    moments: Moments,
    machines: Mutex<HashMap<MachineId, Arc<Machine>>>,
    /// Images of which a guest did not wait at the gate.
    without_gate: Mutex<HashSet<String>>,
}

/// Ways to the agents of one machine.
#[derive(Debug)]
struct Machine {
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// What our agent is told of the guest.
    setup: Arc<OnceLock<Setup>>,
    /// Of what is logged about its agent, below no call: a connection outlives the call that needed it first.
    span: OnceLock<Span>,
    qga: Qga,
    /// For what is kept of all that its commands print.
    budget: Budget,
    /// Whether an agent was asked to power the guest off.
    is_powering_off: AtomicBool,
    /// When the guest was rebooted last, if it was.
    rebooted: Mutex<Option<Instant>>,
    /// Held by who freezes or thaws its file systems.
    freezing: tokio::sync::Mutex<()>,
    /// Whether somebody lets its guest go on that waits at the gate.
    gate_is_kept: AtomicBool,
    /// Waits for the end of a freeze.
    thawing: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// A command in a guest.
#[derive(Debug, Clone)]
pub struct Command {
    machine: MachineId,
    start: Start,
    /// For how long the guest may still boot.
    patience: Duration,
    /// Whether our agent comes for sure.
    has_agent: bool,
}

impl Command {
    /// A command as it is to be started in a container's guest.
    ///
    /// # Errors
    /// When the container does not run, or the command is empty.
    pub fn of(container: &Container, argv: Vec<String>) -> Result<Self> {
        if container.state != ContainerState::Running {
            let what = format!("container `{}` does not run, so no command can run in it", container.id);
            return Err(Error::new(Kind::State, what));
        }
        if let Some(pause) = container.pause {
            let what = format!("no command can run in container `{}`: {}", container.id, pause.message());
            return Err(Error::new(Kind::State, what));
        }
        if argv.is_empty() {
            return Err(Error::new(Kind::Invalid, "request has no command"));
        }
        let start = container.config.process.start(argv);
        let up = u64::try_from(now_nanos().saturating_sub(container.started_at)).unwrap_or(0);
        let patience = BOOT.saturating_sub(Duration::from_nanos(up));
        let machine = &container.machine;
        Ok(Self { machine: machine.id, start, patience, has_agent: machine.guest.has_agent })
    }

    /// Otherwise than its container says.
    ///
    /// # Errors
    /// When a variable has no name or no value, or the directory is not absolute.
    pub fn otherwise(mut self, wanted: &Otherwise) -> Result<Self> {
        let Otherwise { env, working_dir, user } = wanted;
        let is_variable = |text: &str| text.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        if let Some(bad) = env.iter().find(|text| !is_variable(text)) {
            return Err(Error::new(Kind::Invalid, format!("`{bad}` is not a variable of the form NAME=VALUE")));
        }
        if !working_dir.is_empty() && !Path::new(working_dir).is_absolute() {
            return Err(Error::new(Kind::Invalid, format!("directory `{working_dir}` is not absolute")));
        }
        self.start.env.extend(env.iter().cloned());
        for (is, wanted) in [(&mut self.start.cwd, working_dir), (&mut self.start.user, user)] {
            if !wanted.is_empty() {
                is.clone_from(wanted);
            }
        }
        Ok(self)
    }

    /// Without waiting for a guest that boots.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { patience: Duration::ZERO, ..self }
    }

    /// With input, and a terminal of this size.
    #[must_use]
    pub fn with(mut self, stdin: bool, tty: Option<Size>) -> Self {
        (self.start.stdin, self.start.tty) = (stdin, tty);
        self
    }
}

/// Directory of the sockets.
#[must_use]
pub fn dir(config: &Config) -> PathBuf {
    config.run_dir.join("console")
}

/// The socket of our agent's port.
#[must_use]
pub fn our_socket(dir: &Path, id: MachineId) -> PathBuf {
    dir.join(format!("{id}.exec"))
}

/// The socket of the port of QEMU's agent.
#[must_use]
pub fn qemu_socket(dir: &Path, id: MachineId) -> PathBuf {
    dir.join(format!("{id}.agent"))
}

impl Agents {
    /// Agents whose sockets are in `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            budget: Budget::new(MAX_OF_ALL),
            moments: Moments::default(),
            machines: Mutex::default(),
            without_gate: Mutex::default(),
        }
    }

    /// The same, by which it is noted there when an agent has answered first.
    #[must_use]
    pub fn noting(self, moments: Moments) -> Self {
        Self { moments, ..self }
    }

    /// Starts a process through our agent.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub async fn start(&self, command: Command) -> Result<Process> {
        let link = self.ours(&command).await?;
        link.begin(Message::Start(command.start)).await
    }

    /// Waits until our agent could start a command.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn await_ours(&self, command: &Command) -> Result<()> {
        self.ours(command).await.map(drop)
    }

    async fn ours(&self, command: &Command) -> Result<Arc<Link>> {
        let machine = self.machine(command.machine);
        let why = tokio::select! {
            biased;
            link = self.link(&machine, command.machine, machine.booted(command.patience)) => match link {
                Some(link) => return Ok(link),
                None => NOT_THERE,
            },
            // The guest is up, then, and nobody said that there is more to come.
            () = machine.qga_alone(), if !command.has_agent => QEMUS_ALONE,
        };
        Err(Error::new(Kind::State, format!("failed to start the command: {why}")))
    }

    /// Runs a command to its end and collects its output, through whichever agent there is. It has `limit` from when an agent
    /// answers, for which there is as long, and as long as the guest may boot. It is killed with all that came of it then, or when the
    /// future is dropped.
    ///
    /// # Errors
    /// When no agent answers, the command cannot be started, or does not end in time.
    pub async fn run(&self, command: Command, limit: Option<Duration>) -> Result<Output> {
        let found = watch::Sender::new(false);
        let (began, booted) = (Instant::now(), self.machine(command.machine).booted(command.patience));
        let late = async {
            let Some(limit) = limit else { return future::pending().await };
            // kubelet counts a probe that met its deadline as failed and any other error as none: a guest that boots, or has no
            // agent, is not to be restarted for it, nor for what was left of a probe's time when its agent started.
            let until = booted.max(began + limit);
            if timeout_at(until, found.subscribe().wait_for(|found| *found)).await.is_err() {
                return Error::new(Kind::State, format!("{NO_AGENT}; waited for {} s", began.elapsed().as_secs()));
            }
            sleep(limit).await;
            Error::new(Kind::Deadline, format!("the command did not end within {} s; it was killed", limit.as_secs()))
        };
        tokio::select! {
            biased;
            output = self.run_to_end(command, &found) => output,
            error = late => Err(error),
        }
    }

    async fn run_to_end(&self, command: Command, found: &watch::Sender<bool>) -> Result<Output> {
        let Command { machine: id, start, patience, has_agent } = command;
        let began = Instant::now();
        let machine = self.machine(id);
        let booted = machine.booted(patience);
        // Until when ours is waited for: where it comes for sure as long as the guest may boot, so that the command runs as the pod says.
        let mut ours = has_agent.then_some(booted);
        loop {
            if let Some(link) = self.link(&machine, id, ours.unwrap_or(began)).await {
                found.send_replace(true);
                return output::collect(link.begin(Message::Start(start)).await?, machine.budget.room()).await;
            }
            let boots = Instant::now() < booted;
            let answer = if boots && ours.is_none() {
                machine.qga.answers().await.map(|()| None)
            } else {
                machine.qga.run(&start, &machine.budget, found).await.map(Some)
            };
            match answer {
                Ok(Some(output)) => return Ok(output),
                // QEMU's is up first. The command is not to run otherwise for that.
                Ok(None) => ours = Some(Instant::now() + GREETING),
                // Its deadline is what this loop waits for.
                Err(QgaError::Absent(cause)) if boots && cause.kind() == io::ErrorKind::TimedOut => {}
                Err(cause @ QgaError::Absent(_)) => return Err(Error::because(Kind::State, NO_AGENT, cause)),
                Err(cause) => {
                    return Err(Error::because(Kind::Internal, "QEMU's guest agent did not run the command", cause));
                }
            }
        }
    }

    /// A guest was rebooted. The port outlives it, so nobody else says that whoever has answered does not any more: a probe
    /// would fail, and kubelet end the machine in the middle of its boot.
    pub fn rebooted(&self, id: MachineId) {
        let known = self.machines.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let Some(machine) = known else { return };
        *machine.rebooted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        machine.qga.rebooted();
        tokio::spawn(async move {
            if let Some(link) = machine.link.lock().await.take() {
                link.close();
            }
        });
    }

    /// Has what is logged of a machine's agent from now on, and not within a call, logged in `span`.
    pub fn log_in(&self, id: MachineId, span: Span) {
        self.machine(id).span.get_or_init(|| span);
    }

    /// Forgets a machine that is gone.
    pub fn forget(&self, id: MachineId) {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn machine(&self, id: MachineId) -> Arc<Machine> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let qga = Qga::at(qemu_socket(&self.dir, id));
            Arc::new(Machine {
                link: tokio::sync::Mutex::default(),
                setup: Arc::default(),
                span: OnceLock::new(),
                qga,
                budget: self.budget.part(MAX_OF_ONE),
                is_powering_off: AtomicBool::new(false),
                rebooted: Mutex::default(),
                freezing: tokio::sync::Mutex::default(),
                gate_is_kept: AtomicBool::new(false),
                thawing: Mutex::default(),
            })
        };
        machines.entry(id).or_insert_with(new).clone()
    }

    /// The way to our agent, if it answers until then, or soon after the connection was made.
    async fn link(&self, machine: &Machine, id: MachineId, until: Instant) -> Option<Arc<Link>> {
        // A machine of an earlier release has no such socket.
        let (link, _) = machine.open(&our_socket(&self.dir, id)).await.ok()?;
        let is_greeted = link.greeted(GREETING, until).await;
        if is_greeted {
            // It may have been there before, and nobody asked.
            self.moments.reached(id, Phase::Agent, false);
        }
        is_greeted.then_some(link)
    }
}

impl Machine {
    /// The connection to our agent, and whether there was one already.
    async fn open(&self, socket: &Path) -> io::Result<(Arc<Link>, bool)> {
        let mut kept = self.link.lock().await;
        if let Some(link) = kept.as_ref().filter(|link| !link.is_closed()) {
            return Ok((link.clone(), true));
        }
        let link = Arc::new(Link::open(socket, self.setup.clone(), self.span()).await?);
        Ok((kept.insert(link).clone(), false))
    }

    /// The span of work that no call waits for; none until somebody has said whose it is.
    fn span(&self) -> Span {
        self.span.get().cloned().unwrap_or_else(Span::none)
    }

    /// Ends when QEMU's agent has answered and ours has had as long as that takes to come after it.
    async fn qga_alone(&self) {
        while self.qga.answers().await.is_err() {
            sleep(ASK_AGAIN).await;
        }
        sleep(GREETING).await;
    }

    /// Until when its guest may boot.
    fn booted(&self, patience: Duration) -> Instant {
        let now = Instant::now();
        let again = self.rebooted.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at + BOOT);
        again.unwrap_or(now).max(now + patience)
    }
}

#[cfg(test)]
mod tests;
