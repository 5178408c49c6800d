//! The states of a pod and what may follow which. Pure; the [`super::actor`] acts on what is decided here.
//!
//! ```text
//!            Attach: intent            result
//!  (absent) ----------------> Attaching ------> Attached
//!     ^                           |                 |
//!     |                           | failure, or     | Detach, or
//!     |                           | a crash         | a reboot
//!     |                           v                 v
//!     |        all undone         +--------> Detaching ---- DEL fails: again after a pause ----+
//!     +--------------------------------------|   ^  ^-----------------------------------------+
//!     |                                      |   | overdue: Detach is answered all the same,
//!     +---- overdue, and no DEL could help --+---+ and only Collect tries again
//! ```
//!
//! Only the pod's actor changes the state, and writes the journal before it acts on a change. The actor does not read its
//! queue while it attaches or detaches, so others see `Attaching` and `Detaching` only in lists: a command never finds
//! `Attaching`, and finds `Detaching` only after a failure. An attached pod whose namespace is gone or cannot be served
//! is in trouble: it stays `Attached` on record, so that a Detach gives its address back, or Recover takes it up again.
//! A reboot of the node ended all machines, so pods of an earlier boot are taken away, whatever they were.

use std::time::Duration;

use proto::tap::{Attach, PodPhase};

use super::world::NetnsState;
use crate::journal::Failing;

/// Longest pause between two tries to take a pod away.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What an Attach leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OnAttach {
    /// Make the network.
    Make,
    /// It is there: give the same answer.
    Same,
    /// It cannot be.
    Refuse(Conflict),
}

/// Why an Attach cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    /// The pod has a network by another request.
    #[error("it is attached by a request that differs in `{field}`")]
    Different {
        /// The first field that differs.
        field: &'static str,
    },
    /// An earlier detach failed half way.
    #[error("an earlier network of it is not wholly taken away yet")]
    Leftovers,
    /// It has a network that is of no use.
    #[error("its network is of no use: {trouble}")]
    Trouble {
        /// Why.
        trouble: String,
    },
}

/// What the start of the daemon does about a pod on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnRestart {
    /// Undo an Attach, or finish a Detach, that was cut off, or that the end of the machine calls for.
    TakeAway,
    /// Serve it again.
    Serve,
    /// Nothing that could be served: say so, and leave it for Detach.
    Report(&'static str),
}

/// Decides about an Attach with `request`.
pub(super) fn on_attach(standing: Option<(PodPhase, &Attach)>, trouble: Option<&str>, request: &Attach) -> OnAttach {
    match standing {
        None => OnAttach::Make,
        Some((PodPhase::Attaching | PodPhase::Detaching, _)) => OnAttach::Refuse(Conflict::Leftovers),
        Some((PodPhase::Attached, earlier)) => match (first_difference(earlier, request), trouble) {
            (Some(field), _) => OnAttach::Refuse(Conflict::Different { field }),
            (None, Some(trouble)) => OnAttach::Refuse(Conflict::Trouble { trouble: trouble.to_owned() }),
            (None, None) => OnAttach::Same,
        },
    }
}

/// How often, and for how long, a pod is tried again that could not be taken away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    /// Pause after the first try. Each further pause is twice as long.
    pub(crate) first_pause: Duration,
    /// From the first failure on; then the pod is overdue.
    pub(crate) give_up: Duration,
}

/// What follows a try to take a pod away that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// Try again by itself after this pause.
    Again(Duration),
    /// It took too long: whoever asked is not held up any more, and [`super::Pods::collect`] goes on.
    Overdue,
}

/// Decides what follows the failure that `failing` says, at the time `now`, in seconds since 1970.
pub(super) fn after_failure(failing: &Failing, retry: RetryPolicy, now: u64) -> AfterFailure {
    let left = failing.since.saturating_add(retry.give_up.as_secs()).saturating_sub(now);
    if left == 0 {
        return AfterFailure::Overdue;
    }
    let doubled = 2_u32.saturating_pow(failing.tries.saturating_sub(1));
    let pause = retry.first_pause.saturating_mul(doubled).min(LONGEST_PAUSE);
    AfterFailure::Again(pause.min(Duration::from_secs(left)))
}

/// Whether a pod that is overdue is dropped although a DEL of it failed once more: nothing that could be waited for
/// would let it succeed. Its plugins are not installed, or there is no namespace that they could look into.
pub(super) const fn is_hopeless(all_absent: bool, seen: NetnsState) -> bool {
    all_absent || !matches!(seen, NetnsState::Present)
}

/// Decides about a pod that the journal has in `phase`, of this boot of the node or an earlier one, while the kernel has
/// `seen` at its namespace's path.
pub(super) const fn on_restart(phase: PodPhase, same_boot: bool, seen: NetnsState) -> OnRestart {
    match (phase, seen) {
        (PodPhase::Attaching | PodPhase::Detaching, _) => OnRestart::TakeAway,
        _ if !same_boot => OnRestart::TakeAway,
        (PodPhase::Attached, NetnsState::Present) => OnRestart::Serve,
        (PodPhase::Attached, NetnsState::Absent | NetnsState::OtherFile) => OnRestart::Report(NETNS_GONE),
    }
}

/// The trouble of a pod without namespace.
pub(super) const NETNS_GONE: &str = "its network namespace is gone; detach the pod";

fn first_difference(a: &Attach, b: &Attach) -> Option<&'static str> {
    // Taken apart, so that a new field cannot be forgotten here.
    let Attach {
        pod,
        owner,
        namespace,
        name,
        uid,
        hostname,
        dns,
        networks,
        data_path,
        queues,
        anti_spoof,
        host_ports,
        bandwidth,
        sysctls,
        cgroup,
        dhcp,
    } = a;
    let fields = [
        ("pod", *pod == b.pod),
        ("owner", *owner == b.owner),
        ("namespace", *namespace == b.namespace),
        ("name", *name == b.name),
        ("uid", *uid == b.uid),
        ("hostname", *hostname == b.hostname),
        ("dns", *dns == b.dns),
        ("networks", *networks == b.networks),
        ("data_path", *data_path == b.data_path),
        ("queues", *queues == b.queues),
        ("anti_spoof", *anti_spoof == b.anti_spoof),
        ("host_ports", *host_ports == b.host_ports),
        ("bandwidth", *bandwidth == b.bandwidth),
        ("sysctls", *sysctls == b.sysctls),
        ("cgroup", *cgroup == b.cgroup),
        ("dhcp", *dhcp == b.dhcp),
    ];
    fields.into_iter().find(|(_, same)| !same).map(|(field, _)| field)
}

#[cfg(test)]
mod tests;
