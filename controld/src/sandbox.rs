//! Pod sandboxes: a network from tapmanager, and a place for containers.
//!
//! No change here waits for the disk: see [`crate::store`]. What a crash leaves half made is on record as `Creating`, or is
//! found at tapmanager under our name ([`agree`]), and is undone; one whose network cannot be undone is kept as not ready, so
//! that kubelet sees it and stops it again.
//!
//! A pod has one sandbox that is ready or being made, whoever asks for another at the same time: two machines would have its volumes and
//! its name. kubelet stops the sandbox of one attempt before it asks for the next.

mod addresses;
mod agree;
mod restore;
mod settling;
mod underway;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Chain;
use common::KeyedMutex;
use common::dns::host_name;
use common::now_nanos;
use proto::tap::{Attach, IfName, MacAddr, NetworkAsk, OwnerId, PodId};
use uuid::Uuid;
use vmspec::SandboxConfig;
use vmspec::annotations::PodAnnotations;
use vmspec::draft::guest::{check_sysctls, is_of_the_network};
use vmspec::error::{Error, Kind, Result};
use vmspec::ids::random_cri_id;
use vmspec::settings::MachineDefaults;

pub use self::addresses::check_fit;
pub use self::restore::Restore;
pub use self::settling::Settling;
use self::underway::Underway;
use crate::config::Config;
use crate::container::Containers;
use crate::model::{SANDBOX_VERSION, Sandbox, SandboxState};
use crate::node_addresses::NodeAddresses;
use crate::orphans::Orphans;
use crate::orphans::owned::disks_key;
use crate::store::Store;
use crate::store::boot::Boot;
use crate::store::moments::{Of, Phase};
use crate::tap::Tap;
use crate::trace;

/// CRI's number of `NamespaceMode::NODE`.
const NODE: i32 = 2;

/// What sandboxes use of the node.
#[derive(Debug, Clone)]
pub struct Uses {
    /// Records.
    pub store: Store,
    /// The pods' networks.
    pub tap: Tap,
    /// What is on no record, and whose disks are.
    pub orphans: Orphans,
    /// The boot of the node that we are in.
    pub boot: Boot,
    /// This controld's mark.
    pub instance: Uuid,
    /// Runtime handlers that a pod may name, and what they give it.
    pub config: Arc<Config>,
}

/// The service. Clones share it.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    uses: Uses,
    containers: Containers,
    mutex: KeyedMutex,
    /// What an earlier life of this daemon had begun.
    half_made: Arc<BTreeSet<PodId>>,
    underway: Underway,
}

