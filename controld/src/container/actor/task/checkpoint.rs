//! A checkpoint of a machine that runs. It goes on beside the task, as it takes as long as memory and disks are large, and a stop is to be
//! heard meanwhile, which gives it up. So do letting the guest go on and removing files afterwards: the directory may not answer.
//!
//! That the guest may be paused for it is on record before it is, and until it is known to run again; and so are its files. A guest stays
//! paused under no error and no end of this process: [`Task::end_checkpoint`] is tried again by the clock, and by the next controld.

use std::time::Duration;

use common::Chain;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use vmspec::error::{Error, Kind, Result};

use super::Task;
use crate::container::actor::Reply;
use crate::container::checkpoint::not_amid;
use crate::container::host::Host;
use crate::model::CheckpointNote;
use crate::trace;

/// How long a guest may take to go on whose checkpoint is not wanted any more, before a stop goes on without it.
const GOES_ON_WITHIN: Duration = Duration::from_secs(10);
/// How long its files may take to go besides, before it is left to another try.
const OVER_WITHIN: Duration = Duration::from_secs(20);

/// A checkpoint under way, or the end of one.
pub(super) struct Checkpoint {
    pub(super) task: AbortOnDropHandle<Over>,
    /// Gives it up.
    unwanted: CancellationToken,
    /// Cancelled when the guest is known to go on, while its files are still worked on.
    pub(super) goes_on: CancellationToken,
    /// Cancelled when the guest goes on, or that was tried in vain.
    let_go: CancellationToken,
    /// Who waits for one that is made; nobody waits for an end alone.
    reply: Option<Reply>,
}

/// What came of it.
pub(super) struct Over {
    /// `None` if it was an end alone.
    written: Option<Result<()>>,
    goes_on: bool,
    /// Whether no file is left but those of a checkpoint that is whole.
    is_clear: bool,
}

