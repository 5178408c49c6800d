//! One task per container: it alone moves the machine, and it hears what libvirt says of it.
//!
//! Commands come one after the other; a start runs to its end before the next is looked at (all of its waits have
//! deadlines), a stop does not: it waits for libvirt's event while further stops may shorten it. Callers may go away at
//! any time, the work goes on.

mod start;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::machine::{Due, Stopping, exit_of};
use super::parts::Parts;
use crate::console::follow::Follower;
use crate::error::{Chain, Error, Kind, Result};
use crate::hypervisor::{DomainPhase, Ending, HvEvent, Way};
use crate::model::{Container, ContainerState, Exit, ExitReason, now_nanos};

/// A stop that has not ended this long after the plug was pulled has failed.
const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

/// Way to a container's task. Clones share it.
#[derive(Debug, Clone)]
pub struct Actor {
    inbox: mpsc::Sender<Command>,
}

type Reply = oneshot::Sender<Result<()>>;

#[derive(Debug)]
enum Command {
    Start(Reply),
    Stop { grace: Duration, reply: Reply },
    Remove(Reply),
    ReopenLog(Reply),
    Hear(HvEvent),
}

#[derive(Debug)]
struct Task {
    parts: Arc<Parts>,
    container: Container,
    follower: Option<Follower>,
    stopping: Option<(Stopping, Vec<Reply>)>,
    /// When waiting for the plug to have come out is given up.
    give_up: Option<Instant>,
}

// === impl Actor ===

impl Actor {
    /// Starts the task of a container.
    #[must_use]
    pub fn spawn(parts: Arc<Parts>, container: Container) -> Self {
        let (inbox, commands) = mpsc::channel(16);
        let task = Task { parts, container, follower: None, stopping: None, give_up: None };
        tokio::spawn(task.run(commands));
        Self { inbox }
    }

    /// See [`super::Containers::start`].
    ///
    /// # Errors
    /// As there.
    pub async fn start(&self) -> Result<()> {
        self.ask(Command::Start).await
    }

    /// See [`super::Containers::stop`].
    ///
    /// # Errors
    /// As there.
    pub async fn stop(&self, grace: Duration) -> Result<()> {
        self.ask(|reply| Command::Stop { grace, reply }).await
    }

    /// Forgets a container whose machine is off.
    ///
    /// # Errors
    /// When the machine runs, or the record cannot be removed.
    pub async fn remove(&self) -> Result<()> {
        self.ask(Command::Remove).await
    }

    /// See [`super::Containers::reopen_log`].
    ///
    /// # Errors
    /// As there.
    pub async fn reopen_log(&self) -> Result<()> {
        self.ask(Command::ReopenLog).await
    }

    /// Tells the task what libvirt said.
    pub async fn hear(&self, event: HvEvent) {
        // A task that has ended has no machine.
        let _ = self.inbox.send(Command::Hear(event)).await;
    }

    async fn ask(&self, command: impl FnOnce(Reply) -> Command) -> Result<()> {
        let gone = || Error::new(Kind::NotFound, "the container was removed meanwhile");
        let (reply, answer) = oneshot::channel();
        self.inbox.send(command(reply)).await.map_err(|_closed| gone())?;
        answer.await.map_err(|_dropped| gone())?
    }
}

// === impl Task ===

