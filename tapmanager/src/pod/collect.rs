//! Taking away what belongs to no pod. Called at the start of the daemon, from time to time, and when asked for.
//!
//! What is ours, and nothing else:
//! - pods on record that are on their way out: each is tried once more, and a hopeless overdue one is dropped;
//! - network namespaces in `netns_dir` whose name is this daemon's ([`super::names`]), if that is a mounted network
//!   namespace and no file of the journal, understood or not, is about that pod. Those of another daemon like this one,
//!   and those that an earlier release made and no record is about, have an unknown owner: they are told and kept;
//! - entries of the CNI result cache with our name in them whose attachment is not on record: each is given a DEL;
//! - with `cni_gc`, what plugins keep of attachments that are not on record (CNI specification 1.1.0, section 2, "GC").
//!   That word of CNI is about a whole network, whoever uses it, so it is for networks that are ours alone.
//!
//! Each pod is gone about by its own actor, so that nothing is taken away from a pod that is being attached meanwhile.
//! The two about CNI and ADD exclude each other by [`Tools::adding`](super::Tools): while a pod is being added, they are
//! left for the next time rather than let pods wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use futures_util::StreamExt as _;
use proto::tap::{CollectReport, PodId, PodPhase};
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use super::actor::{Actor, Collected, Command};
use super::health::bounded;
use super::machine::{AfterFailure, is_hopeless};
use super::names::Holder;
use super::world::{Checked, OfNetwork, Seen, World};
use super::{Pods, WORKED_ON_AT_ONCE};
use crate::blocking::off_reactor;
use crate::chain::Chain;

/// Of a namespace that another daemon may still need.
const UNKNOWN_OWNER: &str = "its owner is unknown; if no pod needs it, remove it with `ip netns delete`";
/// Pods that are looked after at the same time. Nobody waits for it, and each takes a thread for a moment.
const LOOKED_AFTER_AT_ONCE: usize = 2;

impl<W: World> Pods<W> {
    /// Takes away what belongs to no pod, and tells what was taken away and what was not.
    pub(crate) async fn collect(&self) -> CollectReport {
        let tools = &self.shared.tools;
        let mut all = Collected::default();
        let mut pods = self.in_phase(PodPhase::Detaching);
        match tools.world.namespaces(&tools.names).await {
            Ok(found) => {
                let on_record = self.namespaces_on_record();
                for (path, holder) in found.into_iter().filter(|(path, _)| !on_record.contains(path)) {
                    match holder {
                        Holder::Ours(pod) => pods.push(pod),
                        Holder::Unknown => all.kept.push(format!("namespace `{}`: {UNKNOWN_OWNER}", path.display())),
                    }
                }
            }
            Err(error) => all.kept.push(Chain(&error).to_string()),
        }
        let collected = futures_util::stream::iter(pods).map(|pod| async move { self.collect_pod(pod).await });
        let mut collected = collected.buffered(WORKED_ON_AT_ONCE);
        while let Some(Collected { removed, kept }) = collected.next().await {
            all.removed.extend(removed);
            all.kept.extend(kept);
        }
        drop(collected);
        self.collect_networks(&mut all).await;
        for line in &all.removed {
            info!(line, "collected");
        }
        for line in &all.kept {
            warn!(line, "not collected");
        }
        CollectReport { removed: bounded(all.removed), kept: bounded(all.kept) }
    }

    /// Looks after the pods that stand, a few at a time: what was lost without anybody telling is noticed here.
    pub(crate) async fn look_after(&self) {
        let looked_after = self.in_phase(PodPhase::Attached).into_iter().map(|pod| async move {
            let (done, wait) = oneshot::channel();
            match self.shared.tell(&pod, Command::LookAfter(done)) {
                // An actor that died has said so itself.
                Ok(()) => drop(wait.await),
                Err(error) => debug!(pod = pod.as_str(), error = %Chain(&error), "pod is not looked after now"),
            }
        });
        futures_util::stream::iter(looked_after).for_each_concurrent(LOOKED_AFTER_AT_ONCE, |pod| pod).await;
    }

