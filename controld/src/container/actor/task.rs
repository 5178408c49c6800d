//! The task of one container.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use common::now_nanos;
use proto::pause::Pause;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::again::Again;
use super::heard::{Heard, News};
use super::{Command, Reply};
use crate::container::host::Host;
use crate::container::machine::{Act, End, Event, Life};
use crate::container::pause::Lookout;
use crate::container::stopping::{Due, Stopping};
use crate::hypervisor::Ending;
use crate::model::error::{Error, Kind, Result};
use crate::model::{Container, ContainerState, Exit};

/// A stop that has not ended this long after the plug was pulled has failed.
const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

pub(super) struct Task<H: Host> {
    host: H,
    /// The record, as it is shown.
    container: Container,
    life: Life,
    heard: Arc<Heard>,
    console: Option<H::Console>,
    starting: Option<Starting<H::Console>>,
    stopping: Option<(Stopping, Vec<Reply>)>,
    /// When waiting for the plug to have come out is given up.
    give_up: Option<GiveUp>,
    /// Whether the record shows what the database could not be told yet.
    unwritten: bool,
    /// A start of an earlier controld may have left its seed beside the machine.
    seed_left: bool,
    again: Again,
    lookout: Lookout,
}

/// When those who wait for the machine's end are told that it does not end, and why it has not ended yet.
struct GiveUp {
    at: Instant,
    cause: Option<String>,
}

/// A start under way, and who waits for it.
struct Starting<C> {
    task: JoinHandle<Result<Option<C>>>,
    /// Gives the start up.
    unwanted: CancellationToken,
    starts: Vec<Reply>,
    stops: Vec<(Duration, Reply)>,
}

impl<H: Host> Task<H> {
    pub(super) fn new(host: H, container: Container, heard: Arc<Heard>) -> Self {
        let life = Life::on_record(container.state);
        let seed_left = matches!(life.state(), ContainerState::Uncertain | ContainerState::Running);
        let mut task = Self {
            host,
            container,
            life,
            heard,
            console: None,
            starting: None,
            stopping: None,
            give_up: None,
            unwritten: false,
            seed_left,
            again: Again::default(),
            lookout: Lookout::default(),
        };
        task.show();
        task
    }

