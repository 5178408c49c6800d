//! A container is made: what it would be is judged first, then there are its disks, then it is on record. Of one that is refused nothing is left;
//! of one that fails later, what goes with its sandbox.

mod disks;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use common::{Chain, now_nanos};
use proto::tap::PodId;
use vmspec::error::{Error, Kind, Result};
use vmspec::{ContainerConfig, ContainerId};

pub(super) use self::plan::Drafted;
use super::admission::{self, Admission};
use super::{Containers, Waking, checkpoint, gate};
use crate::disks::{block_devices, emptydir, image_volumes};
use crate::files::look;
use crate::model::{CONTAINER_VERSION, Container, ContainerState, Sandbox, Warm};
use crate::orphans::owned::disks_key;
use crate::store::moments::{Of, Phase};
use crate::volumes::Root;

/// What a container is to be made of.
#[derive(Debug, Clone)]
pub struct Create {
    pub sandbox: PodId,
    /// As kubelet wants it.
    pub config: ContainerConfig,
    /// The pod's annotations as they are now; the sandbox may have been made with others.
    pub annotations: BTreeMap<String, String>,
}

impl Containers {
    /// Makes a container. Repeating it for one that was not started gives the same id; earlier attempts that were never up
    /// end.
    ///
    /// # Errors
    /// When the request is wrong, the pod has a container already, or a disk could not be made.
    pub async fn create(&self, create: Create) -> Result<ContainerId> {
        let Some(waking) = self.warm_start(&create).await else { return self.create_of(create, None).await };
        match self.create_of(create.clone(), Some(&waking)).await {
            Ok(id) => {
                tracing::info!(container = %id, "the pod begins with a checkpoint of its image's boot");
                Ok(id)
            }
            Err(error) => {
                tracing::warn!(pod = %create.sandbox, error = %Chain(&error), "the pod does not begin with a checkpoint, and boots");
                if let Some(key) = waking.key() {
                    gate::distrust(&self.uses, key, &error).await;
                }
                self.create_of(create, None).await
            }
        }
    }

    /// The same, of a container whose guest goes on from a checkpoint, if one is given.
    pub(super) async fn create_of(&self, create: Create, waking: Option<&Waking>) -> Result<ContainerId> {
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
        let mut drafted = self.draft(&sandbox.config, &create.config, &create.annotations, waking).await?;
        if let Some(waking) = waking {
            self.can_go_on(waking, &sandbox.config, &drafted, sandbox.net.as_ref()).await?;
        }
        let planned = Instant::now();
        let begins_warm = waking.is_some_and(|waking| waking.key().is_some());
        let passed = self.judge(&sandbox, &create.config, &drafted, begins_warm).await?;
        let handler = &sandbox.config.runtime_handler;
        let of_volumes = image_volumes::find(&self.uses.images, drafted.draft.images(), handler)?;
        let wanted = drafted.draft.disks().to_owned();
        let blocks = look(move || block_devices::Node::new().resolve(&wanted)).await?;

        // Nobody else may have the disk from here on.
        for other in &replaced {
            self.actors.get(*other)?.make_way().await?;
        }
        // Nobody writes to the pod's directories now but who else has its volumes.
        match waking {
            None => emptydir::make(drafted.draft.files()).await?,
            Some(waking) => waking.make_disks(drafted.draft.files()).await?,
        }
        // Another sandbox of the pod that is removed now drops the disks before they are claimed, or not at all.
        let _disks = self.mutex.lock(disks_key(&sandbox.config.uid)).await;
        // The folder first: what has no folder is nobody's.
        let folder = self.claim(&sandbox).await?;
        drafted.draft = drafted.draft.with_files_below(&folder.flexvolumes());
        let of = (&*sandbox, &drafted, create.config.image_name());
        let disks::Disks { image_id, root, others: [of_images, in_volumes], qemu, layer } =
            self.make_disks(&folder, of, &of_volumes, waking).await?;
        let had_disk = layer.as_ref().is_some_and(Root::was_there);
        let (id, image_handler) = (ContainerId::random(), drafted.image.handler.clone());
        let made = async {
            for other in &replaced {
                self.actors.get(*other)?.replaced(create.config.attempt).await?;
            }
            self.make_uefi(&folder, &drafted, qemu, waking).await?;
            let warm = match waking {
                Some(waking) => waking.key().map(|key| Warm::Begins(key.to_owned())),
                None => self.warm(&sandbox, &drafted, &create.config.name, present.is_empty() && !had_disk).await,
            };
            let machine = drafted.draft.finish(&create.config.name, root, [blocks, of_images, in_volumes], passed);
            let restore = match waking {
                Some(waking) => {
                    waking.make_memory(&machine).await?;
                    Some(waking.note(&sandbox))
                }
                None if had_disk => self.inherited(&sandbox.id, &machine).await?,
                None => None,
            };
            if restore.is_none() {
                // It boots, and no later one goes on from what knows nothing of that.
                checkpoint::forget(&machine).await?;
            }
            let container = Container {
                version: CONTAINER_VERSION,
                id,
                sandbox: sandbox.id.clone(),
                image_id: image_id.to_string(),
                image_handler,
                machine,
                config: ContainerConfig { process: drafted.found.config.process, ..create.config },
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
                warm,
                pause: None,
            };
            Ok(self.uses.store.put_container(container).await?)
        };
        match made.await {
            Ok(container) => {
                self.made(&sandbox, &container, (began, planned));
                if let Some(layer) = layer
                    && let Err(error) = layer.keep().await
                {
                    tracing::warn!(container = %id, error = %Chain(&error), "disk of an earlier image left behind");
                }
                Ok(id)
            }
            Err(error) => {
                if let Some(layer) = layer
                    && let Err(error) = layer.undo()
                {
                    tracing::error!(pod = %sandbox.id, error = %Chain(&error), "disk of a failed Create not undone");
                }
                Err(error)
            }
        }
    }

    /// A container is on record, whose call has begun then, and was planned then.
    fn made(&self, sandbox: &Sandbox, container: &Arc<Container>, (began, planned): (Instant, Instant)) {
        let (moments, of) = (self.uses.store.moments(), Of::Machine(container.machine.id));
        let before = [Of::Sandbox(sandbox.id.clone()), Of::Pod(sandbox.config.uid.clone())];
        moments.adopt(container.machine.id, before);
        moments.took(of.clone(), Phase::Plan, (began, planned));
        moments.took(of, Phase::Disks, (planned, Instant::now()));
        self.actors.add(self.uses.clone(), container);
        tracing::info!(container = %container.id, pod = %sandbox.id, image = %container.image_id, "container created");
    }
}
