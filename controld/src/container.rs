//! Containers: each is one virtual machine. This service decides what there is; an [`actor`] moves one machine.
//!
//! A pod has one container at a time, since the container is the machine. A container that kubelet restarts is a new one
//! in the same sandbox, with the pod's disk.

mod actor;
mod actors;
mod admission;
mod checkpoint;
mod create;
pub mod explain;
mod gate;
mod host;
mod machine;
mod parts;
mod places;
mod qemu;
mod reboots;
mod resources;
mod restore;
mod slots;
mod start;
mod tally;
mod uses;
mod verbs;
mod warm;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Chain;
use common::KeyedMutex;
use proto::tap::PodId;
use vmspec::error::{Error, Kind, Result};
use vmspec::{ContainerId, MachineId, Resources};

use self::actors::Actors;
pub use self::checkpoint::Waking;
pub use self::create::Create;
pub use self::places::Checkpoints;
pub use self::reboots::Reboots;
use self::resources::usage;
pub use self::resources::usage::{Details, Filesystem, Usage};
pub use self::tally::Tally;
pub use self::uses::Uses;
use crate::disks::growth;
use crate::guest::agents::{self, Output};
use crate::hypervisor::HvEvent;
use crate::model::{Container, Sandbox, SandboxState};

/// The service. Clones share it.
#[derive(Debug, Clone)]
pub struct Containers {
    uses: Arc<Uses>,
    mutex: KeyedMutex,
    actors: Actors,
}

impl Containers {
    /// The service over these, with an actor for every container on record.
    #[must_use]
    pub fn new(uses: Arc<Uses>, mutex: KeyedMutex) -> Self {
        let actors = Actors::default();
        for container in uses.store.containers() {
            if let Some(process) = container.process {
                uses.processes.tell(container.machine.id.uuid(), process);
            }
            actors.add(uses.clone(), &container);
        }
        Self { uses, mutex, actors }
    }

    /// Starts a container's machine; fine if it runs.
    ///
    /// # Errors
    /// When it has ended before, or could not be started; then it has ended with `StartError`.
    pub async fn start(&self, id: ContainerId) -> Result<()> {
        let container = self.get(id)?;
        // A container may outlive its pod's network, but a machine is not started without.
        self.ready_sandbox(&container.sandbox)?;
        self.actors.get(id)?.start().await
    }

    /// Stops a container's machine within `grace`, then by force; fine if there is none.
    ///
    /// # Errors
    /// When libvirt does not do it.
    pub async fn stop(&self, id: ContainerId, grace: Duration) -> Result<()> {
        match self.actors.get(id) {
            Ok(actor) => actor.stop(grace).await,
            Err(_absent) => Ok(()),
        }
    }

    /// Removes a container, its machine included; fine if there is none. The log stays, it is kubelet's.
    ///
    /// # Errors
    /// When its machine cannot be stopped, or the record not be removed.
    pub async fn remove(&self, id: ContainerId) -> Result<()> {
        let (Ok(actor), Ok(container)) = (self.actors.get(id), self.get(id)) else { return Ok(()) };
        actor.stop(Duration::ZERO).await?;
        actor.remove().await?;
        self.actors.forget(id);
        self.uses.processes.forget(container.machine.id.uuid());
        self.uses.agents.forget(container.machine.id);
        tracing::info!(container = %id, "container removed");
        Ok(())
    }

    /// The log was renamed away: goes on in a new file.
    ///
    /// # Errors
    /// When the container does not run, or the file cannot be made.
    pub async fn reopen_log(&self, id: ContainerId) -> Result<()> {
        self.get(id)?;
        self.actors.get(id)?.reopen_log().await
    }

    /// Changes the resources of a container that runs, all or none of them. What is zero or empty stays as it is.
    ///
    /// # Errors
    /// When it does not run, or its machine cannot have these without a restart.
    pub async fn update(&self, id: ContainerId, resources: Resources) -> Result<()> {
        let container = self.get(id)?;
        self.actors.get(id)?.update(resources).await?;
        growth::look(&self.uses.disks, &container).await;
        Ok(())
    }

