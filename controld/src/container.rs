//! Containers: each is one virtual machine. This service decides; [`actor`] moves one machine.
//!
//! A pod has one container at a time, since the container is the machine. A container that kubelet restarts is a new one
//! in the same sandbox, with the pod's disk.

pub mod actor;
pub mod machine;
pub mod parts;
mod size;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::tap::PodId;

use self::actor::Actor;
use self::parts::Parts;
use crate::annotations::PodAnnotations;
use crate::error::{Error, Kind, Result, is_disk_full};
use crate::gate::Gates;
use crate::hypervisor::HvEvent;
use crate::model::{
    Container, ContainerConfig, ContainerId, ContainerState, Machine, RECORD_VERSION, Sandbox, SandboxState, now_nanos,
};
use crate::seed::{self, SeedInput};
use crate::volumes::Base;

/// The service. Clones share it.
#[derive(Debug, Clone)]
pub struct Containers {
    parts: Arc<Parts>,
    gates: Gates,
    actors: Arc<Mutex<HashMap<ContainerId, Actor>>>,
}

/// What a container is to be made of.
#[derive(Debug)]
pub struct Create {
    /// Its pod.
    pub sandbox: PodId,
    /// As kubelet wants it.
    pub config: ContainerConfig,
    /// The pod's annotations as they are now; the sandbox may have been made with others.
    pub annotations: std::collections::BTreeMap<String, String>,
}

impl Containers {
    /// The service over these parts, with an actor for every container on record.
    #[must_use]
    pub fn new(parts: Arc<Parts>, gates: Gates) -> Self {
        let service = Self { parts, gates, actors: Arc::default() };
        for container in service.parts.store.containers() {
            service.actors().insert(container.id, Actor::spawn(service.parts.clone(), container.as_ref().clone()));
        }
        service
    }

    /// Makes a container. Repeating it for one that was not started gives the same id.
    ///
    /// # Errors
    /// When the request is wrong, the pod has a container already, or a disk could not be made; nothing is left then.
    pub async fn create(&self, create: Create) -> Result<ContainerId> {
        let _pass = self.gates.enter(create.sandbox.as_str()).await;
        let sandbox = self.ready_sandbox(&create.sandbox)?;
        if let Some(existing) = self.same(&create)? {
            return Ok(existing);
        }
        self.check_platform(&sandbox.config.runtime_handler)?;
        let image = self.parts.images.find(&create.config.image, &sandbox.config.runtime_handler)?;
        let annotations = PodAnnotations::parse(&create.annotations)
            .map_err(|cause| Error::because(Kind::Invalid, "the pod cannot become a machine", cause))?;
        let size = size::of(create.config.resources.as_ref(), annotations.vcpus, &self.parts.config.machine)?;
        check_seed(&sandbox, &annotations)?;

        let id = ContainerId::random();
        let uid = sandbox.config.uid.clone();
        let below = self.parts.images.below(&image)?;
        let base = Base {
            image_id: image.id.to_string(),
            path: image.path.clone(),
            format: image.format.to_string(),
            virtual_size: image.virtual_size,
        };
        self.parts.images.lease(&image.id, &uid).await?;
        let made = async {
            let owner = self.parts.qemu_user().await?;
            let root_size = annotations.root_volume_size.unwrap_or(0);
            let root = self.parts.volumes.ensure_root(&uid, &base, root_size, owner).await.map_err(|cause| {
                let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
                Error::because(kind, "the root disk cannot be made", cause)
            })?;
            let container = Container {
                version: RECORD_VERSION,
                id,
                sandbox: sandbox.id.clone(),
                image_id: image.id.to_string(),
                image_handler: image.handler.clone(),
                machine: Machine {
                    domain: crate::domain::name(id.uuid(), &create.config.name),
                    vcpus: size.vcpus,
                    memory: size.memory,
                    root,
                    base: base.path.clone(),
                    base_format: base.format.clone(),
                    below,
                    smbios: annotations.system_uuid,
                },
                config: create.config,
                machine_annotations: create.annotations,
                state: ContainerState::Created,
                created_at: now_nanos(),
                started_at: 0,
                exit: None,
            };
            Ok(self.parts.store.put_container(container).await?)
        };
        match made.await {
            Ok(container) => {
                self.actors().insert(id, Actor::spawn(self.parts.clone(), container.as_ref().clone()));
                tracing::info!(container = %id, pod = %sandbox.id, image = %image.id, "container created");
                Ok(id)
            }
            Err(error) => {
                self.parts.drop_disks_unless_used(&uid).await;
                Err(error)
            }
        }
    }

