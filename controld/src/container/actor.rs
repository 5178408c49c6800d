//! One task per container: it alone moves the machine, and it hears what libvirt says of it.
//!
//! [`super::machine`] decides, this acts. A start runs beside the task, and so do a change of resources, a checkpoint and the waits of a stop: it
//! goes on when libvirt tells the end, and further stops may shorten it. All other work is done one after the other, each call under a deadline.
//! What could not be done is tried again by the task's own clock, and after every new connection to libvirt. Callers may go
//! away at any time, the work goes on.

mod heard;
mod task;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use vmspec::Resources;
use vmspec::error::{Error, Kind, Result};

use self::heard::Heard;
use self::task::Task;
use super::gate::Cuts;
use super::host::Host;
use crate::hypervisor::HvEvent;
use crate::model::{CheckpointNote, Container};
use crate::trace::{self, Place};

/// How long after a panic the task is started anew: one that panics each time does not take a processor.
const REVIVED_AFTER: Duration = Duration::from_secs(1);

/// Way to a container's task. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    inbox: mpsc::Sender<Asked>,
    heard: Arc<Heard>,
}

type Reply = oneshot::Sender<Result<()>>;

/// A command, and where what is done for it belongs in a trace.
type Asked = (Command, Option<Place>);

#[derive(Debug)]
enum Command {
    Start(Reply),
    Stop { grace: Duration, reply: Reply },
    MakeWay(Reply),
    Replaced { attempt: u32, reply: Reply },
    Remove(Reply),
    ReopenLog(Reply),
    Update(Box<Resources>, Reply),
    Pause(Reply),
    Resume(Reply),
    Checkpoint { note: CheckpointNote, unwanted: CancellationToken, reply: Reply },
    EndCheckpoint(Reply),
}

impl Actor {
    /// Starts the task of a container.
    pub(super) fn spawn(host: impl Host, container: Container) -> Self {
        let (inbox, mut commands) = mpsc::channel(16);
        let heard = Arc::new(Heard::default());
        let cuts = cuts(inbox.downgrade(), heard.clone());
        let way = Self { inbox, heard: heard.clone() };
        let span = host.span(&container);
        let life = async move {
            let id = container.id;
            let mut task = Task::new(host.clone(), container, (heard.clone(), cuts.clone()));
            while AssertUnwindSafe(task.run(&mut commands)).catch_unwind().await.is_err() {
                tracing::error!(container = %id, "the task of the container panicked; starting it anew from its record");
                tokio::time::sleep(REVIVED_AFTER).await;
                let Some(record) = host.record(id) else { return };
                task = Task::revived(host.clone(), record, (heard.clone(), cuts.clone()));
                // Whatever was heard last may be lost.
                heard.hear(&HvEvent::Resync);
            }
        };
        tokio::spawn(life.instrument(span));
        way
    }

    /// See [`super::Containers::start`].
    pub(super) async fn start(&self) -> Result<()> {
        self.ask(Command::Start).await
    }

    /// See [`super::Containers::stop`].
    pub(super) async fn stop(&self, grace: Duration) -> Result<()> {
        self.ask(|reply| Command::Stop { grace, reply }).await
    }

    /// Makes sure that a container that was never up has no machine, so that its next attempt may have the disk.
    ///
    /// # Errors
    /// When it runs or is being started, or libvirt does not confirm it.
    pub(super) async fn make_way(&self) -> Result<()> {
        self.ask(Command::MakeWay).await
    }

    /// Ends a container that was never up: its next attempt, of number `attempt`, takes its place.
    ///
    /// # Errors
    /// When it runs or is being started.
    pub(super) async fn replaced(&self, attempt: u32) -> Result<()> {
        self.ask(|reply| Command::Replaced { attempt, reply }).await
    }

    /// Forgets a container that was stopped: its machine, its files, its record.
    ///
    /// # Errors
    /// When the machine runs, or something of it stays.
    pub(super) async fn remove(&self) -> Result<()> {
        self.ask(Command::Remove).await
    }

    /// See [`super::Containers::reopen_log`].
    pub(super) async fn reopen_log(&self) -> Result<()> {
        self.ask(Command::ReopenLog).await
    }

    /// See [`super::Containers::update`].
    pub(super) async fn update(&self, resources: Resources) -> Result<()> {
        self.ask(|reply| Command::Update(Box::new(resources), reply)).await
    }

    /// See [`super::Containers::pause`].
    pub(super) async fn pause(&self) -> Result<()> {
        self.ask(Command::Pause).await
    }

    /// See [`super::Containers::resume`].
    pub(super) async fn resume(&self) -> Result<()> {
        self.ask(Command::Resume).await
    }

    /// Writes the machine to a directory, and has it run on; see [`super::Containers::checkpoint`].
    ///
    /// # Errors
    /// When it does not run, something else is done to it, or a step fails: then it runs on, and the directory is empty, or both are tried again.
    pub(super) async fn checkpoint(&self, note: CheckpointNote, unwanted: CancellationToken) -> Result<()> {
        self.ask(|reply| Command::Checkpoint { note, unwanted, reply }).await
    }

    /// Gives up what checkpoint is being made, and has nothing left of it.
    ///
    /// # Errors
    /// When something is left; that is tried again.
    pub(super) async fn end_checkpoint(&self) -> Result<()> {
        self.ask(Command::EndCheckpoint).await
    }

    /// Tells the task what libvirt said. Does not wait.
    pub(super) fn hear(&self, event: &HvEvent) {
        self.heard.hear(event);
    }

    async fn ask(&self, command: impl FnOnce(Reply) -> Command) -> Result<()> {
        let gone = || Error::new(Kind::NotFound, "the container was removed meanwhile");
        let broken = || Error::new(Kind::Internal, "the container's task panicked and is started anew; try again");
        let (reply, answer) = oneshot::channel();
        self.inbox.send((command(reply), trace::here())).await.map_err(|_closed| gone())?;
        // A task that ended has closed the inbox; one that panicked has not.
        answer.await.map_err(|_dropped| if self.inbox.is_closed() { gone() } else { broken() })?
    }
}

/// A way that does not keep the task: it ends when nobody else has one.
fn cuts(inbox: mpsc::WeakSender<Asked>, heard: Arc<Heard>) -> Cuts {
    Cuts(Arc::new(move |note, unwanted| {
        let way = inbox.upgrade().map(|inbox| Actor { inbox, heard: heard.clone() });
        async move {
            let gone = || Error::new(Kind::NotFound, "the container was removed meanwhile");
            way.ok_or_else(gone)?.checkpoint(note, unwanted).await
        }
        .boxed()
    }))
}
