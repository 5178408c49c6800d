//! A change of the resources of a machine that runs. It goes on beside the task: a guest takes its time to give memory back, and a
//! QEMU that hangs does not answer, while a stop is to be heard at once.

use common::Chain;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use vmspec::error::{Error, Kind, Result};
use vmspec::{Applied, Resources};

use super::Task;
use crate::container::actor::Reply;
use crate::container::host::Host;
use crate::model::ContainerState;
use crate::trace;

/// What a machine has after a change, and whether that is what was wanted.
type Outcome = (Applied, Result<()>);

/// A change under way.
pub(super) struct Change {
    pub(super) task: AbortOnDropHandle<Outcome>,
    wanted: Resources,
    reply: Reply,
}

impl<H: Host> Task<H> {
    pub(super) fn update(&mut self, update: &Resources, reply: Reply) {
        let id = self.container.id;
        let refusal = if self.life.state() != ContainerState::Running {
            let what = format!("container `{id}` does not run, so its resources stay as they are");
            Some(Error::new(Kind::State, what))
        } else if self.change.is_some() {
            let what = format!("the resources of container `{id}` are being changed; try again");
            Some(Error::new(Kind::Unavailable, what))
        } else {
            self.is_not_written("given other resources").err()
        };
        if let Some(error) = refusal {
            // A caller that is gone does not want its answer.
            let _ = reply.send(Err(error));
            return;
        }
        let wanted = self.container.config.resources.clone().unwrap_or_default().updated(update);
        let (host, container, resources) = (self.host.clone(), self.container.clone(), wanted.clone());
        let change = async move { host.resize(&container, &resources).await };
        let task = AbortOnDropHandle::new(tokio::spawn(trace::carried(change).in_current_span()));
        self.change = Some(Change { task, wanted, reply });
    }

    pub(super) async fn changed(&mut self, outcome: Result<Outcome, JoinError>) {
        let Some(Change { wanted, reply, .. }) = self.change.take() else { return };
        let answer = match outcome {
            Ok((applied, changed)) => {
                // One that has ended meanwhile has nothing.
                if self.life.state() == ContainerState::Running {
                    self.has(applied, changed.is_ok().then_some(wanted)).await;
                }
                changed
            }
            Err(cause) => Err(Error::because(Kind::Internal, "the change of resources broke off", cause)),
        };
        let _ = reply.send(answer);
    }

    /// Waits until no change is under way. With its machine gone it ends soon.
    pub(super) async fn end_change(&mut self) {
        if let Some(change) = &mut self.change {
            let outcome = (&mut change.task).await;
            self.changed(outcome).await;
        }
    }

    async fn has(&mut self, applied: Applied, resources: Option<Resources>) {
        tracing::info!(vcpus = applied.vcpus, memory = applied.memory, "resources as they are now");
        self.container.applied = Some(applied);
        if resources.is_some() {
            self.container.config.resources = resources;
        }
        // In force, whether or not it can be written now.
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "changed resources not recorded; trying again");
        }
    }
}
