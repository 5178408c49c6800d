//! Containers: each is one virtual machine. This service decides what there is; an [`actor`] moves one machine.
//!
//! A pod has one container at a time, since the container is the machine. A container that kubelet restarts is a new one
//! in the same sandbox, with the pod's disk.

mod actor;
mod actors;
mod admission;
mod checkpoint;
pub mod explain;
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

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Chain;
use common::KeyedMutex;
use common::now_nanos;
use common::off_reactor;
use imagestore::Image;
use proto::tap::PodId;
use uuid::Uuid;
use vmspec::annotations::PodAnnotations;
use vmspec::draft::{self, Draft};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Firmware, Layer, RootDisk, RootLifetime, VolumeDisk};
use vmspec::seed::Wishes;
use vmspec::settings::Handler;
use vmspec::{Accelerator, ContainerConfig, ContainerId, MachineId, Offer, Resources, SandboxConfig};

use self::actors::Actors;
use self::admission::Admission;
pub use self::checkpoint::Waking;
pub use self::places::Checkpoints;
pub use self::reboots::Reboots;
use self::resources::usage;
pub use self::resources::usage::{Details, Filesystem, Usage};
use self::slots::Slots;
pub use self::tally::Tally;
pub use self::uses::Uses;
use crate::devices;
use crate::disks::{block_devices, emptydir, flexvolume, growth, host_disks, image_volumes, persistent, volume_disks};
use crate::files::look;
use crate::guest::agents::{self, Output};
use crate::guest::{seed, share};
use crate::hypervisor::HvEvent;
use crate::model::{CONTAINER_VERSION, Container, ContainerState, PodName, Sandbox, SandboxState};
use crate::orphans::owned::disks_key;
use crate::store::is_disk_full;
use crate::store::moments::{Of, Phase};
use crate::volumes::{Base, Root, UefiFirmware, VolumeError, uefi_variables};

/// The service. Clones share it.
#[derive(Debug, Clone)]
pub struct Containers {
    uses: Arc<Uses>,
    mutex: KeyedMutex,
    actors: Actors,
}

/// What a container is to be made of.
#[derive(Debug)]
pub struct Create {
    pub sandbox: PodId,
    /// As kubelet wants it.
    pub config: ContainerConfig,
    /// The pod's annotations as they are now; the sandbox may have been made with others.
    pub annotations: BTreeMap<String, String>,
}

/// What a container would be, of which nothing is made.
#[derive(Debug)]
struct Drafted {
    image: Image,
    handler: Handler,
    annotations: PodAnnotations,
    offer: Offer,
    found: devices::Found,
    draft: Draft,
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

    /// Makes a container. Repeating it for one that was not started gives the same id; earlier attempts that were never up
    /// end.
    ///
    /// # Errors
    /// When the request is wrong, the pod has a container already, or a disk could not be made; nothing is left then.
    pub async fn create(&self, create: Create) -> Result<ContainerId> {
        self.create_of(create, None).await
    }