impl Sandboxes {
    /// The service over these, before any call.
    #[must_use]
    pub fn new(uses: Uses, containers: Containers, mutex: KeyedMutex) -> Self {
        for sandbox in uses.store.sandboxes().into_iter().filter(|sandbox| has_outlived_its_boot(sandbox, &uses.boot)) {
            tracing::info!(pod = %sandbox.id, "the node was restarted, and the sandbox has no network any more");
            uses.store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox.as_ref().clone() });
        }
        let sandboxes = uses.store.sandboxes().into_iter();
        let half_made = sandboxes.filter(|sandbox| sandbox.state == SandboxState::Creating);
        let half_made = Arc::new(half_made.map(|sandbox| sandbox.id.clone()).collect());
        Self { uses, containers, mutex, half_made, underway: Underway::default() }
    }

    /// Makes a sandbox. Repeating it for the same pod and attempt gives the same id while it is ready.
    ///
    /// # Errors
    /// When the request is wrong, another attempt of the pod has a sandbox that is not stopped, or the network could not be made; then
    /// nothing is left, or the sandbox is on record as not ready.
    pub async fn run(&self, config: SandboxConfig) -> Result<PodId> {
        self.run_with(config, &[]).await
    }

    /// The same, with a network that is asked for these addresses for the pod's links, where the pod says none.
    async fn run_with(&self, config: SandboxConfig, macs: &[(String, MacAddr)]) -> Result<PodId> {
        let began = Instant::now();
        check(&self.uses.config, &config)?;
        let handler = self.uses.config.handler(&config.runtime_handler);
        handler.check_annotations(&config.annotations)?;
        let annotations = PodAnnotations::parse(&config.annotations)
            .map_err(|problems| Error::because(Kind::Invalid, "the pod cannot become a machine", problems))?;
        check_sysctls(&config, &annotations, &handler.defaults)?;
        check_fit(&annotations.networks)?;
        addresses::check_asked(&annotations.networks, &NodeAddresses::look().await?)?;
        let (namespace, name, uid, _attempt) = config.key();
        // All attempts of a pod: what is not there now comes by nobody else.
        let _pass = self.mutex.lock(format!("{namespace}/{name}/{uid}")).await;
        if let Some(same) = self.there(&config)? {
            return Ok(same);
        }
        let id: PodId =
            random_cri_id().parse().map_err(|cause| Error::because(Kind::Internal, "no sandbox id made", cause))?;
        tracing::Span::current().record("pod", id.as_str());
        trace::note("sandbox.id", &id);
        // Whoever finds the record, or the network, waits until it is known what becomes of them.
        let _made = self.mutex.lock(id.as_str()).await;
        let attach = Attach { owner: self.owner(), ..attach_of(&id, &config, &annotations, (&handler.defaults, macs)) };
        // An older sandbox of the pod that is removed now finds this one, or has dropped the pod's disks before it is there.
        let disks = self.mutex.lock(disks_key(&config.uid)).await;
        let mut sandbox = Sandbox {
            version: SANDBOX_VERSION,
            id: id.clone(),
            state: SandboxState::Creating,
            created_at: self.uses.store.sandbox_time(now_nanos(), &config.uid),
            config,
            net: None,
            boot: self.uses.boot.id().to_owned(),
        };
        self.uses.store.put_sandbox(sandbox.clone()).await?;
        drop(disks);
        let made = async {
            let network = self.uses.store.moments().begin(Of::Sandbox(id.clone()), Phase::Network);
            let net = network.over(self.uses.tap.attach(attach)).await?;
            // Looked at anew: a plugin may have given the node an address, such as a bridge's.
            addresses::check_given(&net, &NodeAddresses::look().await?)?;
            sandbox.net = Some(net);
            sandbox.state = SandboxState::Ready;
            Ok(self.uses.store.put_sandbox(sandbox).await?)
        };
        match made.await {
            Ok(_) => {
                let took = (began, Instant::now());
                self.uses.store.moments().took(Of::Sandbox(id.clone()), Phase::Sandbox, took);
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

    /// The sandbox that is asked for, if it is there.
    ///
    /// # Errors
    /// When it is there and not as it is asked for, or the pod has another one.
    fn there(&self, config: &SandboxConfig) -> Result<Option<PodId>> {
        let (namespace, name, uid, attempt) = config.key();
        let all = self.uses.store.sandboxes();
        if let Some(same) = all.iter().find(|other| other.key() == config.key()) {
            return match same.state {
                SandboxState::Ready if same.config == *config => Ok(Some(same.id.clone())),
                _ => {
                    let what = format!(
                        "sandbox `{}` of pod `{namespace}/{name}`, attempt {attempt}, exists already; remove it first",
                        same.id
                    );
                    Err(Error::new(Kind::Exists, what))
                }
            };
        }
        // Of clients that are no kubelet, which may give no uid: their pods are not one pod.
        let other = all.iter().find(|other| !uid.is_empty() && other.config.uid == uid && self.is_up(other));
        other.map_or(Ok(None), |other| {
            let what = format!(
                "pod `{namespace}/{name}` has a sandbox that is ready or being made, `{}` (attempt {}); stop it first",
                other.id, other.config.attempt
            );
            Err(Error::new(Kind::Exists, what))
        })
    }

    /// Whether a sandbox is there or coming. What an earlier life had begun comes no more: it is undone.
    fn is_up(&self, sandbox: &Sandbox) -> bool {
        match sandbox.state {
            SandboxState::Ready => true,
            SandboxState::Creating => !self.half_made.contains(&sandbox.id),
            SandboxState::NotReady => false,
        }
    }

    /// Stops a sandbox: its machine is destroyed if it still runs, then its network goes. Fine if there is none.
    ///
    /// # Errors
    /// When the machine or the network would not go; it can be tried again.
    pub async fn stop(&self, id: &PodId) -> Result<()> {
        self.underway.give_up(id);
        let _pass = self.mutex.lock(id.as_str()).await;
        self.stop_inside(id).await
    }

    async fn stop_inside(&self, id: &PodId) -> Result<()> {
        let Some(sandbox) = self.uses.store.sandbox(id) else { return Ok(()) };
        for container in self.uses.store.containers_of(id) {
            self.containers.stop(container.id, Duration::ZERO).await?;
        }
        self.uses.orphans.clear(id).await?;
        let was_up = sandbox.state != SandboxState::NotReady;
        if was_up {
            // Also with a full disk: a pod that cannot be stopped would keep what fills it.
            self.uses.store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox.as_ref().clone() });
            // A start that kubelet has given up may have come in between. From here on none begins.
            for container in self.uses.store.containers_of(id) {
                self.containers.stop(container.id, Duration::ZERO).await?;
            }
        }
        // Also when it was stopped before: the network may have resisted then.
        self.uses.tap.detach(id.clone()).await?;
        if was_up {
            tracing::info!(pod = %id, "sandbox stopped");
        }
        Ok(())
    }

    /// Removes a sandbox with all that is in it. Fine if there is none.
    ///
    /// # Errors
    /// When a part would not go; it can be tried again.
    pub async fn remove(&self, id: &PodId) -> Result<()> {
        self.underway.give_up(id);
        let _pass = self.mutex.lock(id.as_str()).await;
        let Some(sandbox) = self.uses.store.sandbox(id) else { return Ok(()) };
        self.stop_inside(id).await?;
        for container in self.uses.store.containers_of(id) {
            self.containers.remove(container.id).await?;
        }
        let uid = &sandbox.config.uid;
        let _disks = self.mutex.lock(disks_key(uid)).await;
        // The disks belong to the pod: another sandbox of it goes on with them.
        if !self.uses.store.sandboxes().iter().any(|other| other.id != *id && other.config.uid == *uid) {
            self.uses.orphans.keep_what_is_used(uid).await?;
            self.uses.orphans.drop_disks(uid).await?;
        }
        // Last: what is on no record is nobody's.
        self.uses.store.remove_sandbox(id)?;
        tracing::info!(pod = %id, "sandbox removed");
        Ok(())
    }

    /// Takes back a sandbox that did not become ready. One that resists stays on record as not ready.
    async fn undo(&self, id: &PodId) {
        let undone = async {
            self.uses.tap.detach(id.clone()).await?;
            Ok::<(), Error>(self.uses.store.remove_sandbox(id)?)
        };
        let Err(error) = undone.await else { return };
        tracing::error!(pod = %id, error = %Chain(&error), "half-made sandbox not undone; stop it to try again");
        if let Some(sandbox) = self.uses.store.sandbox(id) {
            self.uses.store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox.as_ref().clone() });
        }
    }

    /// Our name at tapmanager.
    fn owner(&self) -> Option<OwnerId> {
        self.uses.instance.to_string().parse().ok()
    }
}