    /// Pauses a container's guest until somebody lets it go on; fine if it is paused by hand.
    ///
    /// # Errors
    /// When the container does not run, is being stopped or waits for room on the disk, or libvirt does not do it.
    pub async fn pause(&self, id: ContainerId) -> Result<()> {
        self.get(id)?;
        self.actors.get(id)?.pause().await
    }

    /// Lets a container's guest go on, whoever has paused it; fine if nobody has.
    ///
    /// # Errors
    /// When the container does not run, or libvirt does not do it.
    pub async fn resume(&self, id: ContainerId) -> Result<()> {
        self.get(id)?;
        self.actors.get(id)?.resume().await
    }

    /// Runs a command in a container's guest to its end. Dropping the future kills it.
    ///
    /// # Errors
    /// When the container does not run, no agent answers in the guest, or the command does not end in time.
    pub async fn exec_sync(&self, id: ContainerId, argv: Vec<String>, deadline: Option<Duration>) -> Result<Output> {
        let container = self.get(id)?;
        self.uses.agents.run(agents::Command::of(&container, argv)?, deadline).await
    }

    /// Waits until our agent in a guest could start a command.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn await_agent(&self, command: &agents::Command) -> Result<()> {
        self.uses.agents.await_ours(command).await
    }

    /// Where the disks of pods lie.
    #[must_use]
    pub fn disks_dir(&self) -> &Path {
        self.uses.volumes.dir()
    }

    /// What these containers use. One that cannot be looked at is left out, and the log says why.
    pub async fn usage(&self, containers: Vec<Arc<Container>>) -> Vec<(Arc<Container>, Usage)> {
        usage::of(self.uses.processes.clone(), containers).await
    }

    /// More of what these containers use that run. One that cannot be looked at is left out, and the log says why.
    pub async fn details(&self, containers: Vec<Arc<Container>>) -> Vec<(Arc<Container>, Details)> {
        let (processes, disks) = (self.uses.processes.clone(), self.disks_dir().to_owned());
        usage::details(processes, disks, self.uses.cgroups.clone(), containers).await
    }

    /// The container.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, id: ContainerId) -> Result<Arc<Container>> {
        self.uses.store.container(id).ok_or_else(|| Error::new(Kind::NotFound, format!("no container `{id}`")))
    }

    /// Hands an event of libvirt to the containers that it is about. Waits for nobody.
    pub fn hear(&self, event: &HvEvent) {
        self.actors.hear(event);
        if let HvEvent::Reboot { id } = event
            && self.actors.has(MachineId::from(*id))
        {
            let machine = MachineId::from(*id);
            self.uses.agents.rebooted(machine);
            if self.uses.reboots.hear(machine, Instant::now()) {
                tracing::info!(%machine, "the guest was rebooted");
            }
        }
        // A definition that was given up and that libvirt came to after its container was removed.
        if let HvEvent::Lifecycle { id, .. } = event
            && self.actors.was_removed(MachineId::from(*id))
        {
            let (uses, id) = (self.uses.clone(), *id);
            tokio::spawn(async move {
                if let Err(error) = uses.hypervisor.clear(id).await {
                    tracing::warn!(%id, error = %Chain(&error), "machine of a removed container not cleared away");
                }
            });
        }
    }

    fn ready_sandbox(&self, id: &PodId) -> Result<Arc<Sandbox>> {
        let sandbox =
            self.uses.store.sandbox(id).ok_or_else(|| Error::new(Kind::NotFound, format!("no sandbox `{id}`")))?;
        if sandbox.state != SandboxState::Ready {
            return Err(Error::new(Kind::State, format!("sandbox `{id}` is not ready; make a new one")));
        }
        Ok(sandbox)
    }
}

#[cfg(test)]
pub(crate) mod tests;