    /// The same, of a container whose guest goes on from a checkpoint, if one is given.
    async fn create_of(&self, create: Create, waking: Option<&Waking>) -> Result<ContainerId> {
        let began = Instant::now();
        let _pass = self.mutex.lock(create.sandbox.as_str()).await;
        let sandbox = self.ready_sandbox(&create.sandbox)?;
        let present = self.uses.store.containers_of(&create.sandbox);
        if waking.is_some() && !present.is_empty() {
            let what = format!("sandbox `{}` has a container already; remove the pod first", create.sandbox);
            return Err(Error::new(Kind::Exists, what));
        }
        let replaced = match admission::judge(&present, &create.config)? {
            Admission::Same(id) => return Ok(id),
            Admission::New(replaced) => replaced,
        };
        let drafted = self.draft(&sandbox.config, &create.config, &create.annotations, waking).await?;
        if let Some(waking) = waking {
            self.can_go_on(waking, &sandbox.config, &drafted, sandbox.net.as_ref()).await?;
        }
        let Drafted { image, handler, annotations, offer, found, draft } = drafted;
        let id = ContainerId::random();
        let planned = Instant::now();
        let passed = devices::agree(sandbox.net.as_ref(), &found, draft.memory(), &handler)?;
        if let Some(net) = &sandbox.net {
            Slots::of(net, passed.devices.len(), &draft.hardware().described)?;
        }
        self.check_seed(&sandbox, &create.config, &annotations, &handler, &draft).await?;
        let share = draft.share().cloned();
        let in_volumes: Vec<_> = draft.volume_root().into_iter().chain(draft.of_volumes()).cloned().collect();
        if share.is_some() || !in_volumes.is_empty() {
            let uses = self.uses.clone();
            let (pod, of) = (sandbox.config.clone(), handler.clone());
            look(move || {
                volume_disks::check_subpaths(&in_volumes, &pod.uid)?;
                let of_disks = in_volumes.iter().filter_map(|wanted| wanted.mount());
                let shared = share.iter().flat_map(|share| share.mounts.iter().cloned());
                let mounts: Vec<_> = shared.chain(of_disks).collect();
                share::check_subpaths(&mounts, &pod, &of.defaults)?;
                share.map_or(Ok(()), |share| share::check(&uses.config, &share))
            })
            .await?;
        }
        let of_volumes = image_volumes::find(&self.uses.images, draft.images(), &sandbox.config.runtime_handler)?;
        let wanted = draft.disks().to_owned();
        let disks = look(move || block_devices::Node::new().resolve(&wanted)).await?;

        // Nobody else may have the disk from here on.
        for other in &replaced {
            self.actors.get(*other)?.make_way().await?;
        }
        // Nobody writes to the pod's directories now but who else has its volumes.
        match waking {
            None => emptydir::make(draft.files()).await?,
            Some(waking) => waking.make_disks(draft.files()).await?,
        }
        let wanted = Base {
            image_id: image.id.to_string(),
            path: image.path.clone(),
            format: image.format.to_string(),
            virtual_size: image.virtual_size,
            name: create.config.image_name().to_owned(),
        };
        let no_disk = |cause: VolumeError| {
            let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
            Error::because(kind, "the root disk cannot be made", cause)
        };
        // Another sandbox of the pod that is removed now drops the disks before they are claimed, or not at all.
        let _disks = self.mutex.lock(disks_key(&sandbox.config.uid)).await;
        self.uses.orphans.make_room(&sandbox).await?;
        // The folder first: what has no folder is nobody's. What is in it goes with the sandbox at the latest.
        let owner = self.uses.orphans.owner(&PodName::of(&sandbox)).await?;
        let volumes = self.uses.volumes.clone();
        let folder = off_reactor(move || volumes.claim(&owner)).await.map_err(no_disk)?;
        let draft = draft.with_files_below(&folder.flexvolumes());
        match waking {
            None => flexvolume::make(draft.flexvolumes()).await?,
            Some(waking) => {
                flexvolume::make_dirs(draft.flexvolumes()).await?;
                waking.make_disks(draft.flexvolumes()).await?;
            }
        }
        let (asked, machine_type) = (draft::hardware::machine_type(&handler, &annotations), &draft.hardware().machine);
        self.uses.volumes.note_machine_type(&folder, &asked, machine_type).await.map_err(no_disk)?;
        // A volume has a life of its own.
        let lifetime =
            if draft.has_lasting_root() { RootLifetime::Pod } else { handler.defaults.root_lifetime(&annotations) };
        let base = match lifetime {
            RootLifetime::Pod if waking.is_none() => self.uses.volumes.base(&folder, wanted).await,
            RootLifetime::Pod | RootLifetime::Container => wanted,
        };
        let image_id = base
            .image_id
            .parse()
            .map_err(|cause| Error::because(Kind::Internal, "the note of the root disk names no image", cause))?;
        if image_id != image.id {
            let (name, now) = (&base.name, &image.id);
            tracing::info!(pod = %sandbox.id, name, %now, keeps = %image_id, "the pod keeps its disk of an earlier image");
        }
        self.uses.images.lease(&image_id, folder.name()).await?;
        let mut images = vec![Layer { path: base.path.clone(), format: base.format.clone() }];
        images.extend(self.uses.images.below(&image_id)?);
        let of_volumes = image_volumes::keep(&self.uses.images, draft.images(), &of_volumes, folder.name()).await?;
        let qemu = self.uses.qemu_user().await?;
        let most = handler.defaults.on(&self.uses.config.machine).max_disk;
        let place = volume_disks::Place { volumes: &self.uses.volumes, folder: &folder, qemu, most };
        let in_volumes = volume_disks::make(draft.of_volumes(), place).await?;
        let (volume, lower) = volume_disks::make_root(draft.volume_root(), &folder, most).await?.unzip();
        let lower = lower.flatten();
        let root_size = annotations.root_volume_size.unwrap_or(0);
        let persistent = match draft.persistent_root().cloned() {
            Some(wanted) => {
                let (on, converted) = (base.clone(), self.uses.images.is_converted(&image_id));
                let checked = look(move || persistent::check(&wanted, &on, converted)).await?;
                self.uses.volumes.note_base(&folder, &base).await.map_err(no_disk)?;
                Some(checked)
            }
            None => None,
        };
        if volume.is_some() {
            self.uses.volumes.note_base(&folder, &base).await.map_err(no_disk)?;
        }
        let root = match (&persistent, &volume) {
            (None, None) if waking.is_some() => {
                let half = self.uses.volumes.half_root(&folder).await.map_err(no_disk)?;
                let (image, size) = ((base.image_id.clone(), base.path.clone()), root_size.max(base.virtual_size));
                if let Some(waking) = waking {
                    waking.make_root(half, image, size, qemu).await?;
                }
                Some(self.uses.volumes.install_root(&folder, &base).await.map_err(no_disk)?)
            }
            (None, None) => {
                Some(self.uses.volumes.ensure_root(&folder, &base, root_size, lifetime, qemu).await.map_err(no_disk)?)
            }
            (None, Some(VolumeDisk::Overlay(_))) => {
                let lower = lower.as_ref().unwrap_or(&base);
                let layer = self.uses.volumes.ensure_root(&folder, lower, 0, RootLifetime::Container, qemu).await;
                Some(layer.map_err(no_disk)?)
            }
            (Some(_), _) | (None, Some(VolumeDisk::File(_))) => None,
        };
        let has_disk = root.as_ref().is_some_and(Root::was_there);
        let made = async {
            for other in &replaced {
                self.actors.get(*other)?.replaced(create.config.attempt).await?;
            }
            if let Firmware::Uefi { secure_boot } = draft.hardware().firmware {
                let firmware = UefiFirmware { secure_boot, loaders: offer.loaders.clone() };
                let ready = self.uses.volumes.ready_uefi(&folder, firmware).await;
                ready
                    .map_err(|cause| Error::because(Kind::Internal, "UEFI's variables cannot be made ready", cause))?;
                if let Some(waking) = waking {
                    waking.make_uefi(uefi_variables(&folder.overlay()), qemu).await?;
                }
            }
            let disk = RootDisk { overlay: folder.overlay(), images, persistent, volume };
            let machine = draft.finish(&create.config.name, disk, [disks, of_volumes, in_volumes], passed);
            let restore = match waking {
                Some(waking) => {
                    waking.make_memory(&machine).await?;
                    Some(waking.note(&sandbox))
                }
                None if has_disk => self.inherited(&sandbox.id, &machine).await?,
                None => None,
            };
            let container = Container {
                version: CONTAINER_VERSION,
                id,
                sandbox: sandbox.id.clone(),
                image_id: base.image_id.clone(),
                image_handler: image.handler.clone(),
                machine,
                config: ContainerConfig { process: found.config.process, ..create.config },
                machine_annotations: create.annotations,
                state: ContainerState::Created,
                created_at: self.uses.store.container_time(now_nanos(), &sandbox.config.uid),
                started_at: 0,
                applied: None,
                boot: String::new(),
                process: None,
                pod_oom_kills: 0,
                exit: None,
                checkpoint: None,
                restore,
                pause: None,
            };
            Ok(self.uses.store.put_container(container).await?)
        };
        match made.await {
            Ok(container) => {
                let (moments, of) = (self.uses.store.moments(), Of::Machine(container.machine.id));
                let before = [Of::Sandbox(sandbox.id.clone()), Of::Pod(sandbox.config.uid.clone())];
                moments.adopt(container.machine.id, before);
                moments.took(of.clone(), Phase::Plan, (began, planned));
                moments.took(of, Phase::Disks, (planned, Instant::now()));
                self.actors.add(self.uses.clone(), &container);
                tracing::info!(container = %id, pod = %sandbox.id, image = %image_id, "container created");
                if let Some(root) = root
                    && let Err(error) = root.keep().await
                {
                    tracing::warn!(container = %id, error = %Chain(&error), "disk of an earlier image left behind");
                }
                Ok(id)
            }
            Err(error) => {
                if let Some(root) = root
                    && let Err(error) = root.undo()
                {
                    tracing::error!(pod = %sandbox.id, error = %Chain(&error), "disk of a failed Create not undone");
                }
                Err(error)
            }
        }
    }

