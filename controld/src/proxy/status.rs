//! `Status` of both sides: the default's bytes, and behind them what is ours, which decoders merge into it. Pure but for the time it is told.
//!
//! Of ours there is one condition, `VirtletReady`, that kubelet passes over: with any of its own false the whole node is not ready, and
//! containers have nothing to do with libvirt. Our handlers stay listed while we are not ready, as a node's handlers are what pods are
//! admitted by; the one without a name, and the features, are the default's.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{RuntimeCondition, RuntimeHandler, RuntimeStatus, StatusResponse};

use super::wire::{self, Malformed};

#[cfg(test)]
mod tests;

/// Our condition.
const READY: &str = "VirtletReady";
/// How long the last good Status serves, and how late one may come to be it. kubelet itself has 30 s of patience with errors.
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
    /// How long there has been none.
    pub(super) since: Duration,
    pub(super) why: String,
    /// It cannot be asked. Else it has no answer to this.
    pub(super) is_away: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_away { "is away" } else { "has not answered `Status`" };
        write!(f, "the container runtime {what} for {} s: {}", self.since.as_secs(), self.why)
    }
}

/// The default's part of the answer. While there was none to serve and it is not missing for long, there is no answer.
pub(super) fn of_default(fresh: Result<Bytes, Missing>, last: Option<Bytes>) -> Result<Bytes, Missing> {
    match (fresh, last) {
        (Ok(fresh), _) => Ok(fresh),
        (Err(missing), last) if missing.since < PATIENCE => last.ok_or(missing),
        (Err(missing), last) => Ok(down(&missing, last.as_ref())),
    }
}

/// Of a default without a Status for long: all as it was, but for the one condition that makes the node not ready.
pub(super) fn down(missing: &Missing, last: Option<&Bytes>) -> Bytes {
    let (last, has_network) = last.and_then(|last| without_ready(last).ok()).unwrap_or_default();
    let trouble = Trouble { reason: "ContainerRuntimeDown".into(), message: missing.to_string() };
    let mut conditions = vec![condition("RuntimeReady", Some(&trouble))];
    if !has_network {
        // kubelet wants both, and knows nothing of this one.
        conditions.push(condition("NetworkReady", Some(&trouble)));
    }
    let first = StatusResponse { status: Some(RuntimeStatus { conditions }), ..StatusResponse::default() };
    [first.encode_to_vec(), last].concat().into()
}

/// A Status without its `RuntimeReady`, and whether it has a `NetworkReady`.
fn without_ready(status: &[u8]) -> Result<(Vec<u8>, bool), Malformed> {
    let mut has_network = false;
    let rest = wire::without(status, &[1, 1], &mut |condition| {
        let kind = wire::text(condition, &[1])?;
        has_network |= kind == "NetworkReady";
        Ok(kind == "RuntimeReady")
    })?;
    Ok((rest, has_network))
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
pub(super) fn handlers(status: &StatusResponse) -> BTreeSet<String> {
    status.runtime_handlers.iter().map(|handler| handler.name.clone()).collect()
}
