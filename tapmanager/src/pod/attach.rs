//! Making and taking away a pod's network, step by step. Called by the pod's [`super::actor`] alone.
//!
//! Making: intent -> namespace -> CNI ADD -> join of taps and links -> DHCP -> result. Taking away is the reverse, and
//! is one function, whether a Detach wants it, an Attach failed half way, or a restart found either cut off.
//!
//! When CNI DEL fails, the pod stays on record with its namespace, so that the next Detach can try again: an address or
//! a firewall rule is never silently lost. Three failures do not hold a Detach up; they are logged, or told by the
//! Attach that failed, because no repetition could help:
//! - the namespace is gone: DEL is run once all the same, for IPAM and firewall, and its error overlooked;
//! - a plugin is not installed any more, the [`GIVE_UP_ON_ABSENT`]th time in a row;
//! - while an Attach is undone, a plugin whose own ADD did not come to a good end.

use std::collections::BTreeSet;
use std::sync::Arc;

use proto::tap::{Attach, DataPath, PodNet, PodPhase};
use tracing::warn;

use super::Tools;
use super::error::{Step, StepCause, StepError, Undone};
use super::world::{Seen, Serving, World, WorldError};
use crate::blocking::off_reactor;
use crate::chain::Chain;
use crate::cni::NetworkList;
use crate::journal::{Journal, JournalError, Record};
use crate::net::Wish;

/// How many Detaches in a row fail for want of a plugin before the pod is dropped without it: a kubelet asks again
/// within seconds, and an upgrade of plugins takes some.
pub(super) const GIVE_UP_ON_ABSENT: u32 = 3;

/// How far an Attach came, for its undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    /// On record.
    Intent,
    /// The namespace is there.
    Netns,
    /// Plugins may have run.
    Add,
    /// Everything.
    Join,
}

/// How far an Attach came, and what runs already.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Begun,
    pub(super) serving: Option<Serving>,
}

trait At<T> {
    fn at(self, step: Step) -> Result<T, StepError>;
}

impl<T, E: Into<StepCause>> At<T> for Result<T, E> {
    fn at(self, step: Step) -> Result<T, StepError> {
        self.map_err(|cause| StepError { step, cause: cause.into() })
    }
}

impl Progress {
    pub(super) const fn none() -> Self {
        Self { begun: Begun::Intent, serving: None }
    }
}

impl<W: World> Tools<W> {
    /// Decides what is going to be made, and puts it on record. Nothing is left if it fails.
    pub(super) async fn intend(&self, request: &Attach) -> Result<Record, StepError> {
        let network = self.world.default_network().await.at(Step::ReadConfiguration)?;
        let netns = self.netns_dir.join(format!("virtlet-{}", request.pod.as_str()));
        // From the intent on, the file is ours to remove. So it must not have been there before.
        if self.world.look(&netns).await.at(Step::LookAtNetns)? != Seen::Nothing {
            return Err(StepError { step: Step::CreateNetns, cause: StepCause::Taken });
        }
        let record = Record::intent(request.clone(), netns, network);
        match self.journal(&record, Journal::create).await {
            Err(error @ JournalError::Occupied { .. }) => Err(error).at(Step::WriteIntent),
            Err(error) => {
                // It may be in place, only not flushed.
                self.forget(&record).await.unwrap_or_else(|error| log_left(&error));
                Err(error).at(Step::WriteIntent)
            }
            Ok(()) => Ok(record),
        }
    }

    /// Makes what `record` intends, and completes it.
    pub(super) async fn make(&self, record: &mut Record, progress: &mut Progress) -> Result<Arc<PodNet>, StepError> {
        self.faults.after("intent written").at(Step::WriteIntent)?;
        self.world.create_netns(&record.netns).await.at(Step::CreateNetns)?;
        progress.begun = Begun::Netns;
        self.faults.after("namespace created").at(Step::CreateNetns)?;
        progress.begun = Begun::Add;
        let network = self.world.add(record).await.at(Step::Add)?;
        record.result = Some(network.raw);
        self.faults.after("network added").at(Step::Add)?;
        let wish = Wish {
            data_path: record.request.data_path.unwrap_or(DataPath::Tc),
            queues: record.request.queues.unwrap_or(1),
            anti_spoof: record.request.anti_spoof.unwrap_or(true),
        };
        let reported = [network.reported];
        let joined = self.world.join(&record.netns, &reported, &wish, &self.faults).await.at(Step::Join)?;
        progress.begun = Begun::Join;
        let dns = record.request.dns.clone().unwrap_or(network.dns);
        let net = Arc::new(PodNet { netns: record.netns.clone(), nics: joined.nics, dns });
        progress.serving = Some(self.world.serve(&net, &record.request.hostname, joined.dhcp));
        self.faults.after("DHCP served").at(Step::Serve)?;
        record.net = Some(PodNet::clone(&net));
        record.phase = PodPhase::Attached;
        self.journal(record, Journal::replace).await.at(Step::WriteResult)?;
        self.faults.after("result written").at(Step::WriteResult)?;
        Ok(net)
    }