    /// What a container of a pod would be, of which nothing is made.
    ///
    /// # Errors
    /// When there is no machine that is as it is wished, or no image.
    async fn draft(
        &self,
        sandbox: &SandboxConfig,
        wanted: &ContainerConfig,
        said: &BTreeMap<String, String>,
        waking: Option<&Waking>,
    ) -> Result<Drafted> {
        self.check_platform(&sandbox.runtime_handler)?;
        let image = self.uses.images.find(&wanted.image, &sandbox.runtime_handler)?;
        let handler = self.uses.config.handler(&sandbox.runtime_handler);
        handler.check_annotations(said)?;
        let annotations = PodAnnotations::parse(said)
            .map_err(|cause| Error::because(Kind::Invalid, "the pod cannot become a machine", cause))?;
        let accel = self.uses.accel.get().await;
        let offer = self.offer((&handler, &annotations), &sandbox.uid, accel, waking).await?;
        let (node, asked) = (devices::Node::new(), wanted.clone());
        let (uid, of) = (sandbox.uid.clone(), handler.clone());
        let (config, pod) = (self.uses.config.clone(), sandbox.clone());
        let found = look(move || {
            let found = node.find(&asked, &uid, &of)?;
            Ok(devices::Found { config: host_disks::find(found.config, &pod, &config, &of)?, ..found })
        });
        let found = found.await?;
        let (config, uid, asked) = (self.uses.config.clone(), sandbox.uid.clone(), found.config.clone());
        let flexvolumes = look(move || flexvolume::find(&config, &asked, &uid)).await?;
        let draft = Draft::of(draft::Wishes {
            id: MachineId::random(),
            sandbox,
            container: &found.config,
            annotations: &annotations,
            flexvolumes: &flexvolumes,
            handler: &handler,
            offer: Some(&offer),
            accel,
            node: &self.uses.config.machine,
        })?;
        Ok(Drafted { image, handler, annotations, offer, found, draft })
    }

