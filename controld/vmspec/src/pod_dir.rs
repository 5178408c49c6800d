//! Which mounts of a container are the pod's own, and which are the node's.
//!
//! kubelet has a directory for each pod, `pods/UID`, and what it makes for the pod is below that. So is a `subPath`, whatever volume it is of: kubelet binds
//! it to `pods/UID/volume-subpaths/VOLUME/CONTAINER/N`. A `hostPath` has no directory of its own there, and what is bound is the node's.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use crate::Mount;

/// What kubelet calls the directory of the pods' directories.
const PODS: &str = "pods";
/// Where kubelet mounts the pod's hosts file.
const HOSTS: &str = "/etc/hosts";
/// What kubelet calls a pod's hosts file, in the pod's directory.
pub const HOSTS_FILE: &str = "etc-hosts";

/// Whether a path is below the directory of the pod with this UID.
#[must_use]
pub fn is_below(path: &str, uid: &str) -> bool {
    below(path, uid).is_some()
}

/// Whether a path is a volume of the pod with this UID, which a plugin of kubelet's made, as `kubernetes.io~secret`.
#[must_use]
pub fn is_volume(path: &str, uid: &str, plugin: &str, volume: &str) -> bool {
    below(path, uid).is_some_and(|(_, rest)| rest == ["volumes", plugin, volume])
}

/// Whether a path is a block volume of the pod with this UID: kubelet has links to those in the pod's directory.
#[must_use]
pub fn is_block_volume(path: &str, uid: &str) -> bool {
    below(path, uid).is_some_and(|(_, rest)| rest.first().is_some_and(|first| *first == "volumeDevices"))
}

/// Whether a mount is the hosts file that kubelet makes for a pod and mounts into each container: by its place, and by its name on the node.
/// Whose it is, is not asked.
#[must_use]
pub fn is_hosts_file(mount: &Mount) -> bool {
    let name = mount.host_path.rsplit_once('/').map(|(_, name)| name);
    mount.container_path == HOSTS && name == Some(HOSTS_FILE)
}

/// The directory of the pod with this UID, if a mount is its hosts file, which lies there.
#[must_use]
pub fn of_hosts_file(mount: &Mount, uid: &str) -> Option<PathBuf> {
    let (dir, rest) = below(&mount.host_path, uid).filter(|_| is_hosts_file(mount))?;
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

/// The pod's directory and the volume, if a path is what kubelet has bound a `subPath` to.
#[must_use]
pub fn subpath(path: &str, uid: &str) -> Option<(PathBuf, OsString)> {
    let (dir, rest) = below(path, uid)?;
    match rest.as_slice() {
        [first, volume, ..] if *first == "volume-subpaths" => Some((dir, (*volume).to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn a_pods_hosts_file_is_known_by_its_place_and_its_name() {
        let mount = |host_path: &str, at: &str| Mount {
            host_path: host_path.into(),
            container_path: at.into(),
            ..Mount::default()
        };
        let of = |path: &str, at: &str| {
            let mount = mount(path, at);
            (is_hosts_file(&mount), of_hosts_file(&mount, "u"))
        };
        assert_eq!(of(&format!("{DIR}/etc-hosts"), "/etc/hosts"), (true, Some(DIR.into())));
        // Not this pod's own, so nothing is read of it; nor does a guest see it.
        for other in
            [&format!("{DIR}/a/etc-hosts"), "/var/lib/kubelet/pods/w/etc-hosts", "/etc-hosts", "/srv/etc-hosts"]
        {
            assert_eq!(of(other, "/etc/hosts"), (true, None), "{other}");
        }
        // The pod's own volume in that place, or kubelet's file elsewhere: a guest may see it.
        for (path, at) in [
            ("/srv/hosts", "/etc/hosts"),
            ("/srv/my-etc-hosts", "/etc/hosts"),
            (&format!("{DIR}/etc-hosts"), "/etc/hosts2"),
        ] {
            assert_eq!(of(path, at), (false, None), "{path} at {at}");
        }
    }
}
