//! Which mounts of a container are the pod's own, and which are the node's.
//!
//! kubelet has a directory for each pod, `pods/UID`, and what it makes for the pod is below that. So is a `subPath`, whatever volume it is of: kubelet binds
//! it to `pods/UID/volume-subpaths/VOLUME/CONTAINER/N`. A `hostPath` has no directory of its own there, and what is bound is the node's.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use procfs::process::{MountInfo, Process};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{HostPath, SharedMount};
use vmspec::settings::MachineDefaults;
use vmspec::{Mount, SandboxConfig};

/// The plugin whose directory of a volume has a mount in it.
const CSI: &str = "kubernetes.io~csi";
/// What kubelet calls the directory of the pods' directories.
const PODS: &str = "pods";
/// What kubelet calls a pod's hosts file, in the pod's directory.
pub(super) const HOSTS_FILE: &str = "etc-hosts";

/// Whether a path is below the directory of the pod with this UID.
#[must_use]
pub(super) fn is_below(path: &str, uid: &str) -> bool {
    below(path, uid).is_some()
}

/// Whether a path is a volume of the pod with this UID, which a plugin of kubelet's made, as `kubernetes.io~secret`.
#[must_use]
pub(super) fn is_volume(path: &str, uid: &str, plugin: &str, volume: &str) -> bool {
    below(path, uid).is_some_and(|(_, rest)| rest == ["volumes", plugin, volume])
}

/// Whether a path is a block volume of the pod with this UID: kubelet has links to those in the pod's directory.
#[must_use]
pub(super) fn is_block_volume(path: &str, uid: &str) -> bool {
    below(path, uid).is_some_and(|(_, rest)| rest.first().is_some_and(|first| *first == "volumeDevices"))
}

/// The directory of the pod with this UID, if a path is what kubelet mounts at `/etc/hosts`: a file there.
#[must_use]
pub(super) fn of_hosts_file(path: &str, uid: &str) -> Option<PathBuf> {
    let (dir, rest) = below(path, uid)?;
    (rest == [HOSTS_FILE]).then_some(dir)
}

/// The directory of the pod, and what follows it.
fn below<'a>(path: &'a str, uid: &str) -> Option<(PathBuf, Vec<&'a OsStr>)> {
    let path = Path::new(path);
    if uid.is_empty() || path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let parts: Vec<_> = path.components().map(Component::as_os_str).collect();
    let at = parts.windows(2).position(|pair| pair == [PODS, uid])?;
    let (dir, rest) = parts.split_at(at + 2);
    Some((dir.iter().collect(), rest.to_vec()))
}

/// What kubelet makes for a pod is below the pod's own directory; all else is the node's. A `subPath` is for [`check_subpaths`].
///
/// # Errors
/// When the handler does not allow it.
pub(super) fn check_host_path(mount: &Mount, sandbox: &SandboxConfig, defaults: &MachineDefaults) -> Result<()> {
    if is_below(&mount.host_path, &sandbox.uid) {
        return Ok(());
    }
    check_policy(&mount.container_path, mount.readonly, sandbox, defaults)
}

fn policy(defaults: &MachineDefaults) -> HostPath {
    defaults.host_path.get().copied().unwrap_or(HostPath::Allow)
}

