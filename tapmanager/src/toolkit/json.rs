//! What is printed for programs. The shapes are those of the tap protocol's messages; docs/cni-integration.md has them.

use proto::tap::{CheckReport, PodDetail, PodId, PodNet, PodSummary};
use serde::Serialize;
use serde_json::{Value, json};

use super::picture::Seen;

pub(super) fn attached(pod: &PodId, net: &PodNet) -> Value {
    json!({"pod": pod, "netns": net.netns, "nics": net.nics, "dns": net.dns})
}

/// Also why, if the daemon says it.
pub(super) fn tried(pod: &PodId, net: &PodNet, detail: Option<&PodDetail>) -> Value {
    let mut value = attached(pod, net);
    value["explanation"] = json!(detail.map_or(&[][..], |detail| &detail.explanation));
    value
}

pub(super) fn detached(pods: &[PodId]) -> Value {
    json!({"detached": pods})
}

pub(super) fn list(pods: &[PodSummary]) -> Value {
    json!({"pods": pods})
}

pub(super) fn check(pod: &PodId, report: &CheckReport) -> Value {
    json!({"pod": pod, "findings": report.findings, "checked": report.checked})
}

/// All that is known, and the pod's ways as they are now; or why nobody looked.
pub(super) fn explained(detail: &PodDetail, seen: &Seen) -> Value {
    let mut value = json!(detail);
    value["ways"] = json!(seen.as_ref().ok());
    if let Err(why) = seen {
        value["unseen"] = json!(why);
    }
    value
}

/// A message as it came.
pub(super) fn whole(message: &impl Serialize) -> Value {
    json!(message)
}
