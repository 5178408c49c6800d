//! Where the `subPath`s of a pod lead that its guest is to see: into a volume of the pod's, or to what is the node's.
//!
//! kubelet binds each to a directory of the pod's, whatever volume it is of, so the kernel alone says what is there.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};
use vmspec::SandboxConfig;
use vmspec::error::{Error, Kind, Result};
use vmspec::host::{check_policy, policy};
use vmspec::plan::{HostPath, SharedMount};
use vmspec::pod_dir::subpath;
use vmspec::settings::MachineDefaults;

/// The plugin whose directory of a volume has a mount in it.
const CSI: &str = "kubernetes.io~csi";

/// Holds each `subPath` of a `hostPath` that a guest is to see to what the handler says of those. Blocks.
///
/// # Errors
/// When one is not allowed, or the kernel does not say what is mounted.
pub(crate) fn check_subpaths(
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
    use vmspec::MountOptions;
    use vmspec::settings::Given;

    use super::*;

    const DIR: &str = "/var/lib/kubelet/pods/u";

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
            let mount = SharedMount {
                source,
                path,
                read_only: readonly,
                recursive: false,
                follows: false,
                filled: false,
                options: MountOptions::default(),
            };
            let defaults = MachineDefaults { host_path: Given::Value(policy), ..MachineDefaults::default() };
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
