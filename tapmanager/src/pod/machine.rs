//! The states of a pod and what may follow which. Pure; the [`super::actor`] acts on what is decided here.
//!
//! ```text
//!            Attach: intent            result
//!  (absent) ----------------> Attaching ------> Attached
//!     ^                           |                 |
//!     |                           | failure, or     | Detach
//!     |                           | a crash         v
//!     +---------------------------+------------ Detaching <--+
//!                  all undone                       |        | DEL failed: Detach tries again
//!                                                   +--------+
//! ```
//!
//! Only the pod's actor moves it, and writes the journal before it acts on a move. `Attaching` and `Detaching` are seen
//! by others only in lists: the actor works on them without looking at its queue, so a command meets
//! `Attaching` never, and `Detaching` only after a failure. An attached pod whose namespace is gone or cannot be served
//! after a restart is in trouble: it stays `Attached` on record, so that a Detach gives its address back.

use proto::tap::{Attach, PodPhase};

use super::world::Seen;

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
    /// Undo an Attach, or finish a Detach, that was cut off.
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

/// Decides about a pod that the journal has in `phase` while the kernel has `seen` at its namespace's path.
pub(super) const fn on_restart(phase: PodPhase, seen: Seen) -> OnRestart {
    match (phase, seen) {
        (PodPhase::Attaching | PodPhase::Detaching, _) => OnRestart::TakeAway,
        (PodPhase::Attached, Seen::Netns) => OnRestart::Serve,
        (PodPhase::Attached, Seen::Nothing) => {
            OnRestart::Report("its network namespace is gone, as after a reboot; detach the pod")
        }
        (PodPhase::Attached, Seen::OtherFile) => {
            OnRestart::Report("its network namespace is not mounted any more; detach the pod")
        }
    }
}

fn first_difference(a: &Attach, b: &Attach) -> Option<&'static str> {
    // Taken apart, so that a new field cannot be forgotten here.
    let Attach {
        pod,
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
    } = a;
    let fields = [
        ("pod", *pod == b.pod),
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
    ];
    fields.into_iter().find(|(_, same)| !same).map(|(field, _)| field)
}

#[cfg(test)]
mod tests;
