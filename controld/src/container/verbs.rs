//! What is done to a machine that runs, and does not move its container: the reset button, what its guest is asked, its screen.

use std::path::PathBuf;
use std::time::Duration;

use common::Chain;
use proto::tap::PodId;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Span;
use vmspec::ContainerId;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::Containers;
use super::checkpoint;
use super::host::Host as _;
use crate::guest::agents::{Facts, FileSystem, List, User};
use crate::guest::screen::Screen;
use crate::model::{Container, ContainerState};

/// How long all checkpoints may take to be given up when controld goes down: a task may be at other work, and systemd waits no more than 90 s.
const GOING_DOWN: Duration = Duration::from_secs(30);

impl Containers {
    /// Resets a container's machine, without a word to its guest; one that is paused stays so.
    ///
    /// # Errors
    /// When the container does not run, or libvirt does not do it.
    pub async fn reset(&self, id: ContainerId) -> Result<()> {
        let container = self.get(id)?;
        runs(&container, "reset")?;
        checkpoint::not_amid(&container, "reset")?;
        self.uses.hypervisor.reset(container.machine.id.uuid()).await
    }

    /// Asks a container's guest to reboot: by an agent, or by the power button where none does it.
    ///
    /// # Errors
    /// When the container does not run, is paused, or libvirt does not do it.
    pub async fn reboot(&self, id: ContainerId) -> Result<()> {
        let machine = self.awake(id, "rebooted in order")?;
        let Err(error) = self.uses.agents.reboot(machine).await else { return Ok(()) };
        tracing::debug!(error = %Chain(&error), "no agent reboots the guest; its power button is pressed");
        self.uses.hypervisor.reboot(machine.uuid()).await
    }

    /// Freezes the file systems of a container's guest, for no longer than this.
    ///
    /// # Errors
    /// When the container does not run or is paused, they are frozen, or QEMU's agent does not do it.
    pub async fn freeze(&self, id: ContainerId, limit: Duration) -> Result<()> {
        self.uses.agents.freeze(self.awake(id, "frozen")?, limit).await
    }

    /// Thaws the file systems of a container's guest; fine if they are not frozen.
    ///
    /// # Errors
    /// When the container does not run or is paused, or QEMU's agent does not do it.
    pub async fn thaw(&self, id: ContainerId) -> Result<()> {
        self.uses.agents.thaw(self.awake(id, "thawed")?).await
    }

    /// What is known of a container's guest.
    ///
    /// # Errors
    /// When the container does not run or is paused, or QEMU's agent does not answer.
    pub async fn facts(&self, id: ContainerId) -> Result<Facts> {
        self.uses.agents.facts(self.awake(id, "asked")?).await
    }

    /// Who is logged in in a container's guest.
    ///
    /// # Errors
    /// When the container does not run or is paused, or QEMU's agent does not answer.
    pub async fn users(&self, id: ContainerId) -> Result<List<User>> {
        self.uses.agents.users(self.awake(id, "asked")?).await
    }

    /// What is mounted in a container's guest.
    ///
    /// # Errors
    /// When the container does not run or is paused, or QEMU's agent does not answer.
    pub async fn file_systems(&self, id: ContainerId) -> Result<List<FileSystem>> {
        self.uses.agents.file_systems(self.awake(id, "asked")?).await
    }

    /// Writes the machine of a pod to a directory that is there and empty, as it is at one instant, until `unwanted` gives it up. It is paused
    /// for a part of that, and runs on whatever comes of it. `asked` are the pod's containers that are meant, all that run if there are none.
    ///
    /// # Errors
    /// When the machine does not run or cannot be written, before anything of it stops; when the directory is none for it, or a step fails.
    /// Then the directory is empty again, at once or once it can be.
    pub async fn checkpoint(
        &self,
        sandbox: &PodId,
        asked: &[ContainerId],
        path: &str,
        unwanted: CancellationToken,
    ) -> Result<()> {
        let container = checkpoint::which(&self.uses.store.containers_of(sandbox), asked)?;
        let dir = checkpoint::judge(&self.uses, &container, path).await?;
        self.actors.get(container.id)?.checkpoint(checkpoint::note(dir), unwanted).await
    }

    /// What gives one checkpoint up.
    #[must_use]
    pub fn checkpoint_token(&self) -> CancellationToken {
        self.uses.checkpoints.token()
    }

    /// Checkpoints that are not being made and of which files are left, or a guest that does not go on: whose, and the directory.
    #[must_use]
    pub fn checkpoints_left(&self) -> Vec<(ContainerId, PathBuf)> {
        let tally = self.uses.checkpoints.tally();
        let containers = self.uses.store.containers();
        let left = containers.iter().filter_map(|container| {
            let note = container.checkpoint.as_ref().filter(|note| !tally.is_making(note.id))?;
            Some((container.id, note.dir.clone()))
        });
        left.collect()
    }

    /// Gives all checkpoints up, as controld goes down, and waits until nothing is left of them, but not for long. Those that broke off
    /// before, and of which files alone are left, are the next start's: what holds these up is not to hold up each restart.
    pub async fn end_checkpoints(&self) {
        self.uses.checkpoints.close();
        let tally = self.uses.checkpoints.tally();
        let is_making = |container: &Container| {
            container.is_written() || container.checkpoint.as_ref().is_some_and(|note| tally.is_making(note.id))
        };
        let under_way = self.uses.store.containers().into_iter().filter(|container| is_making(container));
        let ends = under_way.map(|container| async move {
            let Ok(actor) = self.actors.get(container.id) else { return };
            if let Err(error) = actor.end_checkpoint().await {
                tracing::warn!(container = %container.id, error = %Chain(&error), "left for the next start");
            }
        });
        if timeout(GOING_DOWN, futures_util::future::join_all(ends)).await.is_err() {
            tracing::warn!("checkpoints are not over within {} s; left for the next start", GOING_DOWN.as_secs());
        }
    }

    /// The screen of a container's machine.
    ///
    /// # Errors
    /// When the machine has none, or does not run.
    pub(crate) async fn screen(&self, container: &Container) -> Result<Screen> {
        let none = || Error::new(Kind::State, "the VM has no screen; its runtime handler needs `graphics = \"vnc\"`");
        container.machine.hardware.extras.graphics.ok_or_else(none)?;
        runs(container, "looked at")?;
        Ok(Screen::of(&self.uses.config, &self.uses.processes, &container.machine).await)
    }

    /// The span of work on a container that no call waits for.
    pub(crate) fn span(&self, container: &Container) -> Span {
        self.uses.span(container)
    }

    /// The machine of a container whose guest can be asked something.
    fn awake(&self, id: ContainerId, what: &str) -> Result<MachineId> {
        let container = self.get(id)?;
        runs(&container, what)?;
        checkpoint::not_amid(&container, what)?;
        if let Some(pause) = container.pause {
            let what = format!("the guest cannot be {what}: {}", pause.message());
            return Err(Error::new(Kind::State, what));
        }
        Ok(container.machine.id)
    }
}

fn runs(container: &Container, what: &str) -> Result<()> {
    if container.state == ContainerState::Running {
        return Ok(());
    }
    let what = format!("container `{}` does not run, so it cannot be {what}", container.id);
    Err(Error::new(Kind::State, what))
}