    #[tracing::instrument(name = "container", skip_all, fields(id = %self.container.id, pod = %self.container.sandbox))]
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let wake = self.next_wake();
            let starts = self.starting.is_some();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => if self.obey(command).await.is_break() {
                        return;
                    },
                    // Going down: the machine is left as it is.
                    None => return,
                },
                started = outcome(&mut self.starting), if starts => self.started(started).await,
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
                if let Err(error) = self.record().await {
                    let because = self.life.on(Event::NotBegun(Chain(&error).to_string()));
                    // It has ended, whatever becomes of its record.
                    let _ = self.perform(because).await;
                    let _ = reply.send(Err(error));
                    return;
                }
                let (host, container, unwanted) = (self.host.clone(), self.container.clone(), CancellationToken::new());
                let token = unwanted.clone();
                let task = tokio::spawn(async move { host.start(&container, &token).await });
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
        [stopping, self.give_up.as_ref().map(|give_up| give_up.at), again, self.lookout.at()]
            .into_iter()
            .flatten()
            .min()
    }

    async fn on_time(&mut self) {
        let now = Instant::now();
        if self.again.at().is_some_and(|at| now >= at) {
            self.settle().await;
        }
        if self.lookout.at().is_some_and(|at| now >= at) {
            self.look_for_room(now).await;
        }
        if let Some(GiveUp { cause, .. }) = self.give_up.as_ref().filter(|give_up| now >= give_up.at) {
            let cause = cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
            let what = format!("libvirt did not end the machine within {} s{cause}", DESTROY_DEADLINE.as_secs());
            self.answer_stops(|| Err(Error::new(Kind::Deadline, what.clone())));
            return;
        }
        match self.stopping.as_mut().and_then(|(stopping, _)| stopping.due(now)) {
            None => {}
            Some(Due::Press) => self.press(),
            Some(Due::Destroy) => {
                let give_up = self.give_up.get_or_insert(GiveUp { at: now + DESTROY_DEADLINE, cause: None });
                tracing::info!("machine did not power off in time; destroying it");
                match self.host.destroy(&self.container).await {
                    // The event says when and how; if it was lost with a connection, the state does.
                    Ok(()) => self.settle().await,
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "machine not destroyed; trying again");
                        give_up.cause = Some(Chain(&error).to_string());
                    }
                }
            }
        }
    }

    /// Presses the power button and goes on meanwhile: of a QEMU that hangs there is no answer, and the deadline is to be
    /// heard.
    fn press(&self) {
        let (host, container) = (self.host.clone(), self.container.clone());
        let press = async move {
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
        // A machine that runs stirs all the time. Of one that is not to be there nothing is to be heard.
        let runs = self.life.state() == ContainerState::Running && self.container.pause.is_none();
        if news.missed || news.paused || news.stirred && !runs {
            self.settle().await;
        }
    }

    /// Brings record, libvirt and the container's state together. What cannot be done now is tried again by the clock.
    async fn settle(&mut self) {
        if self.starting.is_some() {
            return;
        }
        self.again.begin();
        let recorded = if self.unwritten { self.record().await } else { Ok(()) };
        let compared = self.compare().await;
        if let Err(error) = recorded.and(compared) {
            tracing::warn!(error = %Chain(&error), "the container is not settled; trying again");
        }
        self.again.end();
    }

    async fn compare(&mut self) -> Result<()> {
        // What has to go is not asked for first: a start that is still on its way would not show.
        let seen = if self.life.is_unwanted() { Ok(None) } else { self.host.state(&self.container).await };
        match seen {
            Ok(seen) => {
                let done = self.happens(Event::Seen(seen.map(|seen| seen.phase))).await;
                self.paused(seen.and_then(|seen| seen.pause));
                if self.seed_left && self.life.state() == ContainerState::Running {
                    self.remove_seed(seen.is_some_and(|seen| seen.coming_up));
                }
                done
            }
            Err(error) => {
                self.again.failed(Instant::now());
                Err(error)
            }
        }
    }

    /// Removes the seed that a start of an earlier controld has left.
    fn remove_seed(&mut self, is_coming_up: bool) {
        if is_coming_up {
            self.again.failed(Instant::now());
            return;
        }
        match self.host.seed_is_read(&self.container) {
            Ok(()) => self.seed_left = false,
            Err(error) => {
                tracing::warn!(%error, "seed of a running machine not removed; trying again");
                self.again.failed(Instant::now());
            }
        }
    }

    /// Shows whether the machine is paused, and sets the clock if it is for us to end that.
    fn paused(&mut self, pause: Option<Pause>) {
        let pause = pause.filter(|_| self.life.state() == ContainerState::Running);
        match pause {
            Some(Pause::DiskFull) => self.lookout.paused(Instant::now()),
            Some(Pause::ByHand) | None => self.lookout.over(),
        }
        if pause == self.container.pause {
            return;
        }
        match pause {
            Some(pause) => tracing::warn!(disk = %self.container.machine.root.display(), "{}", pause.message()),
            None => tracing::info!("the guest is not paused any more"),
        }
        self.container.pause = pause;
        self.host.show(&self.container);
    }

    async fn look_for_room(&mut self, now: Instant) {
        self.lookout.looked(now);
        let gone_on = match self.host.room(&self.container).await {
            Ok(room) if room.is_enough() => self.host.go_on(&self.container).await,
            Ok(_full) => return,
            Err(cause) => Err(Error::because(Kind::Internal, "room on the machine's disk not looked for", cause)),
        };
        match gone_on {
            Ok(()) => {
                self.lookout.went_on(now);
                self.settle().await;
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "paused machine does not go on; trying again"),
        }
    }

    async fn happens(&mut self, event: Event) -> Result<()> {
        let act = self.life.on(event);
        self.perform(act).await
    }

    /// Does what was decided. After an error the clock is set.
    async fn perform(&mut self, act: Act) -> Result<()> {
        let done = match act {
            Act::Nothing | Act::Boot | Act::Await | Act::PowerOff(_) => Ok(()),
            Act::Refuse(kind, why) => {
                return Err(Error::new(kind, format!("container `{}` {why}", self.container.id)));
            }
            Act::Run => {
                self.runs().await;
                Ok(())
            }
            Act::Follow => {
                self.follow().await;
                Ok(())
            }
            Act::End(end) => {
                self.end(end).await;
                Ok(())
            }
            Act::Clear => match self.clear().await {
                Ok(()) => {
                    if let Act::End(end) = self.life.on(Event::Cleared) {
                        self.end(end).await;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if done.is_err() {
            self.show();
            self.again.failed(Instant::now());
        }
        done
    }

    async fn runs(&mut self) {
        self.container.started_at = now_nanos();
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "running machine not recorded; trying again");
        }
        self.follow().await;
    }

    async fn follow(&mut self) {
        if self.console.is_some() {
            return;
        }
        match self.host.follow(&self.container).await {
            Ok(console) => self.console = console,
            Err(error) => {
                tracing::error!(%error, "console not followed; trying again");
                self.again.failed(Instant::now());
            }
        }
    }

    async fn end(&mut self, end: End) {
        let (seen, was_up) = match &end {
            End::Machine(ending) => (*ending != Ending::Unseen, true),
            End::NeverUp(_) => (false, false),
        };
        let (reason, message) = end.reason(self.stopping.is_some(), self.host.boot().is_after(&self.container.boot));
        let exit = Exit::now(reason, message);
        tracing::info!(code = exit.code, reason = exit.reason.as_str(), "container ended");
        match self.console.take() {
            Some(console) => self.host.finish(console, seen).await,
            // Ended while we were down: what it printed last is still to be copied.
            None if was_up => {
                if let Ok(Some(console)) = self.host.follow(&self.container).await {
                    self.host.finish(console, false).await;
                }
            }
            None => {}
        }
        self.container.exit = Some(exit);
        self.container.pause = None;
        self.lookout.over();
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "end of the container not recorded; trying again");
        }
        // What libvirt knows of the end is needed until the record has it.
        if !self.unwritten
            && let Err(error) = self.host.clear(&self.container).await
        {
            tracing::warn!(error = %Chain(&error), "ended machine not undefined; trying again");
            self.again.failed(Instant::now());
        }
        self.answer_stops(|| Ok(()));
    }

    /// Makes sure that libvirt has no machine. One whose end is not on record yet stays, off: libvirt knows how it ended.
    async fn clear(&mut self) -> Result<()> {
        let ended = self.life.state() == ContainerState::Exited;
        if ended && self.unwritten && self.record().await.is_err() {
            return self.host.destroy(&self.container).await;
        }
        self.host.clear(&self.container).await
    }

    async fn remove(&mut self) -> Result<()> {
        let act = self.life.on(Event::Remove);
        if matches!(act, Act::Refuse(..)) {
            return self.perform(act).await;
        }
        let removed = async {
            self.host.clear(&self.container).await?;
            self.host.forget(&self.container).await
        };
        let removed = removed.await;
        if removed.is_err() {
            self.again.failed(Instant::now());
        }
        removed
    }

    async fn reopen_log(&mut self) -> Result<()> {
        let Some(console) = &self.console else {
            return Err(Error::new(Kind::State, format!("container `{}` does not run", self.container.id)));
        };
        let reopened = self.host.reopen(console).await;
        reopened.map_err(|cause| Error::because(Kind::Internal, "log not reopened", cause))
    }

    fn answer_stops(&mut self, answer: impl Fn() -> Result<()>) {
        self.give_up = None;
        for reply in self.stopping.take().map(|(_, waiting)| waiting).unwrap_or_default() {
            // A caller that is gone does not want its answer.
            let _ = reply.send(answer());
        }
    }

    /// Writes the record. One that cannot be written is true all the same: it is shown, and written when that is possible.
    async fn record(&mut self) -> Result<()> {
        self.container.state = self.life.state();
        let written = self.host.put(&self.container).await;
        self.unwritten = written.is_err();
        if self.unwritten {
            self.host.show(&self.container);
            self.again.failed(Instant::now());
        }
        written
    }

    /// Shows the state, if it is not what the record says.
    fn show(&mut self) {
        if self.container.state != self.life.state() {
            self.container.state = self.life.state();
            self.host.show(&self.container);
        }
    }
}

/// The outcome of the start under way.
async fn outcome<C>(starting: &mut Option<Starting<C>>) -> Result<Result<Option<C>>, JoinError> {
    match starting {
        Some(starting) => (&mut starting.task).await,
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
        let mut task = Task::new(FakeHost::new(), container("vm", 0), Arc::default());
        task.again.failed(Instant::now());
        let due = task.next_wake();
        assert!(due.is_some());
        let start = tokio::spawn(std::future::pending());
        let unwanted = CancellationToken::new();
        task.starting = Some(Starting { task: start, unwanted, starts: Vec::new(), stops: Vec::new() });
        assert_eq!(task.next_wake(), None);
        task.starting = None;
        assert_eq!(task.next_wake(), due, "it is done after the start");
    }
}