    async fn collect_pod(&self, pod: PodId) -> Collected {
        let (reply, answer) = oneshot::channel();
        match self.shared.tell(&pod, Command::Collect(reply)) {
            // An actor that died has said so itself.
            Ok(()) => answer.await.unwrap_or_default(),
            Err(error) => Collected { removed: Vec::new(), kept: vec![Chain(&error).to_string()] },
        }
    }

    async fn collect_networks(&self, all: &mut Collected) {
        let tools = &self.shared.tools;
        let Ok(_nobody_adds) = tools.adding.try_write() else {
            all.kept.push("networks were not collected, because pods are being attached".to_owned());
            return;
        };
        // Intents that are not added to yet are on record as well.
        let journal = tools.journal.clone();
        let loaded = match off_reactor(move || journal.load()).await {
            Ok(loaded) if loaded.unreadable.is_empty() => loaded,
            Ok(_) => {
                // Their attachments would be taken for nobody's.
                all.kept
                    .push("networks were not collected, because files of the journal are not understood".to_owned());
                return;
            }
            Err(error) => return all.kept.push(Chain(&error).to_string()),
        };
        let mut networks: BTreeMap<String, OfNetwork> = BTreeMap::new();
        for network in tools.world.configured().await {
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
        for (name, network) in &networks {
            match tools.world.gc(network, tools.settings.cni_gc).await {
                Ok(Checked::Well) => {}
                Ok(Checked::NotAsked(why)) => debug!(network = name, why, "no CNI GC"),
                Err(error) => all.kept.push(Chain(&error).to_string()),
            }
        }
    }

    fn namespaces_on_record(&self) -> BTreeSet<PathBuf> {
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

impl<W: World> Actor<W> {
    /// Does what is to be done about this pod.
    pub(super) async fn collect(&mut self) -> Collected {
        match self.held.as_ref().map(|held| held.record.phase) {
            None => self.collect_stray().await,
            Some(PodPhase::Detaching) => self.collect_overdue().await,
            // Attached meanwhile.
            Some(PodPhase::Attached | PodPhase::Attaching) => Collected::default(),
        }
    }

    async fn collect_stray(&self) -> Collected {
        let tools = &self.shared.tools;
        let netns = tools.names.path(&self.pod);
        let name = netns.display().to_string();
        let (journal, pod) = (tools.journal.clone(), self.pod.clone());
        if off_reactor(move || journal.has(&pod)).await {
            return kept(format!("namespace `{name}`: the journal has a file of its pod that is not understood"));
        }
        match tools.world.look(&netns).await {
            Ok(Seen::Netns) => match tools.world.remove_netns(&netns).await {
                Ok(()) => removed(format!("namespace `{name}`, which belongs to no pod")),
                Err(error) => kept(format!("namespace `{name}`: {}", Chain(&error))),
            },
            Ok(Seen::Nothing | Seen::OtherFile) => Collected::default(),
            Err(error) => kept(format!("namespace `{name}`: {}", Chain(&error))),
        }
    }

    async fn collect_overdue(&mut self) -> Collected {
        let pod = self.pod.as_str().to_owned();
        let Err(error) = self.take_away().await else {
            return removed(format!("what was left of pod `{pod}`"));
        };
        let why = Chain(&error).to_string();
        let Some(held) = &self.held else { return Collected::default() };
        let seen = self.shared.tools.world.look(&held.record.netns).await;
        let hopeless = seen.is_ok_and(|seen| is_hopeless(error.cause.is_absence(), seen));
        if self.schedule() == AfterFailure::Overdue
            && hopeless
            && let Some(held) = &self.held
            && self.shared.tools.drop_remains(&held.record).await.is_ok()
        {
            self.gone();
            return removed(format!("pod `{pod}`, although its networks may keep something of it on the node: {why}"));
        }
        kept(format!("pod `{pod}`: {why}"))
    }
}

fn removed(line: String) -> Collected {
    Collected { removed: vec![line], kept: Vec::new() }
}

fn kept(line: String) -> Collected {
    Collected { removed: Vec::new(), kept: vec![line] }
}