    /// What the emulator has for machines of a runtime handler, or as a pod says: of the type that the pod's earlier machines had, if it has that, or of the
    /// newest one. A guest that goes on from a checkpoint has the type that it has found.
    async fn offer(
        &self,
        (handler, annotations): (&Handler, &PodAnnotations),
        pod_uid: &str,
        accel: Accelerator,
        waking: Option<&Waking>,
    ) -> Result<Offer> {
        let uses = &self.uses;
        // The emulator may have been replaced since it was asked last.
        uses.accel.refresh_wrapper(&uses.config).await;
        let asked = draft::hardware::machine_type(handler, annotations);
        let machine = match waking {
            Some(waking) => waking.machine_type(&asked)?,
            None => asked,
        };
        let had = if waking.is_some() { None } else { uses.volumes.machine_type(pod_uid, &machine).await };
        if let Some(had) = had {
            match uses.hypervisor.offer(&uses.config.vmwrapper, &had, accel).await? {
                Ok(offer) => return Ok(offer),
                Err(nothing) => {
                    let why = Chain(&nothing);
                    tracing::warn!(pod_uid, %had, error = %why, "the emulator has no machine type of the pod's earlier VMs any more");
                }
            }
        }
        let nothing = match uses.hypervisor.offer(&uses.config.vmwrapper, &machine, accel).await? {
            Ok(offer) => return Ok(offer),
            Err(nothing) => nothing,
        };
        let there = uses.hypervisor.machine_types().await?;
        if !there.contains(machine.as_str()) && waking.is_some() {
            let what = format!(
                "the checkpoint cannot go on here: its machine type is `{machine}`, which the emulator here does not have"
            );
            return Err(Error::new(Kind::State, what));
        }
        if !there.contains(machine.as_str()) {
            return Err(draft::hardware::no_machine_type(handler, annotations, &there));
        }
        let what = format!("the emulator can make no machine of type `{machine}` with accelerator `{accel}`");
        Err(Error::because(Kind::State, what, nothing))
    }

    /// Images may be pulled for machines that this program cannot make.
    fn check_platform(&self, handler: &str) -> Result<()> {
        let images = &self.uses.config.images;
        let handler = self.uses.config.handler(handler).name;
        let platform = images.platform(&handler);
        if platform.uname_arch() == "x86_64" {
            return Ok(());
        }
        let what = format!("machines of runtime handler `{handler}` would be {platform}, which cannot be made yet");
        Err(Error::new(Kind::State, what))
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

    /// Makes the seed once to find what is wrong with it now rather than at the start. The agent is the node's, and its size known.
    async fn check_seed(
        &self,
        sandbox: &Arc<Sandbox>,
        config: &ContainerConfig,
        annotations: &PodAnnotations,
        handler: &Handler,
        draft: &Draft,
    ) -> Result<()> {
        let Some(net) = sandbox.net.clone() else {
            return Err(Error::new(Kind::State, format!("sandbox `{}` has no network", sandbox.id)));
        };
        let objects = self.uses.objects(&sandbox.config, annotations).await?;
        let (sandbox, config, annotations) = (sandbox.clone(), config.clone(), annotations.clone());
        let (handler, share, disks) = (handler.clone(), draft.share().cloned(), draft.guest_disks());
        // Which one is seen at the start.
        let instance = draft.has_lasting_root().then(Uuid::nil);
        look(move || {
            let wishes = Wishes {
                sandbox: &sandbox.config,
                container: &config,
                annotations: &annotations,
                objects: &objects,
                handler: &handler,
                net: &net,
                share: share.as_ref(),
                disks: &disks,
                instance,
            };
            seed::assemble(wishes, None).map(drop)
        })
        .await
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
