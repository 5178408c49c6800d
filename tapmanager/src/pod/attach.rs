//! Making a pod's network, step by step. Called by the pod's [`super::actor`] alone.
//!
//! Intent -> namespace and its sysctls -> CNI ADD of each network in order -> join of taps and links -> claim of virtual
//! functions -> servers -> result. Each network's result is on record before the next ADD begins, so a daemon that was killed knows afterwards
//! which ADDs may have run, and their results. The intent is written before anything is changed, and flushed while the
//! first plugin starts up, before that gets its command: nothing earlier survives a power failure. [`super::detach`]
//! undoes an Attach that fails.
//!
//! Resolver settings are kubelet's if it says any, else those of the first network that says any; there is no mixing of
//! servers of one network with search domains of another.

use std::sync::{Arc, OnceLock};

use futures_util::future::join;
use proto::tap::{Attach, PodNet, PodPhase};
use serde_json::Value;

use super::Operations;
use super::error::{Step, StepCause, StepError, log_left};
use super::request;
use super::world::{NetnsState, Network, Serving, World, WorldError};
use crate::blocking::{aside, off_reactor};
use crate::cni::{Gate, settle_macs};
use crate::journal::{Attachment, Journal, JournalError, Record};
use crate::net::Choices;

/// How far an Attach came, and what runs already.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The namespace may be there.
    pub(super) netns: bool,
    /// The ADDs that may have run.
    pub(super) added: usize,
    /// The join is made.
    pub(super) joined: bool,
    pub(super) serving: Option<Serving>,
}

pub(super) trait At<T> {
    fn at(self, step: Step) -> Result<T, StepError>;
}

impl<T, E: Into<StepCause>> At<T> for Result<T, E> {
    fn at(self, step: Step) -> Result<T, StepError> {
        self.map_err(|cause| StepError { step, cause: cause.into() })
    }
}

impl<W: World> Operations<W> {
    /// Decides what is going to be made, and puts it on record. Nothing is left if it fails.
    pub(super) async fn intend(&self, request: &Attach) -> Result<Record, StepError> {
        let netns = self.names.path(&request.pod);
        let (networks, seen) = join(self.world.networks(request), self.world.look(&netns)).await;
        let networks = networks.at(Step::ReadConfiguration)?;
        let mut request = request.clone();
        settle_macs(&mut request, &networks);
        // From the intent on, the file is ours to remove. So it must not have been there before.
        if seen.at(Step::LookAtNetns)? != NetnsState::Absent {
            return Err(StepError { step: Step::CreateNetns, cause: StepCause::Taken });
        }
        let names = request::interfaces(&request.networks).at(Step::ReadConfiguration)?;
        let attachments = networks
            .into_iter()
            .zip(names)
            .zip(request::asks(&request))
            .map(|((network, ifname), ask)| Attachment { network, ifname, ask, begun: None, result: None })
            .collect();
        let choices = Choices {
            data_path: request.data_path.unwrap_or(self.settings.data_path),
            queues: request.queues.unwrap_or(1).min(self.settings.max_queues),
            anti_spoof: request.anti_spoof.unwrap_or(self.settings.anti_spoof),
        };
        let record = Record::intent(request, self.boot.clone(), netns, choices, attachments);
        match self.journal(&record, Journal::create).await {
            Err(error @ JournalError::Occupied { .. }) => Err(error).at(Step::WriteIntent),
            Err(error) => {
                // It may be in place all the same.
                self.forget(&record).await.unwrap_or_else(|error| log_left(&error));
                Err(error).at(Step::WriteIntent)
            }
            Ok(()) => Ok(record),
        }
    }

