//! Removes what belongs to no pod. Called at the start of the daemon, from time to time, and on request.
//!
//! It removes only what this daemon made:
//! - pods on record that are being taken away: each is tried once more, and one that is overdue and hopeless is
//!   dropped;
//! - attachments in the CNI result cache that carry this daemon's name and are not on record, each by a DEL;
//! - network namespaces with this daemon's name ([`super::names`]) and no record. A record is written before its
//!   namespace is made and removed after it, so a record has been lost, and a VM may still run in the namespace: a
//!   collection reports it, and removes it only on request;
//! - with `cni_gc`, what plugins keep of attachments that are not on record (CNI specification 1.1.0, section 2, "GC").
//!   GC is about a whole network, whichever runtimes use it. So it is for networks that only this daemon uses, and not
//!   for a node on which Multus adds attachments that are on no record.
//!
//! It reports and keeps what another daemon made, or a release that wrote no name, and what belongs to a file of the
//! journal that the daemon does not understand. [`super::forget`] removes that at a person's request.
//!
//! Each pod's actor collects its pod, so a pod that is attached meanwhile loses nothing. A pod whose plugins hang does
//! not hold up the others: after a while the next pod begins, and at its end the collection does not wait for such a
//! pod. Only GC keeps pods from being added, and it ends as soon as an ADD waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use common::Chain;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use proto::tap::{CollectReport, PodId, PodPhase};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::command::{Collected, Command, Occasion};
use super::names::NetnsOwner;
use super::world::{Checked, NetnsState, OfNetwork, World};
use super::{Pods, WORKED_ON_AT_ONCE};
use crate::blocking::off_reactor;
use crate::cni::{Leftover, Writer};

/// How long a pod has a place to itself.
const PLACE_FOR: Duration = Duration::from_secs(5);
/// How long a collection waits for what it has begun.
const COLLECT_WITHIN: Duration = Duration::from_secs(120);
/// How long GC may keep pods from being added, all networks together.
const GC_WITHIN: Duration = Duration::from_secs(15);
/// Of what another daemon may still need.
const UNKNOWN_OWNER: &str = "its owner is unknown";
/// Of what nobody may know any more: a state directory that was lost takes the name of its daemon with it.
const ANOTHER_OWNER: &str =
    "its namespace is gone, and it is another tapmanager's; if no other runs on this node, forget the pod";
/// Pods that are looked after at the same time. Nobody waits for it, and each takes a thread for a moment.
const LOOKED_AFTER_AT_ONCE: usize = 2;

impl<W: World> Pods<W> {
    /// Takes away what belongs to no pod, and tells what was taken away and what was not.
    pub(crate) async fn collect(&self, occasion: Occasion) -> CollectReport {
        let mut all = Collected::default();
        let mut pods: BTreeMap<PodId, Vec<Leftover>> = self.strays(&mut all).await;
        pods.extend(self.in_phase(PodPhase::Detaching).into_iter().map(|pod| (pod, Vec::new())));
        let (places, until) = (Semaphore::new(WORKED_ON_AT_ONCE), Instant::now() + COLLECT_WITHIN);
        let collected = pods.into_iter().map(|(pod, leftovers)| {
            let collect = |reply| Command::Collect { leftovers, occasion, reply };
            self.collect_pod(pod, collect, (&places, until))
        });
        for one in join_all(collected).await {
            all.add(one);
        }
        if self.shared.operations.settings.cni_gc {
            self.collect_networks(&mut all).await;
        }
        for line in &all.removed {
            info!(line, "collected");
        }
        for line in &all.kept {
            warn!(line, "not collected");
        }
        all.report()
    }

    /// Looks after the pods that stand, a few at a time: what was lost without anybody telling is noticed here.
    pub(crate) async fn look_after(&self) {
        let looked_after = self.in_phase(PodPhase::Attached).into_iter().map(|pod| async move {
            let (done, wait) = oneshot::channel();
            match self.shared.tell(&pod, Command::LookAfter(done)).await {
                // An actor that died has said so itself.
                Ok(()) => drop(wait.await),
                Err(error) => debug!(pod = pod.as_str(), error = %Chain(&error), "pod is not looked after now"),
            }
        });
        futures_util::stream::iter(looked_after).for_each_concurrent(LOOKED_AFTER_AT_ONCE, |pod| pod).await;
    }

