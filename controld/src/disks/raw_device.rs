//! Block devices of the node that pods name themselves, by a `hostPath` or a flexvolume.

use std::path::Path;

use vmspec::error::Result;
use vmspec::host::{denied, unnamed};
use vmspec::plan::BlockDevice;
use vmspec::settings::RawDevices;

use crate::disks::block_devices::Node;

/// The device of a path that a pod names, for `what` of it. Blocks.
///
/// # Errors
/// When the administrator does not name it, or it is of another pod's volume.
pub(crate) fn named(raw_devices: &RawDevices, what: &str, path: &Path) -> Result<BlockDevice> {
    let node = Node::new();
    let device = node.block_device(what, path)?;
    if !raw_devices.may_be(&device.node) {
        return Err(unnamed(what, path, &device.node));
    }
    if node.loop_file(device.number).is_some_and(|file| is_of_volume(&file)) {
        let why = "by which kubelet holds a block volume, or which has another device below";
        return Err(denied(what, path, &device.node, why));
    }
    Ok(device)
}

/// kubelet has a loop device on each block volume that it maps: on the node in its own directory, or on what that leads to.
fn is_of_volume(file: &Path) -> bool {
    file.starts_with("/dev") || file.components().any(|part| part.as_os_str() == "volumeDevices")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_devices_of_kubelets_are_known() {
        for (file, so) in [
            ("/srv/disk.img", false),
            ("/dev/sdb", true),
            ("/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc/dev/u", true),
            ("/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~local-volume/pv", true),
        ] {
            assert_eq!(is_of_volume(Path::new(file)), so, "{file}");
        }
    }
}
