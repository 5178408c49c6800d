//! Pod sandboxes: a network from tapmanager, and a place for containers.
//!
//! A sandbox on record as `Creating` after a crash is undone at the start; one whose network cannot be undone is kept as
//! not ready, so that kubelet sees it and stops it again. Nothing that was made is ever off the record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Attach, NetworkAsk, PodId, PodPhase, PodSummary};
use uuid::Uuid;

use crate::annotations::PodAnnotations;
use crate::container::Containers;
use crate::container::parts::Parts;
use crate::error::{Chain, Error, Kind, Result};
use crate::gate::Gates;
use crate::model::{RECORD_VERSION, Sandbox, SandboxConfig, SandboxState, now_nanos};

/// CRI's number of `NamespaceMode::NODE`.
const NODE: i32 = 2;

/// The service. Clones share it.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    parts: Arc<Parts>,
    containers: Containers,
    gates: Gates,
}

impl Sandboxes {
    /// The service over these parts.
    #[must_use]
    pub fn new(parts: Arc<Parts>, containers: Containers, gates: Gates) -> Self {
        Self { parts, containers, gates }
    }

    /// Makes a sandbox. Repeating it for the same pod and attempt gives the same id while it is ready.
    ///
    /// # Errors
    /// When the request is wrong or the network could not be made; then nothing is left, or the sandbox is on record as
    /// not ready.
    pub async fn run(&self, config: SandboxConfig) -> Result<PodId> {
        self.check(&config)?;
        let annotations = PodAnnotations::parse(&config.annotations)
            .map_err(|problems| Error::because(Kind::Invalid, "the pod cannot become a machine", problems))?;
        let (namespace, name, uid, attempt) = config.key();
        let _pass = self.gates.enter(format!("{namespace}/{name}/{uid}/{attempt}")).await;
        if let Some(same) = self.parts.store.sandboxes().into_iter().find(|other| other.key() == config.key()) {
            return match same.state {
                SandboxState::Ready if same.config == config => Ok(same.id.clone()),
                _ => {
                    let what = format!(
                        "sandbox `{}` of pod `{namespace}/{name}`, attempt {attempt}, exists already; remove it first",
                        same.id
                    );
                    Err(Error::new(Kind::Exists, what))
                }
            };
        }
        let id: PodId = Uuid::new_v4()
            .as_simple()
            .to_string()
            .parse()
            .map_err(|cause| Error::because(Kind::Internal, "no sandbox id made", cause))?;
        let attach = attach_of(&id, &config, &annotations);
        let mut sandbox = Sandbox {
            version: RECORD_VERSION,
            id: id.clone(),
            state: SandboxState::Creating,
            created_at: now_nanos(),
            config,
            net: None,
        };
        self.parts.store.put_sandbox(sandbox.clone()).await?;
        let made = async {
            sandbox.net = Some(self.parts.tap.attach(attach).await?);
            sandbox.state = SandboxState::Ready;
            Ok(self.parts.store.put_sandbox(sandbox).await?)
        };
        match made.await {
            Ok(_) => {
                tracing::info!(pod = %id, "sandbox ready");
                Ok(id)
            }
            Err(error) => {
                tracing::error!(pod = %id, error = %Chain(&error), "sandbox not made");
                self.undo(&id).await;
                Err(error)
            }
        }
    }

    /// Stops a sandbox: its machine is destroyed if it still runs, then its network goes. Fine if there is none.
    ///
    /// # Errors
    /// When the machine or the network would not go; it can be tried again.
    pub async fn stop(&self, id: &PodId) -> Result<()> {
        let _pass = self.gates.enter(id.as_str()).await;
        self.stop_inside(id).await
    }

    async fn stop_inside(&self, id: &PodId) -> Result<()> {
        let Some(sandbox) = self.parts.store.sandbox(id) else { return Ok(()) };
        for container in self.parts.store.containers_of(id) {
            self.containers.stop(container.id, Duration::ZERO).await?;
        }
        if sandbox.state != SandboxState::NotReady {
            let stopped = Sandbox { state: SandboxState::NotReady, ..sandbox.as_ref().clone() };
            self.parts.store.put_sandbox(stopped).await?;
        }
        // Also when it was stopped before: the network may have resisted then.
        self.parts.tap.detach(id.clone()).await?;
        tracing::info!(pod = %id, "sandbox stopped");
        Ok(())
    }

