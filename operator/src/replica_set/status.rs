//! What is said of a set.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};

use super::own::Own;
use crate::objects::{Condition, ReplicaSet, ReplicaSetStatus, StartFailure, Vmi, condition};

const FAILED: &str = "ReplicaFailure";

pub(super) fn of(
    set: &ReplicaSet,
    spec: &Own,
    live: &[&Arc<Vmi>],
    failure: Option<StartFailure>,
    now: &Time,
) -> ReplicaSetStatus {
    let count = |all: usize| i64::try_from(all).unwrap_or(i64::MAX);
    let mut all = Vec::new();
    if spec.is_paused {
        all.push(Condition::new(
            "ReplicaPaused",
            true,
            "Paused",
            "spec.paused is true: instances are neither made nor deleted",
        ));
    }
    // As long as there are too few.
    if live.len() < spec.replicas
        && let Some(failed) = condition(&set.status.conditions, FAILED)
    {
        all.push(failed.clone());
    }
    ReplicaSetStatus {
        replicas: count(live.len()),
        ready_replicas: count(live.iter().filter(|vmi| vmi.status.is_ready()).count()),
        start_failure: failure,
        label_selector: Some(text(&spec.selector)),
        observed_generation: set.metadata.generation,
        conditions: all.into_iter().map(|one| one.since(&set.status.conditions, now)).collect(),
    }
}

/// `status`, with why an instance could not be made.
pub(super) fn refused(set: &ReplicaSet, mut status: ReplicaSetStatus, why: &str, now: &Time) -> ReplicaSetStatus {
    let failed = Condition::new(FAILED, true, "FailedCreate", why).since(&set.status.conditions, now);
    status.conditions.retain(|condition| condition.type_ != FAILED);
    status.conditions.push(failed);
    status
}

/// A selector as `kubectl -l` takes it, and autoscalers do.
fn text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        match one.operator.as_str() {
            "In" => format!("{} in ({values})", one.key),
            "NotIn" => format!("{} notin ({values})", one.key),
            "DoesNotExist" => format!("!{}", one.key),
            _ => one.key.clone(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}
