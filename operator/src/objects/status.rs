//! The statuses that the operator writes. Nobody else does.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt::guest::Os;
use serde::{Deserialize, Serialize};

/// Of a VirtualMachineInstance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct VmiStatus {
    /// `Pending`, `Scheduling`, `Scheduled`, `Running`, `Succeeded` or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<String>,
    /// When each phase began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) phase_transition_timestamps: Vec<PhaseTransition>,
    /// Why it failed, or waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    /// Its NICs, as far as the pod and its node say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) interfaces: Vec<Interface>,
    /// As an agent in the guest says.
    #[serde(rename = "guestOSInfo", skip_serializing_if = "Os::is_unknown")]
    pub(crate) guest_os_info: Os,
    /// Its pod's uid, and that pod's node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) active_pods: BTreeMap<String, String>,
    /// As the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) qos_class: Option<String>,
    /// Of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
}

/// When a phase began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PhaseTransition {
    /// The phase.
    pub(crate) phase: String,
    /// When it began.
    pub(crate) phase_transition_timestamp: Time,
}

/// A NIC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Interface {
    /// As the spec names it.
    pub(crate) name: String,
    /// The first of its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip_address: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ip_addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<String>,
    /// What the guest calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interface_name: Option<String>,
    /// What it is joined with in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_interface_name: Option<String>,
    /// Who says so: the `pod`, for addresses; its `node`; the `guest-agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) info_source: Option<String>,
}

/// A condition, as conditions are everywhere in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    /// Its name.
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// A word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// A sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<Time>,
}

/// Of a VirtualMachine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MachineStatus {
    /// Whether there is an instance.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) created: bool,
    /// Whether it is ready.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) ready: bool,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) printable_status: Option<String>,
    /// The strategy that it runs by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_strategy: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    /// What is to be done before the strategy has its say again, one after the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) state_change_requests: Vec<Request>,
    /// Of starts that failed one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_failure: Option<StartFailure>,
    /// Of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
    /// Of the spec as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) desired_generation: Option<i64>,
    /// The request by annotation that was answered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_request: Option<String>,
}

/// Something that is to be done, because somebody asked for it or because a run failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Request {
    /// What it is.
    pub(crate) action: String,
    /// The instance that is to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    /// Seconds that it has to stop in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grace_period_seconds: Option<i64>,
}

/// Of starts that failed one after the other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StartFailure {
    /// How many.
    pub(crate) consecutive_fail_count: u32,
    /// The instance of the last one.
    #[serde(rename = "lastFailedVMIUID", skip_serializing_if = "Option::is_none")]
    pub(crate) last_failed_vmi_uid: Option<String>,
    /// Not before then is the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_timestamp: Option<Time>,
}

/// Of a VirtualMachineInstanceReplicaSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ReplicaSetStatus {
    /// Instances that there are.
    pub(crate) replicas: i64,
    /// Those that are ready.
    pub(crate) ready_replicas: i64,
    /// Of starts that failed one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_failure: Option<StartFailure>,
    /// The selector, as autoscalers read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label_selector: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    /// Of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
}

impl Condition {
    /// Whether it is `True`.
    #[must_use]
    pub(crate) fn holds(&self) -> bool {
        self.status == "True"
    }

    /// One of these; when it became so is for [`Condition::since`] to say.
    #[must_use]
    pub(crate) fn new(type_: &str, holds: bool, reason: &str, message: &str) -> Self {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self {
            type_: type_.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: some(reason),
            message: some(message),
            last_transition_time: None,
        }
    }

    /// Since when it is so, by what was so before.
    #[must_use]
    pub(crate) fn since(mut self, before: &[Self], now: &Time) -> Self {
        let same = before.iter().find(|other| other.type_ == self.type_ && other.status == self.status);
        self.last_transition_time = same.and_then(|same| same.last_transition_time.clone()).or(Some(now.clone()));
        self
    }
}

/// The condition of a name.
pub(crate) fn condition<'a>(all: &'a [Condition], name: &str) -> Option<&'a Condition> {
    all.iter().find(|condition| condition.type_ == name)
}

impl VmiStatus {
    /// Its phase; one that nobody has looked at is pending.
    #[must_use]
    pub(crate) fn phase(&self) -> &str {
        self.phase.as_deref().unwrap_or("Pending")
    }

    /// Whether this pod, by its uid, was seen as the instance's.
    #[must_use]
    pub(crate) fn had(&self, pod: &str) -> bool {
        self.active_pods.contains_key(pod)
    }

    /// Whether it has ended.
    #[must_use]
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether it ever ran.
    #[must_use]
    pub(crate) fn has_run(&self) -> bool {
        self.phase_transition_timestamps.iter().any(|one| one.phase == "Running")
    }

    /// Whether it is ready.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        condition(&self.conditions, "Ready").is_some_and(Condition::holds)
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}