    /// Removes a sandbox with all that is in it. Fine if there is none.
    ///
    /// # Errors
    /// When a part would not go; it can be tried again.
    pub async fn remove(&self, id: &PodId) -> Result<()> {
        let _pass = self.gates.enter(id.as_str()).await;
        let Some(sandbox) = self.parts.store.sandbox(id) else { return Ok(()) };
        self.stop_inside(id).await?;
        for container in self.parts.store.containers_of(id) {
            self.containers.remove(container.id).await?;
        }
        self.parts.store.remove_sandbox(id)?;
        let uid = &sandbox.config.uid;
        // The disks belong to the pod: another sandbox of it goes on with them.
        if !self.parts.store.sandboxes().iter().any(|other| other.config.uid == *uid) {
            self.parts.drop_disks(uid).await;
        }
        tracing::info!(pod = %id, "sandbox removed");
        Ok(())
    }

    /// Compares the records with tapmanager's, at the start: half-made sandboxes are undone, and one without a network is
    /// not ready.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn recover(&self) -> Result<()> {
        let pods: BTreeMap<PodId, PodSummary> =
            self.parts.tap.pods().await?.into_iter().map(|pod| (pod.pod.clone(), pod)).collect();
        for sandbox in self.parts.store.sandboxes() {
            let attached = match pods.get(&sandbox.id) {
                Some(PodSummary { phase: PodPhase::Attached, trouble: None, .. }) => true,
                Some(PodSummary { phase: PodPhase::Attached, trouble: Some(trouble), .. }) => {
                    self.repaired(&sandbox.id, trouble).await
                }
                _ => false,
            };
            match sandbox.state {
                SandboxState::Creating => self.undo(&sandbox.id).await,
                SandboxState::Ready if !attached => {
                    tracing::warn!(pod = %sandbox.id, "sandbox has lost its network");
                    let lost = Sandbox { state: SandboxState::NotReady, ..sandbox.as_ref().clone() };
                    self.parts.store.put_sandbox(lost).await?;
                }
                SandboxState::Ready | SandboxState::NotReady => {}
            }
        }
        Ok(())
    }

    /// Whether the network of a sandbox could be taken up again.
    async fn repaired(&self, id: &PodId, trouble: &str) -> bool {
        match self.parts.tap.recover(id.clone()).await {
            Ok(_net) => {
                tracing::info!(pod = %id, trouble, "network recovered");
                true
            }
            Err(error) => {
                tracing::warn!(pod = %id, trouble, error = %Chain(&error), "network not recovered");
                false
            }
        }
    }

    /// Takes back a sandbox that did not become ready. One that resists stays on record as not ready.
    async fn undo(&self, id: &PodId) {
        let undone = async {
            self.parts.tap.detach(id.clone()).await?;
            Ok::<(), Error>(self.parts.store.remove_sandbox(id)?)
        };
        let Err(error) = undone.await else { return };
        tracing::error!(pod = %id, error = %Chain(&error), "half-made sandbox not undone; stop it to try again");
        if let Some(sandbox) = self.parts.store.sandbox(id) {
            let kept = Sandbox { state: SandboxState::NotReady, ..sandbox.as_ref().clone() };
            if let Err(error) = self.parts.store.put_sandbox(kept).await {
                tracing::error!(pod = %id, error = %Chain(&error), "half-made sandbox stays on record as being made");
            }
        }
    }

    fn check(&self, config: &SandboxConfig) -> Result<()> {
        let handlers = self.parts.config.handlers();
        let handler = &config.runtime_handler;
        if !handler.is_empty() && !handlers.contains(handler) {
            let known = handlers.into_iter().collect::<Vec<_>>().join(", ");
            let what = format!("unknown runtime handler `{handler}`; this node has {known}");
            return Err(Error::new(Kind::Invalid, what));
        }
        if config.namespaces.network == NODE {
            return Err(Error::new(Kind::Invalid, "a machine cannot be on the host's network; unset hostNetwork"));
        }
        Ok(())
    }
}

fn attach_of(id: &PodId, config: &SandboxConfig, annotations: &PodAnnotations) -> Attach {
    let default =
        NetworkAsk { network: None, interface: None, mac: None, ips: Vec::new(), device_id: None, aliases: Vec::new() };
    let others = &annotations.networks;
    let networks = if others.is_empty() { Vec::new() } else { [&[default], others.as_slice()].concat() };

    let hostname = if config.hostname.is_empty() { &config.name } else { &config.hostname };
    Attach {
        namespace: config.namespace.clone(),
        name: config.name.clone(),
        uid: config.uid.clone(),
        hostname: hostname.chars().take(63).collect(),
        dns: config.dns.clone(),
        networks,
        data_path: annotations.data_path,
        queues: annotations.vcpus.or(config.cpus),
        anti_spoof: annotations.anti_spoof,
        host_ports: config.host_ports.clone(),
        bandwidth: annotations.bandwidth.clone(),
        sysctls: config.sysctls.clone(),
        cgroup: config.cgroup_parent.clone(),
        ..Attach::new(id.clone())
    }
}
