//! A checkpoint of a machine that runs. It goes on beside the task, as it takes as long as memory and disks are large, and a stop is to be
//! heard meanwhile, which gives it up.
//!
//! That the guest may be paused for it is on record before it is, and until it is known to run again. So a guest stays paused under no
//! error and no end of this process: [`Task::end_checkpoint`] is tried again by the clock, and by the next controld.

use std::path::PathBuf;
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
use crate::container::host::Host;
use crate::trace;

/// How long one that is not wanted any more may take to end, before others go on without it.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(10);

/// A checkpoint under way.
pub(super) struct Checkpoint {
    pub(super) task: AbortOnDropHandle<Result<()>>,
    /// Gives it up.
    unwanted: CancellationToken,
    reply: Reply,
}

impl<H: Host> Task<H> {
    pub(super) async fn checkpoint(&mut self, dir: PathBuf, unwanted: CancellationToken, reply: Reply) {
        if let Err(error) = self.note_checkpoint(dir.clone()).await {
            // A caller that is gone does not want its answer.
            let _ = reply.send(Err(error));
            return;
        }
        let (host, container, token) = (self.host.clone(), self.container.clone(), unwanted.clone());
        let write = async move { host.checkpoint(&container, &dir, &token).await };
        let task = AbortOnDropHandle::new(tokio::spawn(trace::carried(write).in_current_span()));
        self.checkpoint = Some(Checkpoint { task, unwanted, reply });
    }

    async fn note_checkpoint(&mut self, dir: PathBuf) -> Result<()> {
        self.runs_for("checkpointed")?;
        self.is_not_written("checkpointed")?;
        let id = self.container.id;
        if let Some(pause) = self.container.pause {
            let what = format!("container `{id}` cannot be checkpointed: {}", pause.message());
            return Err(Error::new(Kind::State, what));
        }
        if self.stopping.is_some() {
            let what = format!("container `{id}` is being stopped, so it cannot be checkpointed");
            return Err(Error::new(Kind::State, what));
        }
        if self.change.is_some() {
            let what = format!("the resources of container `{id}` are being changed; try again");
            return Err(Error::new(Kind::Unavailable, what));
        }
        self.container.checkpoint = Some(dir);
        let noted = self.record().await;
        if noted.is_err() {
            // Nothing was done.
            self.container.checkpoint = None;
            self.host.show(&self.container);
        }
        noted
    }

    /// Whether something may be done to the machine that is not to happen amid a checkpoint.
    pub(super) fn is_not_written(&self, what: &str) -> Result<()> {
        if self.container.checkpoint.is_none() {
            return Ok(());
        }
        let what =
            format!("a checkpoint of container `{}` is being made, so it is not {what}; try again", self.container.id);
        Err(Error::new(Kind::Unavailable, what))
    }

    pub(super) async fn written(&mut self, outcome: Result<Result<()>, JoinError>) {
        let Some(Checkpoint { reply, .. }) = self.checkpoint.take() else { return };
        let written =
            outcome.unwrap_or_else(|cause| Err(Error::because(Kind::Internal, "the checkpoint broke off", cause)));
        match &written {
            Ok(()) => tracing::info!(dir = ?self.container.checkpoint, "checkpoint written"),
            Err(error) => tracing::warn!(error = %Chain(error), "checkpoint not written"),
        }
        self.end_checkpoint().await;
        let _ = reply.send(written);
    }

    /// Has the guest run again, and nothing left of a checkpoint that is not whole. Tried again by the clock.
    pub(super) async fn end_checkpoint(&mut self) {
        let Some(dir) = self.container.checkpoint.clone().filter(|_| self.checkpoint.is_none()) else { return };
        match self.host.end_checkpoint(&self.container, &dir).await {
            Ok(()) => {
                self.container.checkpoint = None;
                if let Err(error) = self.record().await {
                    tracing::error!(error = %Chain(&error), "end of a checkpoint not recorded; trying again");
                }
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "a checkpoint is over, and not cleared away; trying again");
                self.again.failed(Instant::now());
            }
        }
    }

    /// Gives a checkpoint up, and waits for its end, but not for long.
    pub(super) async fn give_up_checkpoint(&mut self, within: Duration) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        checkpoint.unwanted.cancel();
        if let Ok(outcome) = timeout(within.min(GIVEN_UP_WITHIN), &mut checkpoint.task).await {
            self.written(outcome).await;
        }
    }

    /// Gives a checkpoint up whose machine is gone or has to go. What is left of it is for [`Self::end_checkpoint`], by the clock.
    pub(super) async fn drop_checkpoint(&mut self) {
        let Some(Checkpoint { mut task, unwanted, reply }) = self.checkpoint.take() else { return };
        unwanted.cancel();
        let ended = || {
            let what = format!("the machine of container `{}` ended amid its checkpoint", self.container.id);
            Err(Error::new(Kind::State, what))
        };
        let written = match timeout(GIVEN_UP_WITHIN, &mut task).await {
            Ok(Ok(Ok(()))) => Ok(()),
            _ => ended(),
        };
        let _ = reply.send(written);
        self.again.failed(Instant::now());
    }
}