/// What a handler says of a mount of the node's.
fn check_policy(at: &str, read_only: bool, sandbox: &SandboxConfig, defaults: &MachineDefaults) -> Result<()> {
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

/// Holds each `subPath` of a `hostPath` that a guest is to see to what the handler says of those. Blocks.
///
/// # Errors
/// When one is not allowed, or the kernel does not say what is mounted.
pub(super) fn check_subpaths(
    mounts: &[SharedMount],
    sandbox: &SandboxConfig,
    defaults: &MachineDefaults,
) -> Result<()> {
    if policy(defaults) == HostPath::Allow {
        return Ok(());
    }
    let mut subpaths =
        mounts.iter().filter_map(|mount| Some((mount, subpath(mount.source.to_str()?, &sandbox.uid)?))).peekable();
    if subpaths.peek().is_none() {
        return Ok(());
    }
    let mounted = Process::myself().and_then(|process| process.mountinfo());
    let mounted = mounted.map_err(|cause| {
        Error::because(Kind::Internal, "the kernel does not say what is mounted on the node", cause)
    })?;
    for (mount, (dir, volume)) in subpaths {
        // The kernel lists mounts without links.
        let path = fs::canonicalize(&mount.source).unwrap_or_else(|_absent| mount.source.clone());
        if !is_of_volume(&path, &volumes(&dir, &volume), &mounted.0) {
            check_policy(&mount.path, mount.read_only, sandbox, defaults)?;
        }
    }
    Ok(())
}

/// The pod's directory and the volume, if a path is what kubelet has bound a `subPath` to.
fn subpath(path: &str, uid: &str) -> Option<(PathBuf, OsString)> {
    let (dir, rest) = below(path, uid)?;
    match rest.as_slice() {
        [first, volume, ..] if *first == "volume-subpaths" => Some((dir, (*volume).to_owned())),
        _ => None,
    }
}

/// Where a volume of this name may be: the directory that its plugin has, or what a CSI driver has mounted in that. No link is followed below
/// the pod's directory: what is in a volume is its user's.
fn volumes(dir: &Path, volume: &OsStr) -> Vec<PathBuf> {
    let Ok(dir) = fs::canonicalize(dir.join("volumes")) else { return Vec::new() };
    let plugins = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = plugins.map(|plugin| {
        let dir = plugin.path().join(volume);
        if plugin.file_name() == CSI { dir.join("mount") } else { dir }
    });
    dirs.filter(|dir| fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir())).collect()
}

/// Whether what is bound to a path is in one of these directories: by the file system and the place in it, since names are the pod's to choose.
fn is_of_volume(path: &Path, volumes: &[PathBuf], mounted: &[MountInfo]) -> bool {
    let Some(bound) = place(path, mounted) else { return false };
    volumes
        .iter()
        .filter_map(|volume| place(volume, mounted))
        .any(|(device, dir)| device == bound.0 && bound.1.starts_with(dir))
}