impl<H: Host> Task<H> {
    pub(super) async fn checkpoint(&mut self, note: CheckpointNote, unwanted: CancellationToken, reply: Reply) {
        match self.note_checkpoint(note.clone()).await {
            Ok(()) => self.checkpoint = Some(self.beside(note, unwanted, Some(reply))),
            // A caller that is gone does not want its answer.
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    async fn note_checkpoint(&mut self, note: CheckpointNote) -> Result<()> {
        self.runs_for("checkpointed")?;
        self.is_not_written("checkpointed")?;
        let id = self.container.id;
        if let Some(CheckpointNote { dir, .. }) = &self.container.checkpoint {
            let is_made = self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.reply.is_some());
            let dir = dir.display();
            let what = if is_made {
                format!("the last checkpoint of container `{id}` is still being written to `{dir}`; try again")
            } else {
                format!(
                    "what is left of the last checkpoint of container `{id}` in `{dir}` is being removed; try again"
                )
            };
            return Err(Error::new(Kind::Unavailable, what));
        }
        if let Some(pause) = self.container.pause {
            let what = format!("container `{id}` cannot be checkpointed: {}", pause.message());
            return Err(Error::new(Kind::State, what));
        }
        // Its start, of an earlier controld, has yet to let it run.
        if self.is_held {
            let what = format!("container `{id}` is still being started, so it cannot be checkpointed; try again");
            return Err(Error::new(Kind::Unavailable, what));
        }
        if self.stopping.is_some() {
            let what = format!("container `{id}` is being stopped, so it cannot be checkpointed");
            return Err(Error::new(Kind::State, what));
        }
        if self.change.is_some() {
            let what = format!("the resources of container `{id}` are being changed; try again");
            return Err(Error::new(Kind::Unavailable, what));
        }
        self.container.checkpoint = Some(note);
        let noted = self.record().await;
        if noted.is_err() {
            // Nothing was done.
            self.container.checkpoint = None;
            self.host.show(&self.container);
        }
        noted
    }

    /// Writes a checkpoint if somebody waits for that, and has done afterwards what is left to do, as the note says.
    fn beside(&self, note: CheckpointNote, unwanted: CancellationToken, reply: Option<Reply>) -> Checkpoint {
        let (host, container, writes) = (self.host.clone(), self.container.clone(), reply.is_some());
        let (token, let_go, runs) = (unwanted.clone(), CancellationToken::new(), CancellationToken::new());
        let (tried, goes_on_now) = (let_go.clone().drop_guard(), runs.clone());
        let work = async move {
            let (mut goes_on, written) = if writes {
                let (goes_on, written) = host.checkpoint(&container, &note, &token, &goes_on_now).await;
                (goes_on, Some(written))
            } else {
                (note.goes_on, None)
            };
            if !goes_on {
                match host.end_save(&container).await {
                    Ok(()) => goes_on = true,
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), "a checkpoint is over, and its guest does not go on; trying again");
                    }
                }
            }
            drop(tried);
            if goes_on {
                goes_on_now.cancel();
            }
            let mut is_clear = matches!(written, Some(Ok(())));
            if !is_clear {
                match host.clear_checkpoint(&container, &note).await {
                    Ok(()) => is_clear = true,
                    Err(error) => {
                        tracing::warn!(dir = %note.dir.display(), error = %Chain(&error), "files of a checkpoint that broke off stay; trying again");
                    }
                }
            }
            Over { written, goes_on, is_clear }
        };
        let task = AbortOnDropHandle::new(tokio::spawn(trace::carried(work).in_current_span()));
        Checkpoint { task, unwanted, goes_on: runs, let_go, reply }
    }

    /// Whether something may be done to the machine that is not to happen amid a checkpoint.
    pub(super) fn is_not_written(&self, what: &str) -> Result<()> {
        not_amid(&self.container, what)
    }

    /// The guest goes on, and what is left of its checkpoint is files alone: a pause is whoever's has made it from now on, and no later
    /// controld ends it.
    pub(super) async fn goes_on(&mut self) {
        let Some(note) = &mut self.container.checkpoint else { return };
        note.goes_on = true;
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "that a guest goes on after its checkpoint is not recorded; trying again");
        }
        // It may be paused by now.
        self.settle().await;
    }

    pub(super) async fn written(&mut self, outcome: Result<Over, JoinError>) {
        let Some(Checkpoint { reply, .. }) = self.checkpoint.take() else { return };
        let broke_off = |cause| {
            let written = Err(Error::because(Kind::Internal, "the checkpoint broke off", cause));
            Over { written: Some(written), goes_on: false, is_clear: false }
        };
        let Over { written, goes_on, is_clear } = outcome.unwrap_or_else(broke_off);
        match &written {
            Some(Ok(())) => tracing::info!("checkpoint written"),
            Some(Err(error)) => tracing::warn!(error = %Chain(error), "checkpoint not written"),
            None => {}
        }
        let before = self.container.checkpoint.take();
        let left = before.clone().map(|note| CheckpointNote { goes_on: goes_on || note.goes_on, ..note });
        self.container.checkpoint = left.filter(|note| !note.goes_on || !is_clear);
        if self.container.checkpoint != before
            && let Err(error) = self.record().await
        {
            tracing::error!(error = %Chain(&error), "end of a checkpoint not recorded; trying again");
        }
        match self.container.checkpoint {
            Some(_) => self.again.failed(Instant::now()),
            None => self.again.end(),
        }
        if let (Some(reply), Some(written)) = (reply, written) {
            let _ = reply.send(written);
        }
        if before.is_some_and(|note| !note.goes_on) && !self.container.is_written() {
            // As above, where nobody came to that.
            self.settle().await;
        }
    }

    /// Begins to have the guest run again, and nothing left of a checkpoint that is not whole, if there is one and nothing of that is under
    /// way. Tried again by the clock.
    pub(super) fn end_checkpoint(&mut self) {
        if self.checkpoint.is_none()
            && let Some(note) = self.container.checkpoint.clone()
        {
            self.checkpoint = Some(self.beside(note, CancellationToken::new(), None));
        }
    }

    /// Gives a checkpoint up. What is left of it goes by itself.
    pub(super) fn unwant_checkpoint(&self) {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.unwanted.cancel();
        }
    }

    /// Gives a checkpoint up, and waits until the guest goes on, but not for long. That is tried now, also if it was in vain just before.
    pub(super) async fn give_up_checkpoint(&mut self, within: Duration) {
        self.end_checkpoint();
        self.unwant_checkpoint();
        if let Some(let_go) = self.checkpoint.as_ref().map(|checkpoint| checkpoint.let_go.clone()) {
            // Late, the machine ends as it is.
            let _ = timeout(within.min(GOES_ON_WITHIN), let_go.cancelled()).await;
        }
    }

    /// Gives a checkpoint up, and waits until nothing is left of it, but not for long.
    ///
    /// # Errors
    /// When something is: it is on record still, and tried again.
    pub(super) async fn no_checkpoint(&mut self) -> Result<()> {
        self.end_checkpoint();
        self.unwant_checkpoint();
        let over = match &mut self.checkpoint {
            Some(checkpoint) => timeout(OVER_WITHIN, &mut checkpoint.task).await.ok(),
            None => None,
        };
        if let Some(outcome) = over {
            self.written(outcome).await;
        }
        let Some(CheckpointNote { dir, .. }) = &self.container.checkpoint else { return Ok(()) };
        let (id, dir) = (self.container.id, dir.display());
        let what = format!(
            "files of a checkpoint of container `{id}` are left in `{dir}`, which does not give them up yet; try again, or unmount what does not answer there"
        );
        Err(Error::new(Kind::Unavailable, what))
    }
}
