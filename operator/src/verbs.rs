//! Subresources of VMs and of their instances, by which clients of KubeVirt start, pause and look into them: which there are, how they are
//! asked for and who may; and those of KubeVirt's that there are not, with what does instead. Data: roles are made of it, discovery, and
//! what is served.

use serde::{Deserialize, Serialize};

use crate::group::Group;

/// The objects that have them, as paths of the API have it.
pub(crate) const MACHINES: &str = "virtualmachines";
pub(crate) const INSTANCES: &str = "virtualmachineinstances";
/// What is of no object: a VM in a namespace that is not stored, and what is of the server.
pub(crate) const EXPAND: &str = "expand-vm-spec";
pub(crate) const VERSION: &str = "version";
pub(crate) const HEALTH: &str = "healthz";

/// A subresource.
#[derive(Debug)]
pub(crate) struct Verb {
    /// Whose it is: [`MACHINES`] or [`INSTANCES`].
    pub(crate) of: &'static str,
    /// Its name, as roles have it.
    pub(crate) name: &'static str,
    pub(crate) does: Does,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    /// Something is asked of the operator.
    Power(Power),
    /// The VM as it is.
    Expand,
    /// Something is asked of the node, which changes something.
    Act(Act),
    /// Something is asked of the node, which changes nothing.
    Tell(Tell),
    Screenshot,
    /// Streams, until somebody leaves.
    Console,
    Vnc,
    PortForward,
}

/// What may be asked of the operator, as its requests have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Power {
    Start,
    Stop,
    Restart,
}

/// What a node does to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Pause,
    Unpause,
    Reset,
    SoftReboot,
    Freeze,
    Unfreeze,
}

/// What a node knows of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    System,
    Users,
    FileSystems,
}

/// All that there are.
pub(crate) static VERBS: [Verb; 18] = [
    verb(MACHINES, "start", Does::Power(Power::Start)),
    verb(MACHINES, "stop", Does::Power(Power::Stop)),
    verb(MACHINES, "restart", Does::Power(Power::Restart)),
    verb(MACHINES, "expand-spec", Does::Expand),
    verb(MACHINES, "portforward", Does::PortForward),
    verb(INSTANCES, "pause", Does::Act(Act::Pause)),
    verb(INSTANCES, "unpause", Does::Act(Act::Unpause)),
    verb(INSTANCES, "reset", Does::Act(Act::Reset)),
    verb(INSTANCES, "softreboot", Does::Act(Act::SoftReboot)),
    verb(INSTANCES, "freeze", Does::Act(Act::Freeze)),
    verb(INSTANCES, "unfreeze", Does::Act(Act::Unfreeze)),
    verb(INSTANCES, "guestosinfo", Does::Tell(Tell::System)),
    verb(INSTANCES, "userlist", Does::Tell(Tell::Users)),
    verb(INSTANCES, "filesystemlist", Does::Tell(Tell::FileSystems)),
    verb(INSTANCES, "console", Does::Console),
    verb(INSTANCES, "vnc", Does::Vnc),
    verb(INSTANCES, "vnc/screenshot", Does::Screenshot),
    verb(INSTANCES, "portforward", Does::PortForward),
];

/// Subresources of KubeVirt's that there are not, by the first word of each, and what does instead.
pub(crate) static REFUSED: [(&str, &str, &str); 17] = [
    (MACHINES, "addvolume", PLUG),
    (MACHINES, "removevolume", PLUG),
    (MACHINES, "memorydump", DUMP),
    (MACHINES, "removememorydump", DUMP),
    (MACHINES, "migrate", MIGRATE),
    (MACHINES, "evacuate", MIGRATE),
    (MACHINES, "objectgraph", GRAPH),
    (INSTANCES, "addvolume", PLUG),
    (INSTANCES, "removevolume", PLUG),
    (INSTANCES, "evacuate", MIGRATE),
    (INSTANCES, "objectgraph", GRAPH),
    (INSTANCES, "usbredir", "USB devices do not reach guests; a device plugin gives a VM a device of its node"),
    (INSTANCES, "vsock", "guests have no vsock; use portforward"),
    (INSTANCES, "sev", "memory of guests is not encrypted"),
    (INSTANCES, "backup", BACKUP),
    (INSTANCES, "redefine-checkpoint", BACKUP),
    (INSTANCES, "migrate", MIGRATE),
];

