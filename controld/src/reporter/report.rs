//! What is told of a VM, put together of what is known, and as a patch of its pod. Pure.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;
use proto::pause::Pause;
use proto::tap::{Nic, PodNet};
use proto::vm::guest::{AGENT_CONNECTED, GUEST, Guest, GuestNic, PAUSED};
use serde_json::{Value, json};

use crate::guest::agents::Told;
use crate::model::{Container, PodName, Sandbox};

/// What is known of a guest by asking it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Whether an agent answers; `None` until that was tried.
    pub(super) has_agent: Option<bool>,
    /// What was told last, each part for itself.
    pub(super) told: Told,
}

/// What is told of a VM, or is on its pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Why the guest is paused, by [`Pause::as_str`], if it is.
    paused: Option<String>,
    /// Whether an agent answers; `None` says nothing.
    has_agent: Option<bool>,
    /// The annotation; `None` says nothing.
    guest: Option<String>,
    /// Whether it is all that will be known for a while: what the pod has from a life of controld before may know more.
    is_whole: bool,
}

impl Report {
    pub(super) fn of(container: &Container, sandbox: &Sandbox, known: &Known) -> Self {
        let nics = sandbox.net.iter().flat_map(|PodNet { nics, .. }| nics);
        let nics = nics.map(|nic| nic_of(nic, &known.told)).collect();
        Self {
            paused: container.pause.map(|pause| pause.as_str().to_owned()),
            has_agent: known.has_agent,
            guest: Some(Guest { os: known.told.os.clone().unwrap_or_default(), nics }.text()),
            is_whole: known.has_agent.is_some(),
        }
    }

    /// What a pod has of it.
    pub(super) fn on(pod: &Pod) -> Self {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let holds = |name: &str| conditions.clone().find(|one| one.type_ == name && one.status == "True");
        let guest = pod.metadata.annotations.as_ref().and_then(|all| all.get(GUEST));
        Self {
            paused: holds(PAUSED).map(|one: &PodCondition| one.reason.clone().unwrap_or_default()),
            has_agent: Some(holds(AGENT_CONNECTED).is_some()),
            guest: guest.cloned(),
            is_whole: true,
        }
    }

    /// Whether a pod that has this report needs no other.
    pub(super) fn is_in(&self, there: &Self) -> bool {
        self.paused == there.paused && !self.has_other_agent(there) && !self.has_other_guest(there)
    }

    fn has_other_agent(&self, there: &Self) -> bool {
        self.has_agent.is_some() && self.has_agent != there.has_agent
    }

    pub(super) fn has_other_guest(&self, there: &Self) -> bool {
        self.guest != there.guest && (self.is_whole || there.guest.is_none())
    }

    /// What a pod has that had `there` and is patched.
    pub(super) fn over(&self, there: Self) -> Self {
        let guest = if self.has_other_guest(&there) { self.guest.clone() } else { there.guest };
        Self { paused: self.paused.clone(), has_agent: self.has_agent.or(there.has_agent), guest, is_whole: true }
    }

    /// It, but for the annotation, which stays as it is.
    pub(super) fn with_guest_of(&self, there: &Self) -> Self {
        Self { guest: there.guest.clone(), ..self.clone() }
    }

    /// The patch that leads from `there` to it, for no other pod of that name.
    pub(super) fn patch(&self, pod: &PodName, there: &Self, now: Timestamp) -> Value {
        let mut conditions = Vec::new();
        let mut say = |type_: &str, holds: bool, (reason, message): (&str, &str)| {
            conditions.push(json!({
                "type": type_, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
                "lastTransitionTime": now.to_string(),
            }));
        };
        if self.paused != there.paused {
            let why =
                [Pause::DiskFull, Pause::ByHand].into_iter().find(|why| Some(why.as_str()) == self.paused.as_deref());
            say(PAUSED, why.is_some(), why.map_or(("Running", ""), |why| (why.as_str(), why.message())));
        }
        if self.has_other_agent(there) {
            let holds = self.has_agent == Some(true);
            say(AGENT_CONNECTED, holds, (if holds { "Answers" } else { "Silent" }, ""));
        }
        let mut patch = json!({"metadata": {"uid": pod.uid}});
        if self.has_other_guest(there) {
            patch["metadata"]["annotations"] = json!({GUEST: self.guest});
        }
        if !conditions.is_empty() {
            patch["status"] = json!({ "conditions": conditions });
        }
        patch
    }
}

/// A NIC as its network has it, and as the guest tells of the one with its MAC address.
fn nic_of(nic: &Nic, told: &Told) -> GuestNic {
    let mac = nic.mac.to_string();
    let by_guest = told.nics.iter().flatten().find(|other| other.mac == mac);
    let given = || nic.addresses.iter().map(|address| address.ip()).collect();
    GuestNic {
        link: nic.name.to_string(),
        name: by_guest.map(|other| other.name.clone()).unwrap_or_default(),
        addresses: by_guest.map_or_else(given, |other| other.addresses.clone()),
        by_agent: by_guest.is_some(),
        mac,
    }
}

#[cfg(test)]
mod tests;
