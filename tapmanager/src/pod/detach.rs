//! Taking a pod's network away, step by step. Called by the pod's [`super::actor`] alone.
//!
//! The same steps serve a Detach, an Attach that failed half way, a restart after either was cut off, and a reboot of
//! the node: servers -> what of the join would outlive a DEL -> CNI DEL of each network, the last first -> namespace ->
//! record. All DELs run even if one fails. Each that succeeds is taken off the record.
//!
//! A Detach is answered after the last DEL, when all that others share with the pod is given back and this is on record
//! (a pod without networks). Namespace, sockets and record go behind the answer; the pod's next request waits for them,
//! going down too, and a restart finishes them.
//!
//! # When CNI DEL fails
//!
//! The pod stays on record with its namespace, so that an address or a firewall rule is never silently lost, and three
//! things go on, each in its time ([`super::machine::after_failure`]):
//! - Whoever asked is told what failed, and a Detach that is asked again tries again.
//! - The actor tries again by itself, after pauses that double up to a minute.
//! - `detach_give_up_s` after the first failure the pod is *overdue*. From then on Detach is answered as if all was
//!   well, because nothing may hold a pod's deletion up for ever; the pod stays listed as `Detaching` with its trouble,
//!   which is logged once as an error, and every collection ([`super::collect`]) tries again. One that is hopeless
//!   ([`super::machine::is_hopeless`]) is dropped there: its namespace and record are removed, and the report names
//!   what may be left on the node.
//!
//! One kind of failure is mended at once: the plugin `host-device` cannot give a link of the node back while the node has
//! another link of that name. The link gets another name to go back by, which is logged, and DEL is run once more. Where
//! namespace and record are removed although DEL fails, such a link is moved back before: if it is no hardware,
//! it would end with the namespace.
//!
//! The time of the first failure is on record, so that a restart does not begin the count anew.
//!
//! A plugin whose ADD was never begun, because one before it in the chain failed or it is not installed, holds nothing
//! up: there is nothing of it. Whoever asked is told. One whose ADD failed may have done half of it, and is given its
//! DEL until that succeeds.

use std::collections::BTreeSet;

use common::Chain;
use proto::tap::PodPhase;
use tracing::warn;

use super::Operations;
use super::attach::{At as _, Progress};
use super::error::{Step, StepCause, StepError, Undone, log_left};
use super::world::{NetnsState, Serving, World, WorldError};
use crate::journal::{Attachment, Failing, Journal, Record};
use crate::net::lent::Renamed;
use crate::net::path;

impl<W: World> Operations<W> {
    /// Undoes an Attach that broke off.
    pub(super) async fn undo(&self, record: &mut Record, progress: Progress) -> Undone {
        let Progress { netns, added, joined, serving } = progress;
        record.attachments.truncate(added);
        let mut left_behind = Vec::new();
        stop(serving.as_ref());
        let mut taken = self.undo_networks(record, joined, &mut left_behind).await;
        if taken.is_ok() {
            taken = self.remove(record, serving, netns).await;
        }
        let on_record = taken.is_err();
        if let Err(error) = taken {
            self.note_failure(record, &error).await;
            left_behind.push(error);
        }
        Undone { left_behind, on_record }
    }

    /// The first part of a Detach, of which others know: stops serving the guest and gives the networks back. That it is
    /// done is on record then, as a pod without networks. What fails is noted as well.
    pub(super) async fn give_back(&self, record: &mut Record, serving: Option<&Serving>) -> Result<(), StepError> {
        stop(serving);
        self.mark_detaching(record).await;
        let mut overlooked = Vec::new();
        let attached = !record.attachments.is_empty();
        let joined = outlives_del(record);
        let done = self.undo_networks(record, joined, &mut overlooked).await;
        overlooked.iter().for_each(|error| log_left(error));
        if let Err(error) = &done {
            self.note_failure(record, error).await;
        } else if attached {
            // Without it a restart gives them back once more, which is fine.
            self.journal(record, Journal::note).await.unwrap_or_else(|error| log_left(&error));
        }
        self.faults.passed();
        done
    }

    /// The second part, which is the pod's own affair: its namespace, and last of all its record. What fails is noted.
    pub(super) async fn drop_rest(&self, record: &mut Record, serving: Option<Serving>) -> Result<(), StepError> {
        let done = self.remove(record, serving, true).await;
        if let Err(error) = &done {
            self.note_failure(record, error).await;
        }
        done
    }

    /// Removes namespace and record of a pod whose networks cannot be given back. A link of the node is moved back before.
    pub(super) async fn drop_remains(&self, record: &Record) -> Result<(), StepError> {
        for attachment in &record.attachments {
            if let Some(renamed) = self.world.send_back(record, attachment).await.at(Step::SendBack)? {
                log_renamed(attachment, &renamed);
            }
        }
        self.world.remove_netns(&record.netns).await.at(Step::RemoveNetns)?;
        self.forget(record).await.at(Step::Forget)
    }