/// The same of what is of no object.
pub(crate) static REFUSED_ALONE: [(&str, &str); 4] = [
    ("guestfs", "run libguestfs in a pod of yours that has the claim"),
    ("start-cluster-profiler", PROFILE),
    ("stop-cluster-profiler", PROFILE),
    ("dump-cluster-profiler", PROFILE),
];

const PLUG: &str = "nothing is plugged into a VM that runs; add the volume to the VM's template, and restart it";
const DUMP: &str = "memory is not dumped; a kernel in the guest writes a dump of its own (kdump)";
const MIGRATE: &str = "there is no live migration; restart the VM, or drain its node: it comes again elsewhere";
const GRAPH: &str = "`kubectl get` with the label vm.kubevirt.io/name shows what belongs to a VM";
const BACKUP: &str = "disks are not backed up by the VM; freeze it, and take a VolumeSnapshot of its claims";
const PROFILE: &str = "each pod of the operator has /metrics on port 8080";

const fn verb(of: &'static str, name: &'static str, does: Does) -> Verb {
    Verb { of, name, does }
}

impl Verb {
    /// What it is done by in HTTP.
    #[must_use]
    pub(crate) fn method(&self) -> &'static str {
        match self.does {
            Does::Power(_) | Does::Act(_) => "PUT",
            _ => "GET",
        }
    }

    /// What roles call that.
    #[must_use]
    pub(crate) fn right(&self) -> &'static str {
        match self.does {
            Does::Power(_) | Does::Act(_) => "update",
            _ => "get",
        }
    }

    /// Whether it only shows what is known of an object or its guest: those who may read objects may ask for it.
    #[must_use]
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self.does, Does::Expand | Does::Tell(_))
    }

    /// As `resources` of roles have it.
    #[must_use]
    pub(crate) fn resource(&self) -> String {
        format!("{}/{}", self.of, self.name)
    }

    /// Kind of the objects that have it.
    #[must_use]
    pub(crate) fn kind(&self) -> &'static str {
        if self.of == MACHINES { "VirtualMachine" } else { "VirtualMachineInstance" }
    }
}

impl Act {
    /// The command that nodes have for it.
    #[must_use]
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Pause => "virtlet:pause",
            Self::Unpause => "virtlet:unpause",
            Self::Reset => "virtlet:reset",
            Self::SoftReboot => "virtlet:softreboot",
            Self::Freeze => "virtlet:freeze",
            Self::Unfreeze => "virtlet:unfreeze",
        }
    }
}

impl Tell {
    /// The command that nodes have for it.
    #[must_use]
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::System => "virtlet:guestosinfo",
            Self::Users => "virtlet:userlist",
            Self::FileSystems => "virtlet:filesystemlist",
        }
    }

    /// Kind of the object that clients get.
    #[must_use]
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::System => "VirtualMachineInstanceGuestAgentInfo",
            Self::Users => "VirtualMachineInstanceGuestOSUserList",
            Self::FileSystems => "VirtualMachineInstanceFileSystemList",
        }
    }
}

/// The group that they are in.
#[must_use]
pub(crate) fn group(group: Group) -> String {
    format!("subresources.{group}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_is_there_once_and_none_is_refused() {
        let all: BTreeSet<String> = VERBS.iter().map(Verb::resource).collect();
        assert_eq!(all.len(), VERBS.len());
        for (of, name, _) in &REFUSED {
            assert!(!all.contains(&format!("{of}/{name}")), "{of}/{name}");
        }
    }
}
