//! Block devices of the node that a pod mounts by `hostPath` (type `BlockDevice`): disks of its machine. A container has the device's node
//! there, which would be of no use to a guest.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use vmspec::error::Result;
use vmspec::host::{as_devices, mounted_at};
use vmspec::settings::Handler;
use vmspec::{ContainerConfig, Mount, SandboxConfig, pod_dir};

use super::raw_device;
use crate::config::Config;

/// The container as kubelet would want it if such mounts were block volumes, with their `mountPath` as `devicePath`. Blocks.
///
/// # Errors
/// When the node or the handler does not let pods have a device.
pub(crate) fn find(
    container: ContainerConfig,
    sandbox: &SandboxConfig,
    config: &Config,
    handler: &Handler,
) -> Result<ContainerConfig> {
    as_devices(container, sandbox, handler, |Mount { host_path, container_path: at, .. }| {
        // What is not there is told of with the other volumes, and so is a device's node in a volume: whoever can write to that can make one.
        let is_block = fs::metadata(host_path).is_ok_and(|found| found.file_type().is_block_device());
        if !is_block || pod_dir::is_below(host_path, &sandbox.uid) {
            return Ok(None);
        }
        let device = raw_device::named(&config.raw_devices, &mounted_at(at), Path::new(host_path))?;
        Ok(Some(device.node.display().to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let host_path = file.path().display().to_string();
        let mounts =
            vec![Mount { host_path, ..Mount::default() }, Mount { host_path: "/dev/null".into(), ..Mount::default() }];
        let container = ContainerConfig { mounts, ..ContainerConfig::default() };
        let found = find(container, &SandboxConfig::default(), &Config::default(), &Handler::default()).expect("fine");
        assert_eq!((found.mounts.len(), found.devices.len()), (2, 0));
    }
}