    /// Makes what `record` intends, and completes it.
    pub(super) async fn make(&self, record: &mut Record, progress: &mut Progress) -> Result<Arc<PodNet>, StepError> {
        self.faults.after("intent written").at(Step::WriteIntent)?;
        let (journal, pod) = (self.journal.clone(), record.pod().clone());
        let flushed = aside(move || journal.flush(&pod));
        let made = self.world.create_netns(&record.netns).await;
        progress.netns = made.is_ok();
        made.at(Step::CreateNetns)?;
        self.faults.after("namespace created").at(Step::CreateNetns)?;
        if !record.request.sysctls.is_empty() {
            self.world.sysctls(&record.netns, &record.request.sysctls).await.at(Step::Sysctls)?;
            self.faults.after("sysctls written").at(Step::Sysctls)?;
        }
        let unflushed = Arc::new(OnceLock::new());
        let (told, faults) = (Arc::clone(&unflushed), Arc::clone(&self.faults));
        let mut gate: Option<Gate<'_>> = Some(Box::pin(async move {
            let flushed = flushed.await.at(Step::WriteIntent);
            let flushed = flushed.and_then(|()| faults.after("intent flushed").at(Step::WriteIntent));
            flushed.map_err(|error| told.set(error)).is_ok()
        }));
        let mut reported = Vec::new();
        let mut dns = record.request.dns.clone();
        while let Some(attachment) = record.attachments.get(progress.added) {
            let network = match self.add(record, attachment, gate.take(), progress).await {
                Ok(network) => network,
                Err(error) => {
                    if let Some(attachment) = record.attachments.get_mut(progress.added - 1) {
                        attachment.begun = Some(error.begun(&attachment.network));
                    }
                    return match Arc::into_inner(unflushed).and_then(OnceLock::into_inner) {
                        Some(unflushed) => Err(unflushed),
                        None => Err(error).at(Step::Add),
                    };
                }
            };
            self.note_result(record, progress.added - 1, network.raw).await?;
            reported.extend(network.reported);
            let says_any = !network.dns.servers.is_empty() || !network.dns.searches.is_empty();
            if dns.is_none() && (says_any || !network.dns.options.is_empty()) {
                dns = Some(network.dns);
            }
        }
        let joined = self.world.join(&record.netns, &reported, record.choices, &self.faults).await.at(Step::Join)?;
        progress.joined = true;
        if !joined.passed_through.is_empty() {
            self.world.claim(record, &joined.passed_through).await.at(Step::Claim)?;
            self.faults.after("virtual functions taken").at(Step::Claim)?;
        }
        let net = Arc::new(PodNet { netns: record.netns.clone(), nics: joined.nics, dns: dns.unwrap_or_default() });
        progress.serving = Some(self.world.serve(&net, &record.request, joined.ports));
        self.faults.after("DHCP served").at(Step::Serve)?;
        record.net = Some(PodNet::clone(&net));
        record.notes = joined.notes;
        record.phase = PodPhase::Attached;
        self.journal(record, Journal::note).await.at(Step::WriteResult)?;
        self.faults.after("result written").at(Step::WriteResult)?;
        Ok(net)
    }

    /// Runs ADD of the next network.
    async fn add(
        &self,
        record: &Record,
        attachment: &Attachment,
        gate: Option<Gate<'_>>,
        progress: &mut Progress,
    ) -> Result<Network, WorldError> {
        // What is added meanwhile is not on the list that a collection gives to plugins.
        let _adding = self.gc_lock.add().await;
        progress.added += 1;
        self.world.add(record, attachment, gate).await
    }

    async fn note_result(&self, record: &mut Record, place: usize, raw: Value) -> Result<(), StepError> {
        if let Some(attachment) = record.attachments.get_mut(place) {
            attachment.result = Some(raw);
        }
        self.journal(record, Journal::note).await.at(Step::WriteResult)?;
        self.faults.after("network added").at(Step::Add)
    }

    pub(super) async fn journal(
        &self,
        record: &Record,
        write: impl FnOnce(&Journal, &Record) -> Result<(), JournalError> + Send + 'static,
    ) -> Result<(), JournalError> {
        let (journal, record) = (self.journal.clone(), record.clone());
        off_reactor(move || write(&journal, &record)).await
    }

    pub(super) async fn forget(&self, record: &Record) -> Result<(), JournalError> {
        let (journal, pod) = (self.journal.clone(), record.pod().clone());
        off_reactor(move || journal.remove(&pod)).await
    }
}