    /// The pods that left something of this daemon and are on no record. It is listed first what there is, and then
    /// looked who is on record: an ADD that runs meanwhile is of a pod that has been on record all the time.
    async fn strays(&self, all: &mut Collected) -> BTreeMap<PodId, Vec<Leftover>> {
        let operations = &self.shared.operations;
        let mut pods: BTreeMap<PodId, Vec<Leftover>> = BTreeMap::new();
        let leftovers = operations.world.leftovers().await.unwrap_or_else(|error| {
            all.kept.push(Chain(&error).to_string());
            Vec::new()
        });
        let namespaces = operations.world.namespaces(&operations.names).await.unwrap_or_else(|error| {
            all.kept.push(Chain(&error).to_string());
            Vec::new()
        });
        for leftover in leftovers.into_iter().filter(|leftover| self.view(&leftover.pod).is_none()) {
            match leftover.writer {
                Writer::Here => pods.entry(leftover.pod.clone()).or_default().push(leftover),
                // Its own daemon collects it, if there is one.
                Writer::Other if matches!(operations.world.look(&leftover.netns).await, Ok(NetnsState::Present)) => {}
                Writer::Other => all.kept.push(format!("{leftover}: {ANOTHER_OWNER}")),
                Writer::Unknown => all.kept.push(format!("{leftover}: {UNKNOWN_OWNER}")),
            }
        }
        for pod in operations.world.vf_owners().into_iter().filter(|pod| self.view(pod).is_none()) {
            pods.entry(pod).or_default();
        }
        let on_record = self.namespaces_on_record();
        for (path, owner) in namespaces.into_iter().filter(|(path, _)| !on_record.contains(path)) {
            match owner {
                NetnsOwner::ThisDaemon(pod) => drop(pods.entry(pod).or_default()),
                NetnsOwner::Unknown => all.kept.push(format!("namespace `{}`: {UNKNOWN_OWNER}", path.display())),
            }
        }
        pods
    }

    /// Has the pod's actor go about it.
    async fn collect_pod(
        &self,
        pod: PodId,
        command: impl FnOnce(oneshot::Sender<Collected>) -> Command,
        (places, until): (&Semaphore, Instant),
    ) -> Collected {
        let late = |what: &str| Collected::kept(format!("pod `{}`: {what}", pod.as_str()));
        let Ok(place) = timeout_at(until, places.acquire()).await else {
            return late("others took so long that it was not gone about");
        };
        let (reply, mut answer) = oneshot::channel();
        if let Err(error) = self.shared.tell(&pod, command(reply)).await {
            return Collected::kept(Chain(&error).to_string());
        }
        // An actor that died has said so itself.
        if let Ok(done) = timeout(PLACE_FOR, &mut answer).await {
            return done.unwrap_or_default();
        }
        drop(place);
        match timeout_at(until, answer).await {
            Ok(done) => done.unwrap_or_default(),
            Err(_late) => late("it is still being worked on"),
        }
    }

    /// Has the plugins of all networks collect.
    async fn collect_networks(&self, all: &mut Collected) {
        let operations = &self.shared.operations;
        let Some(_nobody_adds) = operations.gc_lock.collect() else {
            all.kept.push("networks were not collected, because pods are being attached".to_owned());
            return;
        };
        let networks = match self.networks_on_record().await {
            Ok(networks) => networks,
            Err(why) => return all.kept.push(why),
        };
        let until = Instant::now() + GC_WITHIN;
        for (name, network) in &networks {
            if operations.gc_lock.is_add_waiting() {
                all.kept.push(format!("networks from `{name}` on were not collected, because a pod is to be attached"));
                return;
            }
            match timeout_at(until, operations.world.gc(network)).await {
                Ok(Ok(Checked::Well)) => {}
                Ok(Ok(Checked::NotAsked(why))) => debug!(network = name, why, "no CNI GC"),
                Ok(Err(error)) => all.kept.push(Chain(&error).to_string()),
                Err(_late) => {
                    let limit = GC_WITHIN.as_secs();
                    all.kept.push(format!("networks from `{name}` on were not collected within {limit} s"));
                    return;
                }
            }
        }
    }

    /// All networks with the attachments that are on record, those that are not added to yet as well.
    async fn networks_on_record(&self) -> Result<BTreeMap<String, OfNetwork>, String> {
        let operations = &self.shared.operations;
        let journal = operations.journal.clone();
        let loaded = off_reactor(move || journal.load()).await.map_err(|error| Chain(&error).to_string())?;
        if !loaded.unreadable.is_empty() {
            // Their attachments would be taken for nobody's.
            return Err("networks were not collected, because files of the journal are not understood".to_owned());
        }
        if loaded.records.values().flat_map(|record| &record.attachments).any(|one| one.network.is_multus()) {
            // So would those of Multus' delegates, which are on no record of ours.
            return Err("networks were not collected, because pods have networks through Multus".to_owned());
        }
        let mut networks: BTreeMap<String, OfNetwork> = BTreeMap::new();
        for network in operations.world.configured().await {
            let name = network.name().to_owned();
            networks.insert(name, OfNetwork { network, valid: Vec::new() });
        }
        for record in loaded.records.into_values() {
            let pod = record.pod().clone();
            for attachment in record.attachments {
                let name = attachment.network.name().to_owned();
                let of = networks.entry(name).or_insert(OfNetwork { network: attachment.network, valid: Vec::new() });
                of.valid.push((pod.clone(), attachment.ifname));
            }
        }
        Ok(networks)
    }

    pub(super) fn namespaces_on_record(&self) -> BTreeSet<PathBuf> {
        let handles = self.shared.lock();
        let views = handles.iter().flat_map(BTreeMap::values).filter_map(|handle| handle.view.borrow().clone());
        views.map(|view| view.netns.to_path_buf()).collect()
    }

    fn in_phase(&self, phase: PodPhase) -> Vec<PodId> {
        let handles = self.shared.lock();
        let there = handles
            .iter()
            .flatten()
            // One that is being recovered is worked on already.
            .filter(|(_, handle)| {
                handle.view.borrow().as_ref().is_some_and(|view| view.phase == phase && !view.recovering)
            });
        there.map(|(pod, _)| pod.clone()).collect()
    }
}
