//! What is said of an instance. All of it comes of its pod, and of what was said before.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;
use kubevirt::guest::{AGENT_CONNECTED, GuestNic, PAUSED};
use serde::Deserialize;

use super::decide::{Seen, had_pod, is_its};
use crate::names::PRESETS;
use crate::objects::{Condition, Interface, Meta as _, PhaseTransition, VmPod, Vmi, VmiStatus};

/// Conditions that a node tells of its VMs, by their names on the pod.
const FROM_NODE: [(&str, &str); 2] = [(PAUSED, "Paused"), (AGENT_CONNECTED, "AgentConnected")];
/// Name of what a node, or an agent in a guest, says.
const NODE: &str = "node";
const AGENT: &str = "guest-agent";
/// Why a container waits while nothing is wrong.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Phases in their order.
const ORDER: [&str; 4] = ["Pending", "Scheduling", "Scheduled", "Running"];
/// Longest message that is copied, in characters.
const MAX_MESSAGE: usize = 1024;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// A word.
    pub(super) reason: &'static str,
    /// A sentence.
    pub(super) message: String,
}

/// An event: its type, its reason and its text.
pub(super) type Told = (EventType, &'static str, String);

/// What the webhook noted of a preset.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Preset {
    paths: Vec<String>,
    overridden: Vec<String>,
}

struct Phase {
    name: String,
    reason: Option<String>,
}

pub(super) fn of(vmi: &Vmi, seen: &Seen, failure: Option<&Failure>, now: &Time) -> VmiStatus {
    let before = &vmi.status;
    let pod = match seen {
        Seen::Pod(pod) if is_its(vmi, pod) => Some(&**pod),
        _ => None,
    };
    let Phase { name, reason } = phase(vmi, seen, pod);
    let mut after = VmiStatus {
        reason,
        phase_transition_timestamps: before.phase_transition_timestamps.clone(),
        observed_generation: vmi.metadata.generation,
        // What is known of a pod stays when that is gone.
        node_name: pod.and_then(VmPod::node).map(str::to_owned).or_else(|| before.node_name.clone()),
        qos_class: pod.and_then(|pod| pod.status.qos_class.clone()).or_else(|| before.qos_class.clone()),
        active_pods: before.active_pods.clone(),
        interfaces: pod.map(|pod| interfaces(vmi, pod)).unwrap_or_default(),
        guest_os_info: pod.and_then(VmPod::guest).map(|guest| guest.os.clone()).unwrap_or_default(),
        ..VmiStatus::default()
    };
    if let Some(pod) = pod {
        after.active_pods.insert(pod.uid().to_owned(), pod.node().unwrap_or_default().to_owned());
    }
    if before.phase.as_ref() != Some(&name) {
        after
            .phase_transition_timestamps
            .push(PhaseTransition { phase: name.clone(), phase_transition_timestamp: now.clone() });
    }
    after.phase = Some(name);
    after.conditions = conditions(vmi, seen, pod, &after, failure)
        .into_iter()
        .map(|condition| condition.since(&before.conditions, now))
        .collect();
    after
}

fn phase(vmi: &Vmi, seen: &Seen, pod: Option<&VmPod>) -> Phase {
    let before = &vmi.status;
    let same = || Phase { name: before.phase().to_owned(), reason: before.reason.clone() };
    let failed = |reason: &str| Phase { name: "Failed".to_owned(), reason: Some(reason.to_owned()) };
    if before.is_final() {
        return same();
    }
    let Some(pod) = pod else {
        return match seen {
            // Nothing runs that would be its.
            Seen::Gone | Seen::Pod(_) if vmi.is_going() && !had_pod(vmi) => failed("Deleted"),
            Seen::Gone | Seen::Pod(_) if had_pod(vmi) => failed(if vmi.is_going() { "Deleted" } else { "PodLost" }),
            _ => same(),
        };
    };
    let end = pod.state().and_then(|state| state.terminated.as_ref());
    let why = pod.status.reason.as_deref().or_else(|| end.and_then(|end| end.reason.as_deref()));
    let waits = pod.state().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    let is_running = pod.state().is_some_and(|state| state.running.is_some());
    let now = match pod.status.phase.as_deref() {
        // Somebody wanted it gone, who is not the owner of the VM: that is no end that the VM chose.
        Some("Succeeded" | "Failed") if pod.is_going() && !vmi.is_going() => return failed(why_gone(pod)),
        Some("Succeeded") => return Phase { name: "Succeeded".to_owned(), reason: None },
        Some("Failed") => return failed(why.unwrap_or("PodFailed")),
        _ if is_running => "Running",
        _ if pod.node().is_some() => "Scheduled",
        _ => "Scheduling",
    };
    let place = |phase: &str| ORDER.iter().position(|one| *one == phase);
    let name = if place(now) < place(before.phase()) { before.phase() } else { now };
    let reason = waits.filter(|why| !USUAL.contains(why)).map(str::to_owned);
    Phase { name: name.to_owned(), reason }
}

fn why_gone(pod: &VmPod) -> &str {
    let disrupted = pod.condition("DisruptionTarget").filter(|condition| condition.status == "True");
    disrupted.and_then(|condition| condition.reason.as_deref()).unwrap_or("PodDeleted")
}