    async fn undo_networks(
        &self,
        record: &mut Record,
        joined: bool,
        overlooked: &mut Vec<StepError>,
    ) -> Result<(), StepError> {
        self.faults.passed();
        let netns = record.netns.clone();
        let seen = self.world.look(&netns).await.at(Step::LookAtNetns)?;
        // The plugins' DEL wants to find them in the namespace.
        let given_back = self.world.give_back(record.pod()).await.at(Step::GiveBack);
        self.faults.passed();
        if joined && seen == NetnsState::Present {
            self.world.unjoin(&netns).await.at(Step::Unjoin).unwrap_or_else(|error| overlooked.push(error));
            self.faults.passed();
        }
        if seen == NetnsState::OtherFile {
            self.world.remove_netns(&netns).await.at(Step::RemoveNetns)?;
        }
        // Whatever keeps a virtual function keeps no address and no port of the pod's other networks.
        let waiting = if given_back.is_ok() { BTreeSet::new() } else { of_functions(record) };
        let deleted = self.del_all(record, seen, &waiting, overlooked).await;
        given_back.and(deleted)
    }

    async fn remove(&self, record: &Record, serving: Option<Serving>, netns: bool) -> Result<(), StepError> {
        if let Some(serving) = serving {
            serving.ended().await;
        }
        if netns {
            self.world.remove_netns(&record.netns).await.at(Step::RemoveNetns)?;
        }
        self.faults.passed();
        self.forget(record).await.at(Step::Forget)?;
        self.faults.passed();
        Ok(())
    }

    /// Runs DEL of all networks that are not `waiting`, the last first, and takes those off the record whose DEL is done.
    async fn del_all(
        &self,
        record: &mut Record,
        seen: NetnsState,
        waiting: &BTreeSet<String>,
        overlooked: &mut Vec<StepError>,
    ) -> Result<(), StepError> {
        let mut failed = Vec::new();
        for place in (0..record.attachments.len()).rev() {
            let Some(attachment) = record.attachments.get(place) else { continue };
            if waiting.contains(attachment.network.name()) {
                continue;
            }
            let mut done = self.world.del(record, attachment, seen).await;
            if done.is_err() && seen == NetnsState::Present && self.make_way(record, attachment).await {
                done = self.world.del(record, attachment, seen).await;
            }
            match done {
                Ok(()) => {
                    record.attachments.remove(place);
                    self.faults.passed();
                }
                Err(error) if never_added(attachment, &error) => {
                    overlooked.push(StepError { step: Step::Del, cause: error.into() });
                    record.attachments.remove(place);
                }
                Err(error) => failed.push(error),
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(StepError { step: Step::Del, cause: StepCause::Dels(failed) }) }
    }

    /// Whether a DEL that failed can succeed now, as the link that it is to give back has another name to go by.
    async fn make_way(&self, record: &Record, attachment: &Attachment) -> bool {
        match self.world.make_way(record, attachment).await {
            Ok(renamed) => {
                renamed.iter().for_each(|renamed| log_renamed(attachment, renamed));
                renamed.is_some()
            }
            Err(error) => {
                log_left(&StepError { step: Step::SendBack, cause: error.into() });
                false
            }
        }
    }

    /// Notes that the pod is on its way out. A full disk must not keep anything from being taken away, and without the
    /// note a restart finds an attached pod that cannot be served, which waits for its Detach as well.
    async fn mark_detaching(&self, record: &mut Record) {
        if record.phase != PodPhase::Detaching {
            record.phase = PodPhase::Detaching;
            self.journal(record, Journal::note).await.unwrap_or_else(|error| log_left(&error));
        }
    }

    async fn note_failure(&self, record: &mut Record, error: &StepError) {
        let now = self.world.now();
        let earlier = record.failing.take();
        record.phase = PodPhase::Detaching;
        record.failing = Some(Failing {
            // A clock that was set back does not make it wait longer than from now.
            since: earlier.as_ref().map_or(now, |failing| failing.since.min(now)),
            tries: earlier.map_or(0, |failing| failing.tries).saturating_add(1),
            why: Chain(error).to_string(),
        });
        self.journal(record, Journal::note).await.unwrap_or_else(|error| log_left(&error));
    }
}

fn log_renamed(attachment: &Attachment, Renamed { was, becomes }: &Renamed) {
    let (network, link) = (attachment.network.name(), attachment.ifname.as_str());
    if *was == becomes.as_str() {
        warn!(network, link, becomes = %becomes, "a link of the node is moved back to it, as its plugin cannot");
    } else {
        warn!(
            network,
            link,
            was,
            becomes = %becomes,
            "a link of the node goes back to it under another name, as the node has another link of its own; rename it"
        );
    }
}

/// Tells the servers to end, if there are any; their sockets close meanwhile.
fn stop(serving: Option<&Serving>) {
    if let Some(serving) = serving {
        serving.stop();
    }
}

/// Whether the join may have made what has to go before DEL.
fn outlives_del(record: &Record) -> bool {
    record.net.as_ref().is_none_or(|net| net.nics.iter().any(|nic| path::of(nic.kind).outlives_del()))
}

/// Names of the networks that gave the pod virtual functions; of all, as long as that is not on record.
fn of_functions(record: &Record) -> BTreeSet<String> {
    match &record.net {
        Some(net) => net.nics.iter().filter(|nic| nic.vfio().is_some()).map(|nic| nic.network.clone()).collect(),
        None => record.attachments.iter().map(|attachment| attachment.network.name().to_owned()).collect(),
    }
}

/// Whether nothing but plugins whose ADD was never begun are to blame that a DEL failed.
fn never_added(attachment: &Attachment, error: &WorldError) -> bool {
    let culprits = error.culprits();
    attachment.begun.is_some_and(|begun| !culprits.is_empty() && culprits.iter().all(|culprit| culprit.place >= begun))
}
