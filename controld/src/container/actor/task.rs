//! The task of one container: hears commands, libvirt and clocks, asks [`crate::container::machine`], and performs.
//!
//! [`perform`] does what was decided; [`change`] changes resources; [`checkpoint`] has the machine written down;
//! [`settle`] finds out how things stand, and tries again what failed.

mod change;
mod checkpoint;
mod perform;
mod settle;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use proto::pause::Pause;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use vmspec::error::{Error, Kind, Result};

use self::change::Change;
use self::checkpoint::Checkpoint;
use super::heard::{Heard, News};
use super::{Asked, Command, Reply};
use crate::container::gate::Cuts;
use crate::container::host::Host;
use crate::container::machine::{Act, Again, Due, Event, Life, Lookout, Stopping};
use crate::model::{Container, ContainerState};
use crate::trace;

pub(super) struct Task<H: Host> {
    host: H,
    /// The record, as it is shown.
    container: Container,
    life: Life,
    heard: Arc<Heard>,
    /// Asks for a checkpoint of itself.
    cuts: Cuts,
    console: Option<H::Console>,
    starting: Option<Starting<H::Console>>,
    stopping: Option<(Stopping, Vec<Reply>)>,
    change: Option<Change>,
    checkpoint: Option<Checkpoint>,
    /// Whether the record shows what the database could not be told yet.
    unwritten: bool,
    /// A start of an earlier controld may have ended before it let the guest run.
    is_held: bool,
    /// A start of an earlier controld may have left its seed beside the machine.
    seed_left: bool,
    /// A start of an earlier controld may not have come to the machine's cgroup.
    is_loose: bool,
    again: Again,
    lookout: Lookout,
}

/// A start under way, and who waits for it.
struct Starting<C> {
    /// Ends with this task if that panics: nobody would know of its machine.
    task: AbortOnDropHandle<Result<Option<C>>>,
    /// Gives the start up.
    unwanted: CancellationToken,
    starts: Vec<Reply>,
    stops: Vec<(Duration, Reply)>,
}

impl<H: Host> Task<H> {
    pub(super) fn new(host: H, container: Container, (heard, cuts): (Arc<Heard>, Cuts)) -> Self {
        let life = Life::on_record(container.state);
        let goes_on = life.state() == ContainerState::Running && container.restore.is_some();
        let is_held = life.state() == ContainerState::Uncertain || goes_on;
        let seed_left = matches!(life.state(), ContainerState::Uncertain | ContainerState::Running);
        let mut task = Self {
            host,
            container,
            life,
            heard,
            cuts,
            console: None,
            starting: None,
            stopping: None,
            change: None,
            checkpoint: None,
            unwritten: false,
            is_held,
            seed_left,
            is_loose: seed_left,
            again: Again::default(),
            lookout: Lookout::default(),
        };
        task.show();
        task
    }

    /// The task of a container whose task has panicked. What that had shown may not be written.
    pub(super) fn revived(host: H, container: Container, ways: (Arc<Heard>, Cuts)) -> Self {
        Self { unwritten: true, ..Self::new(host, container, ways) }
    }

    pub(super) async fn run(mut self, commands: &mut mpsc::Receiver<Asked>) {
        loop {
            let wake = self.next_wake();
            let (starts, changes) = (self.starting.is_some(), self.change.is_some());
            let writes = self.checkpoint.is_some();
            // Until that is noted.
            let stands = writes && self.container.is_written();
            let goes_on = self.checkpoint.as_ref().map(|checkpoint| checkpoint.goes_on.clone()).unwrap_or_default();
            tokio::select! {
                command = commands.recv() => match command {
                    Some((command, place)) => if trace::within(place, self.obey(command)).await.is_break() {
                        return;
                    },
                    // Going down: the machine is left as it is.
                    None => {
                        if let Some(starting) = self.starting.take() {
                            drop(starting.task.detach());
                        }
                        return;
                    }
                },
                started = outcome(self.starting.as_mut().map(|starting| &mut starting.task)), if starts => self.started(started).await,
                changed = outcome(self.change.as_mut().map(|change| &mut change.task)), if changes => self.changed(changed).await,
                written = outcome(self.checkpoint.as_mut().map(|checkpoint| &mut checkpoint.task)), if writes => self.written(written).await,
                () = goes_on.cancelled(), if stands => self.goes_on().await,
                // An end that is told amid a start is of the machine that is being started: its turn is after that.
                news = self.heard.next(), if !starts => self.take(news).await,
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.on_time().await,
            }
        }
    }