    /// Undoes an Attach that broke off by `cause`.
    pub(super) async fn undo(&self, record: &mut Record, progress: Progress, cause: &StepError) -> Undone {
        let Progress { begun, serving } = progress;
        let excused = match cause {
            StepError { step: Step::Add, cause: StepCause::World(error) } => without_add(&record.network, error),
            _ => BTreeSet::new(),
        };
        let excuse = |error: &WorldError| {
            let culprits = error.culprits();
            !culprits.is_empty() && culprits.iter().all(|culprit| excused.contains(culprit.plugin))
        };
        let mut left_behind = Vec::new();
        let taken = self.take_away(record, begun, serving, excuse, &mut left_behind).await;
        let on_record = taken.is_err();
        if let Err(error) = taken {
            left_behind.push(error);
            self.mark_detaching(record).await;
        }
        Undone { left_behind, on_record }
    }

    /// Takes everything away, as far as it is there.
    pub(super) async fn detach(&self, record: &mut Record, serving: Option<Serving>) -> Result<(), StepError> {
        self.mark_detaching(record).await;
        let earlier = record.plugin_missing;
        let mut missing = 0;
        let give_up = |error: &WorldError| {
            let culprits = error.culprits();
            if culprits.is_empty() || !culprits.iter().all(|culprit| culprit.absent) {
                return false;
            }
            missing = earlier + 1;
            missing >= GIVE_UP_ON_ABSENT
        };
        let mut overlooked = Vec::new();
        let done = self.take_away(record, Begun::Join, serving, give_up, &mut overlooked).await;
        overlooked.iter().for_each(|error| log_left(error));
        if done.is_err() && missing != earlier {
            record.plugin_missing = missing;
            self.journal(record, Journal::replace).await.unwrap_or_else(|error| log_left(&error));
        }
        done
    }

    async fn take_away(
        &self,
        record: &Record,
        begun: Begun,
        serving: Option<Serving>,
        overlook: impl FnOnce(&WorldError) -> bool + Send,
        overlooked: &mut Vec<StepError>,
    ) -> Result<(), StepError> {
        if let Some(serving) = &serving {
            serving.stop();
        }
        let netns = &record.netns;
        let seen = self.world.look(netns).await.at(Step::LookAtNetns)?;
        if begun >= Begun::Join && seen == Seen::Netns {
            // The filters are ours and go with the namespace; DEL does not mind them.
            self.world.unjoin(netns).await.at(Step::Unjoin).unwrap_or_else(|error| overlooked.push(error));
        }
        if seen == Seen::OtherFile {
            // Plugins take a missing namespace for gone, but a file that is none for an error.
            self.world.remove_netns(netns).await.at(Step::RemoveNetns)?;
        }
        if begun >= Begun::Add
            && let Err(error) = self.world.del(record).await
        {
            let hold_up = seen == Seen::Netns && !overlook(&error);
            let error = StepError { step: Step::Del, cause: error.into() };
            if hold_up {
                return Err(error);
            }
            overlooked.push(error);
        }
        if let Some(serving) = serving {
            serving.ended().await;
        }
        if begun >= Begun::Netns {
            self.world.remove_netns(netns).await.at(Step::RemoveNetns)?;
        }
        self.forget(record).await.at(Step::Forget)
    }

    /// Notes that the pod is on its way out. A full disk must not keep anything from being taken away, and without the
    /// note a restart finds an attached pod that cannot be served, which waits for its Detach as well.
    async fn mark_detaching(&self, record: &mut Record) {
        if record.phase != PodPhase::Detaching {
            record.phase = PodPhase::Detaching;
            self.journal(record, Journal::replace).await.unwrap_or_else(|error| log_left(&error));
        }
    }

    async fn journal(
        &self,
        record: &Record,
        write: impl FnOnce(&Journal, &Record) -> Result<(), JournalError> + Send + 'static,
    ) -> Result<(), JournalError> {
        let (journal, record) = (self.journal.clone(), record.clone());
        off_reactor(move || write(&journal, &record)).await
    }

    async fn forget(&self, record: &Record) -> Result<(), JournalError> {
        let (journal, pod) = (self.journal.clone(), record.pod().clone());
        off_reactor(move || journal.remove(&pod)).await
    }
}

/// The plugins whose ADD did not come to a good end, when ADD as a whole failed with `error`.
fn without_add(network: &NetworkList, error: &WorldError) -> BTreeSet<String> {
    let culprits = error.culprits();
    let failed = |kind: &&str| culprits.iter().any(|culprit| culprit.plugin == *kind);
    network.kinds().skip_while(|kind| !failed(kind)).map(str::to_owned).collect()
}

fn log_left(error: &(dyn std::error::Error + 'static)) {
    warn!(error = %Chain(error), "something was left behind");
}