/// Whether there can be such a sandbox on a node of this configuration.
///
/// # Errors
/// When there can be none.
pub(crate) fn check(node: &Config, config: &SandboxConfig) -> Result<()> {
    let handlers = node.handler_names();
    let handler = &config.runtime_handler;
    if !handler.is_empty() && !handlers.contains(handler) {
        let known = handlers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let what = format!("unknown runtime handler `{handler}`; this node has {known}");
        return Err(Error::new(Kind::Invalid, what));
    }
    if config.namespaces.network == NODE {
        return Err(Error::new(Kind::Invalid, "a machine cannot be on the host's network; unset hostNetwork"));
    }
    Ok(())
}

/// Whether a sandbox is ready by a record of before the node was restarted: namespaces do not outlive that, whatever tapmanager
/// has yet to take down of them.
fn has_outlived_its_boot(sandbox: &Sandbox, boot: &Boot) -> bool {
    sandbox.state == SandboxState::Ready && boot.is_after(&sandbox.boot)
}

fn attach_of(
    id: &PodId,
    config: &SandboxConfig,
    annotations: &PodAnnotations,
    (handler, macs): (&MachineDefaults, &[(String, MacAddr)]),
) -> Attach {
    let described = &annotations.described;
    let default = NetworkAsk { mac: described.mac, ..NetworkAsk::default() };
    let mut networks = [&[default], annotations.networks.as_slice()].concat();
    for (nth, ask) in networks.iter_mut().enumerate().filter(|(_, ask)| ask.mac.is_none()) {
        let unsaid = if nth == 0 { "eth0".to_owned() } else { format!("net{nth}") };
        let name = ask.interface.as_ref().map_or(unsaid.as_str(), IfName::as_str);
        let said = annotations.macs.iter().find(|(link, _)| link.as_str() == name).map(|(_, mac)| *mac);
        let wish = said.or_else(|| macs.iter().find(|(link, _)| link == name).map(|(_, mac)| *mac));
        (ask.mac, ask.mac_is_wish) = (wish, wish.is_some());
    }
    if networks == [NetworkAsk::default()] {
        networks.clear();
    }
    let queues = annotations.vcpus.or(config.cpus).or(handler.default_vcpus);
    Attach {
        namespace: config.namespace.clone(),
        name: config.name.clone(),
        uid: config.uid.clone(),
        hostname: host_name(&config.hostname, &config.name).to_owned(),
        dns: config.dns.clone(),
        networks,
        data_path: annotations.data_path.or(handler.data_path.get().copied()),
        queues: if described.devices.one_nic_queue { Some(1) } else { queues },
        anti_spoof: annotations.anti_spoof,
        host_ports: config.host_ports.clone(),
        bandwidth: annotations.bandwidth.clone(),
        // The guest's are not the network's.
        sysctls: config.sysctls.clone().into_iter().filter(|(name, _)| is_of_the_network(name)).collect(),
        cgroup: config.cgroup_parent.clone(),
        dhcp: described.dhcp.clone(),
        ..Attach::new(id.clone())
    }
}

#[cfg(test)]
mod tests;