fn conditions(
    vmi: &Vmi,
    seen: &Seen,
    pod: Option<&VmPod>,
    after: &VmiStatus,
    failure: Option<&Failure>,
) -> Vec<Condition> {
    let mut all = vec![ready(pod, after)];
    if let Some(scheduled) = pod.and_then(|pod| pod.condition("PodScheduled")) {
        let message = scheduled.message.as_deref().unwrap_or_default();
        let reason = scheduled.reason.as_deref().unwrap_or_default();
        all.push(Condition::new("PodScheduled", scheduled.status == "True", reason, &cut(message)));
    }
    // Of a guest that does not run they are what was.
    for (theirs, ours) in FROM_NODE.into_iter().filter(|_| after.phase() == "Running") {
        if let Some(told) = pod.and_then(|pod| pod.condition(theirs)).filter(|told| told.status == "True") {
            let message = told.message.as_deref().unwrap_or_default();
            all.push(Condition::new(ours, true, told.reason.as_deref().unwrap_or("ByNode"), &cut(message)));
        }
    }
    let taken = matches!(seen, Seen::Pod(pod) if !is_its(vmi, pod)) && !after.is_final();
    if let Some(Failure { reason, message }) = failure {
        all.push(Condition::new("Synchronized", false, reason, &cut(message)));
    } else if taken {
        let text = "a pod that is not this instance's has the name of its pod; delete that pod";
        all.push(Condition::new("Synchronized", false, "NameTaken", text));
    } else {
        all.push(Condition::new("Synchronized", true, "", ""));
    }
    let text = "there is no live migration; a drain stops the VM, and its VirtualMachine starts it elsewhere";
    all.push(Condition::new("LiveMigratable", false, "NotSupported", text));
    all
}

fn ready(pod: Option<&VmPod>, after: &VmiStatus) -> Condition {
    let not = |reason: &str| Condition::new("Ready", false, reason, "");
    let Some(pod) = pod else { return not("PodNotExists") };
    let condition = pod.condition("Ready");
    if pod.is_going() {
        return not("PodTerminating");
    }
    if pod.status.reason.as_deref() == Some("NodeLost") {
        return not("NodeLost");
    }
    match condition {
        _ if after.phase() != "Running" => not("GuestNotRunning"),
        None => not("PodConditionMissing"),
        Some(condition) if condition.status == "True" => Condition::new("Ready", true, "", ""),
        Some(_) => not("ProbeFailed"),
    }
}

/// NICs as the node tells of them. The pod's addresses are those of the first, whatever others say.
fn interfaces(vmi: &Vmi, pod: &VmPod) -> Vec<Interface> {
    let told = pod.guest().map(|guest| &*guest.nics).unwrap_or_default();
    let own: Vec<String> = pod.status.pod_ips.iter().map(|address| address.ip.clone()).collect();
    let names = vmi.facts();
    let nics = told.len().max(usize::from(!own.is_empty()));
    let interface = |nth: usize| {
        let unknown = GuestNic::default();
        let nic = told.get(nth).unwrap_or(&unknown);
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let by_pod = nth == 0 && !own.is_empty();
        let by = [
            by_pod.then_some("pod"),
            (told.get(nth).is_some() && !(by_pod || nic.by_agent)).then_some(NODE),
            nic.by_agent.then_some(AGENT),
        ];
        let addresses = if by_pod { own.clone() } else { nic.addresses.iter().map(ToString::to_string).collect() };
        Interface {
            name: names.get(nth).cloned().unwrap_or_else(|| nic.link.clone()),
            ip_address: addresses.first().cloned(),
            ip_addresses: addresses,
            mac: some(&nic.mac),
            interface_name: some(&nic.name),
            pod_interface_name: some(&nic.link),
            info_source: some(&by.into_iter().flatten().collect::<Vec<_>>().join(", ")),
        }
    };
    (0..nics).map(interface).collect()
}

/// What happened between the status that it has and another one.
pub(super) fn events(vmi: &Vmi, after: &VmiStatus) -> Vec<Told> {
    let before = &vmi.status;
    let mut events = Vec::new();
    if before.active_pods.is_empty()
        && let Some(pod) = after.active_pods.keys().next()
    {
        events.push((EventType::Normal, "SuccessfulCreate", format!("made the pod with uid {pod}")));
        events.extend(presets(vmi));
    }
    let failed =
        |status: &VmiStatus| status.conditions.iter().find(|one| one.type_ == "Synchronized" && !one.holds()).cloned();
    if let Some(why) = failed(after)
        && failed(before).is_none_or(|other| (other.reason, other.message) != (why.reason.clone(), why.message.clone()))
    {
        events.push((EventType::Warning, "SyncFailed", why.message.unwrap_or_default()));
    }
    if before.phase() == after.phase() {
        return events;
    }
    let node = after.node_name.as_deref().unwrap_or_default();
    let reason = after.reason.as_deref().unwrap_or_default();
    events.extend(match after.phase() {
        "Scheduled" => Some((EventType::Normal, "Scheduled", format!("its pod is on node {node}"))),
        "Running" => Some((EventType::Normal, "Started", "the VM runs".to_owned())),
        "Succeeded" => Some((EventType::Normal, "Stopped", "the VM was powered off".to_owned())),
        "Failed" => Some((EventType::Warning, "Stopped", format!("the VM ended: {reason}"))),
        _ => None,
    });
    events
}

/// What its presets added, and what of them it says otherwise itself, as the webhook noted when it was made.
fn presets(vmi: &Vmi) -> Vec<Told> {
    let record: BTreeMap<String, Preset> =
        vmi.annotation(PRESETS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let told = record.into_iter().flat_map(|(name, preset)| {
        let told = |reason, what: &str, paths: &[String]| {
            let text = format!("preset {name} {what}: {}", paths.join(", "));
            (!paths.is_empty()).then_some((EventType::Normal, reason, text))
        };
        let added = told("PresetApplied", "gave it", &preset.paths);
        added.into_iter().chain(told("PresetOverridden", "has other values than its own of", &preset.overridden))
    });
    told.collect()
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests;
