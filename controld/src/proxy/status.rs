//! `Status` of both sides: the default's bytes, and behind them what is ours, which decoders merge into it. Pure but for the time it is told.
//!
//! Of ours there is one condition, `VirtletReady`, that kubelet passes over: with any of its own false the whole node is not ready, and
//! containers have nothing to do with libvirt. Our handlers stay listed while we are not ready, as a node's handlers are what pods are
//! admitted by; the one without a name, and the features, are the default's.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{RuntimeCondition, RuntimeHandler, RuntimeStatus, StatusResponse};

use super::wire::{self, Malformed, Value};

#[cfg(test)]
mod tests;

/// Our condition.
const READY: &str = "VirtletReady";
/// How long the last good Status serves. kubelet itself has 30 s of patience with errors.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What keeps machines from being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: String,
    pub(super) message: String,
}

/// Why there is no Status of the default's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// How long it has not been reached.
    pub(super) since: Duration,
    pub(super) why: String,
}

/// The default's part of the answer.
pub(super) fn of_default(fresh: Result<Bytes, Missing>, last: Option<Bytes>) -> Bytes {
    match (fresh, last) {
        (Ok(fresh), _) => fresh,
        (Err(missing), Some(last)) if missing.since < PATIENCE => last,
        (Err(missing), last) => down(&missing, last.as_ref()).encode_to_vec().into(),
    }
}

/// Of a default that is away for long: handlers and features as they were, and the one condition that makes the node not ready.
fn down(missing: &Missing, last: Option<&Bytes>) -> StatusResponse {
    let mut status = last.and_then(|last| StatusResponse::decode(last.clone()).ok()).unwrap_or_default();
    let mut conditions = status.status.take().unwrap_or_default().conditions;
    conditions.retain(|condition| condition.r#type != "RuntimeReady");
    if !conditions.iter().any(|condition| condition.r#type == "NetworkReady") {
        // kubelet wants both, and knows nothing of this one.
        conditions.insert(0, condition("NetworkReady", Some(&unknown(missing))));
    }
    conditions.insert(0, condition("RuntimeReady", Some(&unknown(missing))));
    StatusResponse { status: Some(RuntimeStatus { conditions }), ..status }
}

fn unknown(missing: &Missing) -> Trouble {
    let message = format!("the container runtime is away since {} s: {}", missing.since.as_secs(), missing.why);
    Trouble { reason: "ContainerRuntimeDown".into(), message }
}

fn condition(kind: &str, trouble: Option<&Trouble>) -> RuntimeCondition {
    RuntimeCondition {
        r#type: kind.into(),
        status: trouble.is_none(),
        reason: trouble.map(|trouble| trouble.reason.clone()).unwrap_or_default(),
        message: trouble.map(|trouble| trouble.message.clone()).unwrap_or_default(),
    }
}

/// What our own Status says that keeps machines from being made.
pub(super) fn of_own(own: &StatusResponse) -> Option<Trouble> {
    let conditions = own.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let needed = ["RuntimeReady", "NetworkReady"];
    let bad = conditions.iter().find(|condition| needed.contains(&condition.r#type.as_str()) && !condition.status);
    bad.map(|bad| Trouble { reason: bad.reason.clone(), message: bad.message.clone() })
}

/// Behind the default's part: our condition, our handlers, and what `crictl info` shows.
pub(super) fn ours(trouble: Option<&Trouble>, handlers: Vec<RuntimeHandler>, info: HashMap<String, String>) -> Bytes {
    let conditions = vec![condition(READY, trouble)];
    let addition = StatusResponse {
        status: Some(RuntimeStatus { conditions }),
        info,
        runtime_handlers: handlers.into_iter().filter(|handler| !handler.name.is_empty()).collect(),
        features: None,
    };
    addition.encode_to_vec().into()
}

/// Names of the default's runtime handlers.
pub(super) fn handlers(status: &[u8]) -> Result<BTreeSet<String>, Malformed> {
    let mut names = BTreeSet::new();
    wire::each(status, &[3], &mut |value| {
        let Value::Bytes(handler) = value else { return Err(Malformed) };
        names.insert(wire::text(handler, &[1])?.to_owned());
        Ok(())
    })?;
    Ok(names)
}