    /// Images may be pulled for machines that this program cannot make.
    fn check_platform(&self, handler: &str) -> Result<()> {
        let images = &self.parts.config.images;
        let handler = if handler.is_empty() { &images.default_handler } else { handler };
        let platform = images.platform(handler);
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
        self.actor(id)?.start().await
    }

    /// Stops a container's machine within `grace`, then by force; fine if there is none.
    ///
    /// # Errors
    /// When libvirt does not do it.
    pub async fn stop(&self, id: ContainerId, grace: Duration) -> Result<()> {
        match self.actor(id) {
            Ok(actor) => actor.stop(grace).await,
            Err(_absent) => Ok(()),
        }
    }

    /// Removes a container, its machine included; fine if there is none. The log stays, it is kubelet's.
    ///
    /// # Errors
    /// When its machine cannot be stopped, or the record not be removed.
    pub async fn remove(&self, id: ContainerId) -> Result<()> {
        let Ok(actor) = self.actor(id) else { return Ok(()) };
        actor.stop(Duration::ZERO).await?;
        actor.remove().await?;
        self.actors().remove(&id);
        tracing::info!(container = %id, "container removed");
        Ok(())
    }

    /// The log was renamed away: goes on in a new file.
    ///
    /// # Errors
    /// When the container does not run, or the file cannot be made.
    pub async fn reopen_log(&self, id: ContainerId) -> Result<()> {
        self.get(id)?;
        self.actor(id)?.reopen_log().await
    }

    /// The container.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, id: ContainerId) -> Result<Arc<Container>> {
        self.parts.store.container(id).ok_or_else(|| Error::new(Kind::NotFound, format!("no container `{id}`")))
    }

    /// Hands an event of libvirt to the container that it is about.
    pub async fn hear(&self, event: &HvEvent) {
        let actors: Vec<Actor> = match event {
            HvEvent::Lifecycle { id, .. } | HvEvent::Reboot { id } => {
                self.actors().get(&ContainerId::from(*id)).cloned().into_iter().collect()
            }
            HvEvent::Resync => self.actors().values().cloned().collect(),
            HvEvent::Down => Vec::new(),
        };
        for actor in actors {
            actor.hear(event.clone()).await;
        }
    }

    fn same(&self, create: &Create) -> Result<Option<ContainerId>> {
        for other in self.parts.store.containers_of(&create.sandbox) {
            if (&other.config.name, other.config.attempt) == (&create.config.name, create.config.attempt) {
                if other.state == ContainerState::Created && other.config == create.config {
                    return Ok(Some(other.id));
                }
                let what = format!(
                    "pod has container `{}` of name `{}` and attempt {} already; remove it first",
                    other.id, other.config.name, other.config.attempt
                );
                return Err(Error::new(Kind::Exists, what));
            }
            if other.state != ContainerState::Exited {
                let what = format!(
                    "pod has container `{}` (`{}`) already, and a pod that is a machine has one at a time; \
                     stop or remove it first",
                    other.id, other.config.name
                );
                return Err(Error::new(Kind::State, what));
            }
        }
        Ok(None)
    }

    fn ready_sandbox(&self, id: &PodId) -> Result<Arc<Sandbox>> {
        let sandbox =
            self.parts.store.sandbox(id).ok_or_else(|| Error::new(Kind::NotFound, format!("no sandbox `{id}`")))?;
        if sandbox.state != SandboxState::Ready {
            return Err(Error::new(Kind::State, format!("sandbox `{id}` is not ready; make a new one")));
        }
        Ok(sandbox)
    }

    fn actor(&self, id: ContainerId) -> Result<Actor> {
        self.actors().get(&id).cloned().ok_or_else(|| Error::new(Kind::NotFound, format!("no container `{id}`")))
    }

    fn actors(&self) -> MutexGuard<'_, HashMap<ContainerId, Actor>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the seed once to find what is wrong with it now rather than at the start.
fn check_seed(sandbox: &Sandbox, annotations: &PodAnnotations) -> Result<()> {
    let Some(net) = &sandbox.net else {
        return Err(Error::new(Kind::State, format!("sandbox `{}` has no network", sandbox.id)));
    };
    let input = SeedInput {
        pod_name: &sandbox.config.name,
        namespace: &sandbox.config.namespace,
        uid: &sandbox.config.uid,
        hostname: &sandbox.config.hostname,
        annotations,
        net,
    };
    seed::assemble(&input)
        .map(drop)
        .map_err(|cause| Error::because(Kind::Invalid, "the pod's cloud-init seed cannot be made", cause))
}
