//! What is to be done about an instance, by what is known of its pod.

use std::sync::Arc;

use crate::names::POD_FINALIZER;
use crate::objects::{Meta as _, VmPod, Vmi};

/// What is known of the pod with an instance's pod's name.
#[derive(Debug, Clone)]
pub(super) enum Seen {
    /// This one is there. It may be somebody else's.
    Pod(Arc<VmPod>),
    /// The API server says that there is none.
    Gone,
    /// The watch has told of none, which may be late.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// The finalizer is put on it, before anything is made.
    Claim,
    /// Its pod is made.
    Make,
    /// The API server is asked for its pod.
    Look,
    /// Its pod is deleted.
    Stop(Arc<VmPod>),
    /// Once its status is written, the finalizer is taken off.
    Release,
    /// Something is waited for.
    Nothing,
}

pub(super) fn step(vmi: &Vmi, seen: &Seen) -> Step {
    let release = if vmi.has_finalizer(POD_FINALIZER) { Step::Release } else { Step::Nothing };
    let is_live = |pod: &VmPod| is_its(vmi, pod) && !pod.is_over();
    let has_ended = vmi.status.is_final();
    match seen {
        Seen::Pod(pod) if is_live(pod) && vmi.is_going() && !pod.is_going() => Step::Stop(Arc::clone(pod)),
        Seen::Pod(pod) if is_live(pod) => {
            if vmi.has_finalizer(POD_FINALIZER) || vmi.is_going() {
                Step::Nothing
            } else {
                Step::Claim
            }
        }
        // That of somebody else, or one that is over.
        Seen::Pod(_) if vmi.is_going() || has_ended => release,
        Seen::Pod(pod) if is_its(vmi, pod) => release,
        Seen::Pod(_) => Step::Nothing,
        Seen::Unknown if !vmi.has_finalizer(POD_FINALIZER) => {
            if vmi.is_going() || has_ended {
                Step::Nothing
            } else {
                Step::Claim
            }
        }
        Seen::Unknown if vmi.is_going() || has_ended || had_pod(vmi) => Step::Look,
        Seen::Unknown => Step::Make,
        Seen::Gone if vmi.is_going() || has_ended || had_pod(vmi) => release,
        Seen::Gone => Step::Make,
    }
}

/// Whether a pod is the instance's. One that was stays that, though somebody took its owner off: the VM runs in it.
pub(super) fn is_its(vmi: &Vmi, pod: &VmPod) -> bool {
    pod.is_of(vmi.uid()) || vmi.status.had(pod.uid())
}

/// Whether its status says that it had one.
pub(super) fn had_pod(vmi: &Vmi) -> bool {
    !vmi.status.active_pods.is_empty()
}

#[cfg(test)]
mod tests;
