//! Block devices of the node that a pod mounts by `hostPath` (type `BlockDevice`): disks of its machine. A container has the device's node
//! there, which would be of no use to a guest.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use vmspec::error::Result;
use vmspec::settings::Handler;
use vmspec::{ContainerConfig, Device, Mount, SandboxConfig};

use super::{devices, pod_dir, raw_device};
use crate::config::Config;

/// The container as kubelet would want it if such mounts were block volumes, with their `mountPath` as `devicePath`. Blocks.
///
/// # Errors
/// When the node or the handler does not let pods have a device.
pub(super) fn find(
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
        let device = raw_device::named(&config.raw_devices, &raw_device::mounted_at(at), Path::new(host_path))?;
        Ok(Some(device.node.display().to_string()))
    })
}

/// The same, of the mounts that are a device, of which `device` tells the node. The path of the pod's is not looked at again: where it leads may
/// change at any time.
///
/// # Errors
/// When the handler does not let pods have them, and those of `device`.
pub(crate) fn as_devices(
    mut container: ContainerConfig,
    sandbox: &SandboxConfig,
    handler: &Handler,
    device: impl Fn(&Mount) -> Result<Option<String>>,
) -> Result<ContainerConfig> {
    for mount in std::mem::take(&mut container.mounts) {
        let Some(node) = device(&mount)? else {
            container.mounts.push(mount);
            continue;
        };
        pod_dir::check_host_path(&mount, sandbox, &handler.defaults)?;
        devices::check_handler(&mount.host_path, handler)?;
        let Mount { container_path, readonly: read_only, .. } = mount;
        container.devices.push(Device { host_path: node, container_path, read_only });
    }
    Ok(container)
}

#[cfg(test)]
mod tests {
    use vmspec::error::Kind;
    use vmspec::plan::HostPath;
    use vmspec::settings::{Given, MachineDefaults};

    use super::*;

    fn judged(defaults: MachineDefaults) -> Result<ContainerConfig> {
        let mount = |path: &str| Mount { container_path: path.into(), host_path: path.into(), ..Mount::default() };
        let mounts = vec![mount("/srv"), Mount { readonly: true, ..mount("/srv/link/loop0") }, mount("/etc/app")];
        let container = ContainerConfig { mounts, ..ContainerConfig::default() };
        let handler = Handler { name: "lab".into(), defaults };
        as_devices(container, &SandboxConfig::default(), &handler, |mount| {
            Ok(mount.host_path.strip_prefix("/srv/link/").map(|name| format!("/dev/{name}")))
        })
    }

    #[test]
    fn a_mount_of_a_device_is_a_device_where_the_handler_lets_pods_have_it() {
        let container = judged(MachineDefaults::default()).expect("fine");
        let paths: Vec<_> = container.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(paths, ["/srv", "/etc/app"]);
        let (node, at) = ("/dev/loop0".to_owned(), "/srv/link/loop0".to_owned());
        assert_eq!(container.devices, [Device { host_path: node, container_path: at, read_only: true }]);

        let no_paths = MachineDefaults { host_path: Given::Value(HostPath::Deny), ..MachineDefaults::default() };
        let no_devices = MachineDefaults { host_devices: Some(false), ..MachineDefaults::default() };
        for (defaults, setting) in [(no_paths, "`host_path`"), (no_devices, "`host_devices`")] {
            let error = judged(defaults).expect_err("refused");
            assert!(error.kind() == Kind::Denied && error.to_string().contains(setting), "{error}");
        }
    }

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
