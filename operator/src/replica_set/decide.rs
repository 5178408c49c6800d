//! What is to be done about a set. Pure.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::own::Own;
use super::status;
use crate::backoff;
use crate::objects::{Meta as _, ReplicaSet, ReplicaSetStatus, Vmi, condition};
use crate::pending::Notes;

/// Most instances that are made or deleted at a time.
const BURST: usize = 250;
/// Annotation by which of several instances those go first whose number is smaller.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What is to be done, and to be said.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) status: ReplicaSetStatus,
    /// Instances of nobody that are to be its own.
    pub(super) adopt: Vec<Arc<Vmi>>,
    /// Its own that it does not select any more.
    pub(super) release: Vec<Arc<Vmi>>,
    pub(super) delete: Vec<Arc<Vmi>>,
    pub(super) create: usize,
    pub(super) wanted: Wanted,
}

/// When it is looked at again, besides at its news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Now,
    /// After starts that failed.
    Later(Duration),
}

/// `all` are the instances of its namespace.
pub(super) fn decide(set: &ReplicaSet, all: &[Arc<Vmi>], pending: &Notes, now: &Time) -> Verdict {
    let spec = Own::of(&set.spec.value());
    let own: Vec<&Arc<Vmi>> = all.iter().filter(|vmi| vmi.is_of(set.uid()) && spec.selects(vmi)).collect();
    let is_live =
        |vmi: &&&Arc<Vmi>| !vmi.is_going() && !vmi.status.is_final() && !pending.deleted.contains_key(vmi.uid());
    let mut live: Vec<&Arc<Vmi>> = own.iter().filter(is_live).copied().collect();
    let ended: Vec<&Arc<Vmi>> = own.iter().filter(|vmi| vmi.status.is_final() && !vmi.is_going()).copied().collect();
    let failure = failure(set, (spec.replicas, &live), &ended, now);
    let status = status::of(set, &spec, &live, failure.clone(), now);
    let mut verdict = Verdict {
        status,
        adopt: Vec::new(),
        release: all.iter().filter(|vmi| vmi.is_of(set.uid()) && !spec.selects(vmi)).cloned().collect(),
        delete: Vec::new(),
        create: 0,
        wanted: Wanted::Now,
    };
    if set.is_going() {
        verdict.release.clear();
        return verdict;
    }
    let is_free =
        |vmi: &&Arc<Vmi>| vmi.controller().is_none() && !vmi.is_going() && !vmi.status.is_final() && spec.selects(vmi);
    verdict.adopt = all.iter().filter(is_free).cloned().collect();
    if spec.is_paused || !verdict.adopt.is_empty() {
        return verdict;
    }
    let there =
        live.len() + pending.made.keys().filter(|name| !own.iter().any(|vmi| vmi.name() == name.as_str())).count();
    if there < spec.replicas {
        match backoff::left(failure.as_ref(), now) {
            None => verdict.create = (spec.replicas - there).min(BURST),
            Some(left) => verdict.wanted = Wanted::Later(left),
        }
    } else if there > spec.replicas {
        live.sort_by_key(|vmi| victim(vmi));
        verdict.delete = live.iter().take((there - spec.replicas).min(BURST)).map(|vmi| Arc::clone(vmi)).collect();
    }
    verdict.delete.extend(ended.into_iter().take(BURST).cloned());
    verdict
}

/// Which go first: the smaller, the sooner.
fn victim(vmi: &Vmi) -> impl Ord + use<> {
    let status = &vmi.status;
    let holds = |name: &str| condition(&status.conditions, name).is_some_and(crate::objects::Condition::holds);
    let cost: i64 = vmi.annotation(COST).and_then(|cost| cost.parse().ok()).unwrap_or_default();
    let made = vmi.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (
        !status.active_pods.is_empty(),
        status.node_name.is_some(),
        status.is_ready(),
        !holds("Paused"),
        cost,
        Reverse(made),
        vmi.name().to_owned(),
    )
}

/// Of starts that failed one after the other, with the last of those that ended before they ran.
fn failure(
    set: &ReplicaSet,
    (replicas, live): (usize, &[&Arc<Vmi>]),
    ended: &[&Arc<Vmi>],
    now: &Time,
) -> Option<crate::objects::StartFailure> {
    let before = set.status.start_failure.as_ref();
    // What fails together is one failure, and what failed before has to be made good first.
    let waits = backoff::left(before, now).is_some();
    let is_good = live.len() >= replicas && live.iter().all(|vmi| vmi.status.has_run());
    let failed = ended.iter().filter(|vmi| vmi.status.phase() == "Failed" && !vmi.status.has_run());
    if let Some(last) =
        failed.max_by_key(|vmi| (vmi.metadata.creation_timestamp.as_ref().map(|time| time.0), vmi.uid().to_owned()))
    {
        return if waits { before.cloned() } else { Some(backoff::after(before, last, now)) };
    }
    before.filter(|_| !is_good).cloned()
}

#[cfg(test)]
mod tests;