impl Task {
    #[tracing::instrument(name = "container", skip_all, fields(id = %self.container.id, pod = %self.container.sandbox))]
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let wake = self.next_wake();
            let command = tokio::select! {
                command = commands.recv() => command,
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now).into()), if wake.is_some() => {
                    self.on_time().await;
                    continue;
                }
            };
            // A caller that is gone does not want its answer.
            match command {
                Some(Command::Start(reply)) => drop(reply.send(self.start().await)),
                Some(Command::Stop { grace, reply }) => self.stop(grace, reply),
                Some(Command::ReopenLog(reply)) => drop(reply.send(self.reopen_log().await)),
                Some(Command::Hear(event)) => self.hear(event).await,
                Some(Command::Remove(reply)) => {
                    let removed = self.remove().await;
                    let gone = removed.is_ok();
                    let _ = reply.send(removed);
                    if gone {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    async fn start(&mut self) -> Result<()> {
        match self.container.state {
            ContainerState::Running => return Ok(()),
            ContainerState::Exited => {
                let what =
                    format!("container `{}` has ended and is not started again; make a new one", self.container.id);
                return Err(Error::new(Kind::State, what));
            }
            ContainerState::Created | ContainerState::Starting => {}
        }
        self.put(|container| container.state = ContainerState::Starting).await?;
        match start::machine(&self.parts, &self.container).await {
            Ok(follower) => {
                self.follower = follower;
                tracing::info!("machine started");
                self.put(|container| {
                    container.state = ContainerState::Running;
                    container.started_at = now_nanos();
                })
                .await
            }
            Err(error) => {
                let message = Chain(&error).to_string();
                tracing::error!(error = message, "machine not started");
                start::undo(&self.parts, &self.container).await;
                self.exited(Exit::now(ExitReason::StartError, message)).await;
                Err(error)
            }
        }
    }

    fn stop(&mut self, grace: Duration, reply: Reply) {
        if !matches!(self.container.state, ContainerState::Running | ContainerState::Starting) {
            let _ = reply.send(Ok(()));
            return;
        }
        let now = Instant::now();
        let interval = self.parts.config.machine.press_interval();
        let (stopping, waiting) =
            self.stopping.get_or_insert_with(|| (Stopping::begin(now, grace, interval), Vec::new()));
        stopping.shorten(now, grace);
        waiting.push(reply);
    }

    fn next_wake(&self) -> Option<Instant> {
        let stopping = self.stopping.as_ref().map(|(stopping, _)| stopping.next());
        match (stopping, self.give_up) {
            (Some(next), Some(give_up)) => Some(next.min(give_up)),
            (next, give_up) => next.or(give_up),
        }
    }

    async fn on_time(&mut self) {
        let now = Instant::now();
        if self.give_up.is_some_and(|give_up| now >= give_up) {
            let what = format!("libvirt did not end the machine within {} s", DESTROY_DEADLINE.as_secs());
            self.answer_stops(|| Err(Error::new(Kind::Deadline, what.clone())));
            return;
        }
        let due = self.stopping.as_mut().and_then(|(stopping, _)| stopping.due(now));
        let id = self.container.id.uuid();
        match due {
            None => {}
            Some(Due::Press) => {
                // A guest that is off by now, or not yet able to hear, is what the next press and the deadline are for.
                if let Err(error) = self.parts.hypervisor.shutdown(id, Way::Acpi).await {
                    tracing::debug!(error = %Chain(&error), "power button not pressed");
                }
            }
            Some(Due::Destroy) => {
                self.give_up.get_or_insert(now + DESTROY_DEADLINE);
                tracing::info!("machine did not power off in time; destroying it");
                match self.parts.hypervisor.destroy(id).await {
                    // The event says when and how; if it was lost with a connection, the state does.
                    Ok(()) => self.look().await,
                    Err(error) => tracing::warn!(error = %Chain(&error), "machine not destroyed; trying again"),
                }
            }
        }
    }

    async fn hear(&mut self, event: HvEvent) {
        match event {
            HvEvent::Lifecycle { ending: Some(ending), .. } => self.ended(ending).await,
            HvEvent::Reboot { .. } => tracing::info!("guest rebooted"),
            HvEvent::Resync => self.look().await,
            HvEvent::Lifecycle { ending: None, .. } | HvEvent::Down => {}
        }
    }

    /// Compares the record with libvirt, after a restart or a lost connection.
    async fn look(&mut self) {
        if !matches!(self.container.state, ContainerState::Running | ContainerState::Starting) {
            return;
        }
        let state = match self.parts.hypervisor.state(self.container.id.uuid()).await {
            Ok(state) => state,
            Err(error) => {
                // The next connection brings another Resync.
                tracing::warn!(error = %Chain(&error), "state of the machine not known");
                return;
            }
        };
        match state.map(|state| state.phase) {
            Some(DomainPhase::On) => self.found_running().await,
            Some(DomainPhase::Off(ending)) => self.ended(ending).await,
            None => self.ended(Ending::Unseen).await,
        }
    }

    async fn found_running(&mut self) {
        if self.container.state == ContainerState::Starting {
            let recorded = self
                .put(|container| {
                    container.state = ContainerState::Running;
                    container.started_at = now_nanos();
                })
                .await;
            if let Err(error) = recorded {
                tracing::error!(error = %Chain(&error), "running machine not recorded");
            }
        }
        if self.follower.is_none() {
            match start::follow(&self.parts, &self.container) {
                Ok(follower) => self.follower = follower,
                Err(error) => tracing::error!(%error, "console not followed"),
            }
        }
    }

    async fn ended(&mut self, ending: Ending) {
        if !matches!(self.container.state, ContainerState::Running | ContainerState::Starting) {
            return;
        }
        let exit = if ending == Ending::Unseen && self.parts.node_rebooted {
            Exit::now(ExitReason::NodeRebooted, "the node was restarted")
        } else {
            exit_of(ending, self.stopping.is_some())
        };
        tracing::info!(code = exit.code, reason = exit.reason.as_str(), "machine ended");
        let seen = ending != Ending::Unseen;
        match self.follower.take() {
            Some(follower) => follower.finish(seen).await,
            // Ended while we were down: what it printed last is still to be copied.
            None => {
                if let Ok(Some(follower)) = start::follow(&self.parts, &self.container) {
                    follower.finish(false).await;
                }
            }
        }
        self.exited(exit).await;
        // Tried again when the container is removed.
        if let Err(error) = self.parts.hypervisor.undefine(self.container.id.uuid()).await {
            tracing::warn!(error = %Chain(&error), "ended machine not undefined");
        }
        if let Err(error) = start::remove_seed(&self.parts, &self.container) {
            tracing::warn!(%error, "seed of an ended machine not removed");
        }
        self.answer_stops(|| Ok(()));
    }

    async fn exited(&mut self, exit: Exit) {
        self.container.state = ContainerState::Exited;
        self.container.exit = Some(exit);
        if let Err(error) = self.parts.store.put_container(self.container.clone()).await {
            tracing::error!(error = %Chain(&error), "end of the machine not recorded");
            // True all the same, and kubelet is to see it; after a restart libvirt is asked again.
            self.parts.store.show_container(self.container.clone());
        }
    }

    async fn remove(&mut self) -> Result<()> {
        if matches!(self.container.state, ContainerState::Running | ContainerState::Starting) {
            return Err(Error::new(Kind::State, format!("container `{}` runs", self.container.id)));
        }
        self.parts.hypervisor.undefine(self.container.id.uuid()).await?;
        start::remove_files(&self.parts, &self.container)
            .map_err(|cause| Error::because(Kind::Internal, "files of the container not removed", cause))?;
        Ok(self.parts.store.remove_container(self.container.id).await?)
    }

    async fn reopen_log(&mut self) -> Result<()> {
        let reopened: io::Result<()> = match &self.follower {
            Some(follower) => follower.reopen().await,
            None => return Err(Error::new(Kind::State, format!("container `{}` does not run", self.container.id))),
        };
        reopened.map_err(|cause| Error::because(Kind::Internal, "log not reopened", cause))
    }

    fn answer_stops(&mut self, answer: impl Fn() -> Result<()>) {
        self.give_up = None;
        for reply in self.stopping.take().map(|(_, waiting)| waiting).unwrap_or_default() {
            // A caller that is gone does not want its answer.
            let _ = reply.send(answer());
        }
    }

    /// Changes the record: durable first, then here.
    async fn put(&mut self, change: impl FnOnce(&mut Container)) -> Result<()> {
        let mut changed = self.container.clone();
        change(&mut changed);
        self.parts.store.put_container(changed.clone()).await?;
        self.container = changed;
        Ok(())
    }
}
