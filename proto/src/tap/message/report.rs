//! What `tapmanager` tells of its pods and of itself.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::super::{IfName, OwnerId, PodId};
use super::{Attach, PodNet};

/// Asks for one page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Only pods after this one; `None` starts at the first.
    pub after: Option<PodId>,
    /// Only pods of this owner, and those whose record is not understood: they may be of anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Only this pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodId>,
}

/// One page of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodPage {
    /// At most [`MAX_PAGE`](super::MAX_PAGE), in the order of their ids.
    pub pods: Vec<PodSummary>,
    /// Whether there are pods after the last of these.
    pub more: bool,
}

/// One pod of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodSummary {
    /// The pod.
    pub pod: PodId,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Where it stands, as the records say.
    pub phase: PodPhase,
    /// After a restart of the daemon it is not known yet whether that is so: ask again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovering: bool,
    /// First address, if it has one.
    pub ip: Option<IpAddr>,
    /// Why it is of no use although it is attached, or why it cannot be taken away; cut to
    /// [`MAX_TROUBLE`](super::MAX_TROUBLE) bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// All that is known of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodDetail {
    /// As in a list.
    pub summary: PodSummary,
    /// What was asked for.
    pub request: Attach,
    /// What it was given; there while it is attached.
    pub net: Option<PodNet>,
    /// What each of its NICs became and why, and what the guest is told: lines for people.
    pub explanation: Vec<String>,
}

/// Whether a pod is as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckReport {
    /// What is not as it should be; empty when all is well.
    pub findings: Vec<String>,
    /// What was looked at.
    pub checked: Vec<String>,
}

/// One page of counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatsPage {
    /// At most [`MAX_STATS_PAGE`](super::MAX_STATS_PAGE), in the order of their ids; only attached pods.
    pub pods: Vec<PodStats>,
    /// Whether there are pods after the last of these.
    pub more: bool,
}

/// Counters of a pod's NICs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodStats {
    /// The pod.
    pub pod: PodId,
    /// In the order that the guest sees them.
    pub nics: Vec<NicStats>,
}

/// Counters of a NIC since it was made, from the guest's point of view: `rx` is what the guest received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicStats {
    /// The NIC.
    pub name: IfName,
    /// Bytes that the guest received.
    pub rx_bytes: u64,
    /// Packets that the guest received.
    pub rx_packets: u64,
    /// Towards the guest.
    pub rx_errors: u64,
    /// Towards the guest, those that its NIC had no room for.
    pub rx_dropped: u64,
    /// Bytes that the guest sent.
    pub tx_bytes: u64,
    /// Packets that the guest sent.
    pub tx_packets: u64,
    /// From the guest.
    pub tx_errors: u64,
    /// From the guest, those that the filters refused included.
    pub tx_dropped: u64,
}

/// What was collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectReport {
    /// What was taken away: lines for people.
    pub removed: Vec<String>,
    /// What was not taken away although it belongs to no pod, and why.
    pub kept: Vec<String>,
}

/// Where a pod's network stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodPhase {
    /// Being made, or left half made by a crash and waiting to be undone.
    Attaching,
    /// Whole.
    Attached,
    /// Being taken away, or waiting for another try.
    Detaching,
}

/// State of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerStatus {
    /// Program and version.
    pub server: String,
    /// Whether a pod could be given a network now.
    pub ready: bool,
    /// Why not; when ready, what else is worth knowing, and mostly empty.
    pub reason: String,
    /// Pods on record.
    pub pods: u64,
    /// Those of them that are still being recovered after a restart of the daemon.
    #[serde(default)]
    pub recovering: u64,
    /// Tokens handed in that were unknown, used or lapsed, or came from the wrong peer.
    pub tokens_refused: u64,
    /// Time spent inside CNI plugin processes since the start, in microseconds.
    pub plugin_micros: u64,
}
