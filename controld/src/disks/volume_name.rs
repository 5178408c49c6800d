//! What a volume is called, wherever it is, and what a guest is known by that boots from it. Pure.

use std::path::Path;

use uuid::Uuid;

/// Of all UUIDs that are made of the names of volumes.
const VOLUMES: Uuid = Uuid::from_u128(0xb1b4_7d4e_9a0e_4f6c_8a55_3f0c_6f1d_52a7);

/// The cluster's name of the volume that kubelet has in a directory, or the directory if that is the node's own.
pub(super) fn of(dir: &Path) -> String {
    let parts: Vec<_> = dir.iter().map(|part| part.to_string_lossy()).collect();
    // `volumes/PLUGIN/NAME`, and some have a directory below.
    let name = parts.windows(3).find_map(|three| match three {
        [volumes, plugin, name] if volumes == "volumes" && plugin.contains('~') => Some(name),
        _ => None,
    });
    name.map_or_else(|| dir.to_string_lossy().into_owned(), |name| name.clone().into_owned())
}

/// What a guest is known by whose disk says nothing itself.
pub(super) fn uuid(name: &str) -> Uuid {
    Uuid::new_v5(&VOLUMES, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_called_as_the_cluster_calls_it() {
        let of = |path: &str| of(Path::new(path));
        assert_eq!(of("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount"), "pvc-1");
        assert_eq!(of("/var/lib/kubelet/pods/w/volumes/kubernetes.io~nfs/pvc-1"), "pvc-1");
        assert_eq!(of("/srv/volumes/one"), "/srv/volumes/one");
    }
}
