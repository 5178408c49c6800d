//! Kinds of objects: ours, those of KubeVirt's world that are refused by name, and all others.

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    VirtualMachine,
    VirtualMachineInstance,
    ReplicaSet,
    Preset,
    /// Of KubeVirt, and not here: what does instead.
    Refused(&'static str),
    /// Not KubeVirt's.
    Other,
}

/// Group of the objects.
pub const GROUP: &str = "kubevirt.io";
/// The other group that they may have.
pub const OTHER_GROUP: &str = "virtlet.k8s";
/// Versions of that group whose objects have today's shape.
const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

/// Kinds that are not here, each with what does instead.
const REFUSED: [(&str, &str); 20] = [
    ("OfflineVirtualMachine", OLD),
    ("VM", OLD),
    ("VirtualMachineReplicaSet", OLD),
    ("VMReplicaSet", OLD),
    ("VirtualMachinePreset", OLD),
    ("VMPreset", OLD),
    ("VirtualMachineInstanceMigration", "there is no live migration; stop the VM and start it elsewhere"),
    ("MigrationPolicy", "there is no live migration"),
    ("VirtualMachinePool", "use a VirtualMachineInstanceReplicaSet"),
    ("VirtualMachineInstancetype", INSTANCETYPE),
    ("VirtualMachineClusterInstancetype", INSTANCETYPE),
    ("VirtualMachinePreference", INSTANCETYPE),
    ("VirtualMachineClusterPreference", INSTANCETYPE),
    ("VirtualMachineSnapshot", "snapshot the claims with the storage's own VolumeSnapshot"),
    ("VirtualMachineSnapshotContent", "snapshot the claims with the storage's own VolumeSnapshot"),
    ("VirtualMachineRestore", "make claims of VolumeSnapshots"),
    ("VirtualMachineClone", "clone the claims, and apply the object under another name"),
    ("VirtualMachineExport", "export the claims by the storage's own means"),
    ("VirtualMachineBackup", "back the claims up by the storage's own means"),
    ("KubeVirt", "there is no such operator here; see docs/virtual-machines.md"),
];

const OLD: &str = "it is of older days; `virtletctl vm convert` rewrites it";
const INSTANCETYPE: &str = "there are no instance types; write CPUs and memory into the VM";

impl Kind {
    /// The kind of an object with these words.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        if group != GROUP && group != OTHER_GROUP {
            let theirs = group.ends_with(".kubevirt.io") && !group.starts_with("cdi.");
            return if theirs { Self::refused(kind) } else { Self::Other };
        }
        match kind {
            "VirtualMachine" => Self::VirtualMachine,
            "VirtualMachineInstance" => Self::VirtualMachineInstance,
            "VirtualMachineInstanceReplicaSet" => Self::ReplicaSet,
            "VirtualMachineInstancePreset" => Self::Preset,
            _ => Self::refused(kind),
        }
    }

    fn refused(kind: &str) -> Self {
        let known = REFUSED.iter().find(|(refused, _)| *refused == kind);
        Self::Refused(known.map_or("there is no such kind here; see docs/virtual-machines.md", |(_, instead)| instead))
    }

    /// Whether it is one of those that pods are made of.
    #[must_use]
    pub const fn makes_pods(self) -> bool {
        matches!(self, Self::VirtualMachine | Self::VirtualMachineInstance | Self::ReplicaSet)
    }
}

/// Whether objects of this version have today's shape.
pub(crate) fn is_current(api_version: &str) -> bool {
    api_version.split_once('/').is_some_and(|(_, version)| VERSIONS.contains(&version))
}
