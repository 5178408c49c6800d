//! What is there if nobody says so.

use crate::types::{Disk, Empty, Interface, Network, Spec, Target};

/// Name of the default network and its NIC.
const DEFAULT: &str = "default";

/// Adds a disk for each volume that has none, and a NIC on the pod's network unless there are others or none is wanted.
pub(crate) fn fill(spec: &mut Spec) {
    let devices = &mut spec.domain.devices;
    for volume in &spec.volumes {
        if !devices.disks.iter().any(|disk| disk.name == volume.name) {
            devices.disks.push(Disk { name: volume.name.clone(), disk: Some(Target::default()), ..Disk::default() });
        }
    }
    if devices.interfaces.is_empty() && spec.networks.is_empty() && devices.autoattach_pod_interface != Some(false) {
        devices.interfaces.push(Interface { name: DEFAULT.to_owned(), bridge: Some(Empty {}), ..Interface::default() });
        spec.networks.push(Network { name: DEFAULT.to_owned(), pod: Some(Empty {}), multus: None });
    }
}
