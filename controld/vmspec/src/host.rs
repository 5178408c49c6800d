//! What of the node itself a pod may have: its paths and its devices, as far as the pod's runtime handler says. Pure; what is where on the node, the
//! node sees.

use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::plan::HostPath;
use crate::settings::{Handler, MachineDefaults};
use crate::{ContainerConfig, Device, Mount, SandboxConfig, pod_dir};

/// What kubelet makes for a pod is below the pod's own directory; all else is the node's. Where a `subPath` leads, the
/// node knows alone.
///
/// # Errors
/// When the handler does not allow it.
pub fn check_host_path(mount: &Mount, sandbox: &SandboxConfig, defaults: &MachineDefaults) -> Result<()> {
    if pod_dir::is_below(&mount.host_path, &sandbox.uid) {
        return Ok(());
    }
    check_policy(&mount.container_path, mount.readonly, sandbox, defaults)
}

/// What a handler says of paths of the node.
#[must_use]
pub fn policy(defaults: &MachineDefaults) -> HostPath {
    defaults.host_path.get().copied().unwrap_or(HostPath::Allow)
}

/// What a handler says of a mount of the node's.
///
/// # Errors
/// That it is not allowed.
pub fn check_policy(at: &str, read_only: bool, sandbox: &SandboxConfig, defaults: &MachineDefaults) -> Result<()> {
    let why = match policy(defaults) {
        HostPath::Allow => return Ok(()),
        HostPath::Readonly if read_only => return Ok(()),
        HostPath::Readonly => "may be read-only alone; set `readOnly`",
        HostPath::Deny => "is not allowed; use another volume",
    };
    let handler = &sandbox.runtime_handler;
    let what = format!("volume mount at `{at}`: a `hostPath` {why} (runtime handler `{handler}`, `host_path`)");
    Err(Error::new(Kind::Denied, what))
}

/// The container as kubelet would want it if mounts of a device, of which `device` tells the node, were block volumes, with their `mountPath` as
/// `devicePath`. The path of the pod's is not looked at again: where it leads may
/// change at any time.
///
/// # Errors
/// When the handler does not let pods have them, and those of `device`.
pub fn as_devices(
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
        check_host_path(&mount, sandbox, &handler.defaults)?;
        check_handler(&mount.host_path, handler)?;
        let Mount { container_path, readonly: read_only, options, .. } = mount;
        if !options.is_empty() {
            let why = "it is a block device, which the guest has as a disk, and nothing is mounted; leave it out";
            return Err(options.refused(&container_path, why));
        }
        container.devices.push(Device { host_path: node, container_path, read_only });
    }
    Ok(container)
}

/// # Errors
/// When machines of this handler have no devices of the node.
pub fn check_handler(what: &str, handler: &Handler) -> Result<()> {
    if handler.defaults.host_devices != Some(false) {
        return Ok(());
    }
    let name = &handler.name;
    let what =
        format!("device `{what}`: VMs of runtime handler `{name}` are given no devices of the node (`host_devices`)");
    Err(Error::new(Kind::Denied, what))
}

/// That the administrator does not name the device of a path.
#[must_use]
pub fn unnamed(what: &str, path: &Path, node: &Path) -> Error {
    denied(what, path, node, "which `raw_devices` of controld does not name; use a volume with `volumeMode: Block`")
}

/// What a pod mounts at a path, in words.
#[must_use]
pub fn mounted_at(path: &str) -> String {
    format!("volume mount at `{path}`")
}

/// That a device of a path cannot be a disk.
#[must_use]
pub fn denied(what: &str, path: &Path, node: &Path, why: &str) -> Error {
    let (path, node) = (path.display(), node.display());
    Error::new(Kind::Denied, format!("{what} cannot be a disk of the VM: `{path}` is `{node}`, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Given;

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
}
