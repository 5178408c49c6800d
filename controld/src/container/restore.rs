//! A container whose guest goes on from a checkpoint: what the service does for it beside what it does for any other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proto::tap::{PodId, PodNet};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{DiskImage, Layer, MachinePlan, Passed, RootDisk};
use vmspec::{ContainerConfig, ContainerId, SandboxConfig};

use super::checkpoint::{self, Wanted};
use super::create::Drafted;
use super::{Containers, Create, Waking};
use crate::disks::image_volumes;
use crate::model::{Container, ContainerState, RestoreNote};

impl Containers {
    /// Opens the checkpoint in a directory.
    ///
    /// # Errors
    /// When there is none that can be read, or the directory does not answer.
    pub async fn open_checkpoint(&self, path: &str) -> Result<Waking> {
        checkpoint::open(&self.uses, path).await
    }

    /// Whether the guest of a checkpoint can go on as this container of a pod that is not there yet, whose annotations are these: whether it
    /// learns other MAC addresses.
    ///
    /// # Errors
    /// When it cannot; all that differs is told. That of [`Self::create`].
    pub async fn can_restore(
        &self,
        waking: &Waking,
        sandbox: &SandboxConfig,
        wanted: &ContainerConfig,
        annotations: &BTreeMap<String, String>,
    ) -> Result<bool> {
        let drafted = self.draft(sandbox, wanted, annotations, Some(waking)).await?;
        self.can_go_on(waking, sandbox, &drafted, None).await
    }

    /// Makes a container whose guest goes on from a checkpoint once it is started.
    ///
    /// # Errors
    /// That of [`Self::create`]; when the guest cannot go on as this, a file of the checkpoint is damaged, or the sandbox has a container, which
    /// may be of no checkpoint.
    pub async fn restore(&self, create: Create, waking: &Waking) -> Result<ContainerId> {
        self.create_of(create, Some(waking)).await
    }

    /// Counts that a pod was made of a checkpoint, or was not.
    pub fn count_restored(&self, is_made: bool) {
        self.uses.checkpoints.tally().restored(is_made);
    }

    /// The container that an earlier [`Self::restore`] has made in a sandbox of the same checkpoint, if it was not started since.
    #[must_use]
    pub fn restored(&self, sandbox: &PodId, wanted: &ContainerConfig, waking: &Waking) -> Option<ContainerId> {
        let known = self.uses.store.sandbox(sandbox)?;
        let note = waking.note(&known);
        let is_it = |container: &Container| {
            let Container { config, state, restore, .. } = container;
            let is_named = config.name == wanted.name && config.attempt == wanted.attempt;
            is_named && *state == ContainerState::Created && restore.as_ref() == Some(&note)
        };
        self.uses.store.containers_of(sandbox).iter().find(|container| is_it(container)).map(|container| container.id)
    }

    /// What the last container of a sandbox was to go on from and did not come to, if the next one is the same machine with the same disk: then
    /// it does.
    ///
    /// # Errors
    /// When its memory cannot be handed over.
    pub(super) async fn inherited(&self, sandbox: &PodId, machine: &MachinePlan) -> Result<Option<RestoreNote>> {
        let all = self.uses.store.containers_of(sandbox);
        let ended = all.iter().filter(|container| container.state == ContainerState::Exited);
        let Some(last) = ended.max_by_key(|container| container.created_at) else { return Ok(None) };
        // One that was to begin with its image's boot does that by itself.
        let Some(note) = last.restore.as_ref().filter(|note| !note.is_warm) else { return Ok(None) };
        let is_there = checkpoint::hand_over(&last.machine, machine).await?;
        Ok(is_there.then(|| note.clone()))
    }

    /// The same of a draft, with the pod's network, if it has one.
    pub(super) async fn can_go_on(
        &self,
        waking: &Waking,
        sandbox: &SandboxConfig,
        drafted: &Drafted,
        net: Option<&PodNet>,
    ) -> Result<bool> {
        if let Some(why) = drafted.cannot_go_on() {
            return Err(Error::new(Kind::State, format!("a pod cannot be made of a checkpoint: {why}")));
        }
        let (plan, root) = self.plan_of(waking.container(), sandbox, drafted)?;
        let wanted = Wanted { plan: &plan, image_id: &drafted.image.id.to_string(), root, net };
        waking.fits(&self.uses, wanted).await?;
        Ok(plan.guest.has_agent)
    }

    /// The machine of a draft, whose disks have no place yet, and the bytes of its root disk.
    ///
    /// # Errors
    /// When an image of it is not there.
    pub(super) fn plan_of(
        &self,
        name: &str,
        sandbox: &SandboxConfig,
        Drafted { image, annotations, draft, .. }: &Drafted,
    ) -> Result<(MachinePlan, u64)> {
        let images = image_volumes::find(&self.uses.images, draft.images(), &sandbox.runtime_handler)?;
        let images = draft.images().iter().zip(images).map(|(wanted, image)| {
            let file = Layer { path: image.path, format: image.format.to_string() };
            wanted.disk(DiskImage { id: image.id.to_string(), file, below: Vec::new() })
        });
        // Its disks have no place yet.
        let nowhere = RootDisk { overlay: PathBuf::new(), images: Vec::new(), persistent: None, volume: None };
        let disks = [Vec::new(), images.collect(), Vec::new()];
        let plan = draft.clone().finish(name, nowhere, disks, Passed::default());
        Ok((plan, annotations.root_volume_size.unwrap_or(0).max(image.virtual_size)))
    }
}

impl Drafted {
    /// Why the guest of no checkpoint can go on as this, whatever it is of.
    pub(super) fn cannot_go_on(&self) -> Option<&'static str> {
        let Self { found, draft, .. } = self;
        let has_volumes = draft.has_lasting_root() || draft.volume_root().is_some() || !draft.of_volumes().is_empty();
        let refused = [
            (
                has_volumes || !draft.disks().is_empty(),
                "a disk of it is of a volume, which has gone on without the memory",
            ),
            (!found.held.is_empty(), "devices of the node are passed through to it"),
            (
                draft.hardware().described.start_paused,
                "it is to be paused at its start, and the guest of a checkpoint runs",
            ),
        ];
        refused.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
    }
}