/// The file system of a path, and where in that it is.
fn place<'a>(path: &Path, mounted: &'a [MountInfo]) -> Option<(&'a str, PathBuf)> {
    // Of those at one point the latest is seen.
    let mount = mounted
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())?;
    let rest = path.strip_prefix(&mount.mount_point).ok()?;
    // A network file system says where its root is by its source alone.
    let root = match &mount.mount_source {
        Some(source) if mount.fs_type.starts_with("nfs") => source,
        _ => &mount.root,
    };
    Some((&mount.majmin, Path::new(root).join(rest)))
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;
    use procfs::process::MountInfos;

    use super::*;

    const DIR: &str = "/var/lib/kubelet/pods/u";

    #[test]
    fn a_pods_directory_is_known_by_its_uid() {
        for (path, so) in [
            ("/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s", true),
            ("/elsewhere/pods/u/x", true),
            ("/var/lib/kubelet/pods/w/volumes/kubernetes.io~secret/s", false),
            ("/var/lib/kubelet/pods/u/../w/volumes/kubernetes.io~secret/s", false),
            ("/srv", false),
        ] {
            assert_eq!(is_below(path, "u"), so, "{path}");
            assert!(!is_below(path, ""), "{path}");
        }
        let secret = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s";
        assert!(is_volume(secret, "u", "kubernetes.io~secret", "s"));
        assert!(!is_volume(secret, "w", "kubernetes.io~secret", "s"));
        assert!(!is_volume(&format!("{secret}/s"), "u", "kubernetes.io~secret", "s"));
        assert!(!is_volume("/srv/kubernetes.io~secret/s", "u", "kubernetes.io~secret", "s"));
        assert_eq!(of_hosts_file("/var/lib/kubelet/pods/u/etc-hosts", "u"), Some(DIR.into()));
        for other in ["/var/lib/kubelet/pods/w/etc-hosts", "/var/lib/kubelet/pods/u/a/etc-hosts", "/etc/hosts"] {
            assert_eq!(of_hosts_file(other, "u"), None, "{other}");
        }
    }

    #[test]
    fn a_subpath_is_of_the_volume_that_it_lies_in_whatever_that_is_called() {
        let list = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
             2 1 8:16 / {DIR}/volumes/kubernetes.io~csi/pvc/mount rw - ext4 /dev/sdb rw\n\
             3 1 8:16 /app {DIR}/volume-subpaths/pvc/vm/0 rw - ext4 /dev/sdb rw\n\
             4 1 8:1 /etc {DIR}/volume-subpaths/pvc/vm/1 rw - ext4 /dev/sda1 rw\n\
             5 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/data/a {DIR}/volume-subpaths/data/vm/2 rw - ext4 /dev/sda1 rw\n\
             7 1 0:50 / {DIR}/volumes/kubernetes.io~nfs/far rw - nfs4 server:/export/a rw\n\
             8 1 0:50 / {DIR}/volume-subpaths/far/vm/4 rw - nfs4 server:/export/a/deep rw\n\
             9 1 0:50 / {DIR}/volume-subpaths/far/vm/5 rw - nfs4 server:/export/b rw\n\
             6 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/database {DIR}/volume-subpaths/data/vm/3 rw - ext4 /dev/sda1 rw\n"
        );
        let mounted = MountInfos::from_read(list.as_bytes()).expect("a list").0;
        let of = |volume: &str, n: usize| {
            let volumes = [
                format!("{DIR}/volumes/kubernetes.io~nfs/{volume}"),
                format!("{DIR}/volumes/kubernetes.io~csi/{volume}/mount"),
                format!("{DIR}/volumes/kubernetes.io~empty-dir/{volume}"),
            ];
            let path = format!("{DIR}/volume-subpaths/{volume}/vm/{n}");
            is_of_volume(Path::new(&path), &volumes.map(PathBuf::from), &mounted)
        };
        assert!(of("pvc", 0) && of("data", 2));
        assert!(!of("pvc", 1) && !of("data", 3));
        assert!(of("far", 4) && !of("far", 5));
        assert!(!of("gone", 0) && !is_of_volume(Path::new("/etc"), &[], &mounted));
    }

    #[test]
    fn what_is_bound_to_no_volume_of_the_pod_is_the_nodes() {
        let dir = tempfile::tempdir().expect("tempdir");
        let pod = dir.path().join("pods/u");
        for name in ["volumes/kubernetes.io~empty-dir/data/a", "volume-subpaths/data/vm/0", "volume-subpaths/node/vm/0"]
        {
            fs::create_dir_all(pod.join(name)).expect("made");
        }
        let sandbox = SandboxConfig { uid: "u".into(), runtime_handler: "lab".into(), ..SandboxConfig::default() };
        let check = |name: &str, readonly, policy| {
            let host_path = pod.join(name).display().to_string();
            let (source, path) = (host_path.into(), "/data".into());
            let mount = SharedMount { source, path, read_only: readonly, recursive: false, follows: false };
            let defaults =
                MachineDefaults { host_path: vmspec::settings::Given::Value(policy), ..MachineDefaults::default() };
            check_subpaths(&[mount], &sandbox, &defaults)
        };
        // The volume's user makes what is in it look like a driver's.
        let local = pod.join("volumes/kubernetes.io~local-volume/node");
        fs::create_dir_all(&local).expect("made");
        std::os::unix::fs::symlink("/", local.join("mount")).expect("linked");
        std::os::unix::fs::symlink("/", pod.join("volumes/kubernetes.io~empty-dir/node")).expect("linked");
        // Nothing is bound here, so the directory itself is all there is.
        let (node, own) = ("volume-subpaths/node/vm/0", "volumes/kubernetes.io~empty-dir/data/a");
        check(own, false, HostPath::Deny).expect("the pod's");
        check(node, false, HostPath::Allow).expect("allowed");
        check(node, true, HostPath::Readonly).expect("read-only");
        for (readonly, policy) in [(false, HostPath::Readonly), (true, HostPath::Deny)] {
            let error = check(node, readonly, policy).expect_err("refused");
            assert!(error.kind() == Kind::Denied && error.to_string().contains("a `hostPath`"), "{error}");
        }
    }
}