    /// Breaks when the container is gone.
    async fn obey(&mut self, command: Command) -> ControlFlow<()> {
        // A caller that is gone does not want its answer.
        match command {
            Command::Start(reply) => self.start(reply).await,
            Command::Stop { grace, reply } => self.stop(grace, reply).await,
            Command::MakeWay(reply) => drop(reply.send(self.happens(Event::MakeWay).await)),
            Command::Replaced { attempt, reply } => drop(reply.send(self.happens(Event::Replaced(attempt)).await)),
            Command::ReopenLog(reply) => drop(reply.send(self.reopen_log().await)),
            Command::Update(resources, reply) => self.update(&resources, reply),
            Command::Pause(reply) => drop(reply.send(self.pause().await)),
            Command::Resume(reply) => drop(reply.send(self.resume().await)),
            Command::Checkpoint { note, unwanted, reply } => self.checkpoint(note, unwanted, reply).await,
            Command::EndCheckpoint(reply) => drop(reply.send(self.no_checkpoint().await)),
            Command::Remove(reply) => {
                let removed = self.remove().await;
                let gone = removed.is_ok();
                let _ = reply.send(removed);
                if gone {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    async fn start(&mut self, reply: Reply) {
        if self.life.state() == ContainerState::Uncertain {
            self.settle().await;
        }
        match self.life.on(Event::Start) {
            Act::Boot => {
                self.container.boot = self.host.boot().id().to_owned();
                self.container.pod_oom_kills = self.host.pod_oom_kills(&self.container);
                if let Err(error) = self.record().await {
                    let because = self.life.on(Event::NotBegun(Chain(&error).to_string()));
                    // It has ended, whatever becomes of its record.
                    let _ = self.perform(because).await;
                    let _ = reply.send(Err(error));
                    return;
                }
                let (host, container, unwanted) = (self.host.clone(), self.container.clone(), CancellationToken::new());
                let token = unwanted.clone();
                let start = async move { host.start(&container, &token).await };
                let task = AbortOnDropHandle::new(tokio::spawn(trace::carried(start).in_current_span()));
                self.starting = Some(Starting { task, unwanted, starts: vec![reply], stops: Vec::new() });
            }
            Act::Await => {
                if let Some(starting) = &mut self.starting {
                    starting.starts.push(reply);
                }
            }
            act => drop(reply.send(self.perform(act).await)),
        }
    }

    async fn started(&mut self, outcome: Result<Result<Option<H::Console>>, JoinError>) {
        let Some(starting) = self.starting.take() else { return };
        let outcome = outcome.unwrap_or_else(|cause| Err(Error::because(Kind::Internal, "the start broke off", cause)));
        let answer = match outcome {
            Ok(console) => {
                self.console = console;
                tracing::info!("machine started");
                self.happens(Event::CameUp).await
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                tracing::error!(error = why, "machine not started");
                if let Err(left) = self.happens(Event::StartFailed(why)).await {
                    tracing::warn!(error = %Chain(&left), "what the start left is not cleared away yet; trying again");
                }
                Err(error)
            }
        };
        for reply in starting.starts {
            let _ = reply.send(match &answer {
                Ok(()) => Ok(()),
                Err(error) => Err(same(error)),
            });
        }
        for (grace, reply) in starting.stops {
            self.stop(grace, reply).await;
        }
    }

    async fn stop(&mut self, grace: Duration, reply: Reply) {
        match self.life.on(Event::Stop(grace)) {
            Act::Await => {
                if let Some(starting) = &mut self.starting {
                    starting.unwanted.cancel();
                    starting.stops.push((grace, reply));
                }
            }
            Act::PowerOff(grace) => {
                // A guest that is paused does not shut down.
                self.give_up_checkpoint(grace).await;
                let (now, interval) = (Instant::now(), self.host.press_interval());
                let (stopping, waiting) =
                    self.stopping.get_or_insert_with(|| (Stopping::begin(now, grace, interval), Vec::new()));
                stopping.shorten(now, grace);
                waiting.push(reply);
            }
            act => drop(reply.send(self.perform(act).await)),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let stopping = self.stopping.as_ref().map(|(stopping, _)| stopping.next());
        // What is due is done after the start: see `settle`.
        let again = if self.starting.is_some() { None } else { self.again.at() };
        [stopping, again, self.lookout.at()].into_iter().flatten().min()
    }

    async fn on_time(&mut self) {
        let now = Instant::now();
        if self.again.at().is_some_and(|at| now >= at) {
            self.settle().await;
        }
        if self.lookout.at().is_some_and(|at| now >= at) {
            self.look_for_room(now).await;
        }
        let Some((stopping, _)) = &mut self.stopping else { return };
        match stopping.due(now) {
            None => {}
            Some(Due::GiveUp) => {
                let what = stopping.failure();
                self.answer_stops(|| Err(Error::new(Kind::Deadline, what.clone())));
            }
            Some(Due::Press) => self.press(),
            Some(Due::Destroy) => {
                tracing::info!("machine did not power off in time; destroying it");
                match self.host.destroy(&self.container).await {
                    // The event says when and how; if it was lost with a connection, the state does.
                    Ok(()) => self.settle().await,
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "machine not destroyed; trying again");
                        stopping.resisted(Chain(&error).to_string());
                    }
                }
            }
        }
    }

    /// Presses the power button and goes on meanwhile: of a QEMU that hangs there is no answer, and the deadline is to be
    /// heard. A guest that somebody has paused goes on first, or it would lose what it has not written to its disk.
    fn press(&self) {
        let (host, container) = (self.host.clone(), self.container.clone());
        let press = async move {
            if container.pause == Some(Pause::ByHand)
                && let Err(error) = host.resume(&container).await
            {
                tracing::warn!(error = %Chain(&error), "paused guest does not go on, and so cannot shut down");
            }
            // A guest that is off by now, or not yet able to hear, is what the next press and the deadline are for.
            if let Err(error) = host.press(&container).await {
                tracing::debug!(error = %Chain(&error), "power button not pressed");
            }
        };
        drop(tokio::spawn(press.in_current_span()));
    }

    async fn take(&mut self, news: News) {
        if let Some(ending) = news.ending
            && let Err(error) = self.happens(Event::Ended(ending)).await
        {
            tracing::warn!(error = %Chain(&error), "what an ended machine left is not cleared away yet");
        }
        let stirred = news.stirred && self.life.heeds_stirring(self.container.pause.is_some());
        if news.missed || news.paused || stirred {
            self.settle().await;
        }
    }

    async fn reopen_log(&mut self) -> Result<()> {
        let Some(console) = &self.console else {
            return Err(Error::new(Kind::State, format!("container `{}` does not run", self.container.id)));
        };
        let reopened = self.host.reopen(console).await;
        reopened.map_err(|cause| Error::because(Kind::Internal, "log not reopened", cause))
    }

    fn answer_stops(&mut self, answer: impl Fn() -> Result<()>) {
        for reply in self.stopping.take().map(|(_, waiting)| waiting).unwrap_or_default() {
            // A caller that is gone does not want its answer.
            let _ = reply.send(answer());
        }
    }
}

/// The outcome of what goes on beside the task, if something does.
async fn outcome<T>(beside: Option<&mut AbortOnDropHandle<T>>) -> Result<T, JoinError> {
    match beside {
        Some(beside) => beside.await,
        None => std::future::pending().await,
    }
}

/// An error once more, for another caller.
fn same(error: &Error) -> Error {
    Error::new(error.kind(), Chain(error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::tests::container;
    use crate::container::tests::fake::FakeHost;

    #[tokio::test(start_paused = true)]
    async fn a_start_under_way_is_not_woken_for_what_has_to_wait_for_its_end() {
        let cuts = crate::container::actor::cuts(mpsc::channel(1).0.downgrade(), Arc::default());
        let mut task = Task::new(FakeHost::new(), container("vm", 0), (Arc::default(), cuts));
        task.again.failed(Instant::now());
        let due = task.next_wake();
        assert!(due.is_some());
        let start = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let unwanted = CancellationToken::new();
        task.starting = Some(Starting { task: start, unwanted, starts: Vec::new(), stops: Vec::new() });
        assert_eq!(task.next_wake(), None);
        task.starting = None;
        assert_eq!(task.next_wake(), due, "it is done after the start");
    }
}
