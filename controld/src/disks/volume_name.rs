//! What a volume is called, wherever it is, and what a guest is known by that boots from it. Pure but for a look at what kubelet has written of a
//! volume of a CSI driver.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use uuid::Uuid;

/// Of all UUIDs that are made of the names of volumes.
const VOLUMES: Uuid = Uuid::from_u128(0xb1b4_7d4e_9a0e_4f6c_8a55_3f0c_6f1d_52a7);
/// kubelet's directory of volumes of CSI drivers, and the file that it has in that of each, beside where the driver has mounted it.
const CSI: &str = "kubernetes.io~csi";
const CSI_NOTE: &str = "vol_data.json";
const MAX_NOTE: u64 = 64 << 10;

/// What of that file is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CsiNote {
    volume_lifecycle_mode: String,
}

/// A volume that kubelet has in a pod's directory.
struct Kept {
    pod: String,
    plugin: String,
    name: String,
}

/// The cluster's name of the volume that kubelet has in a directory, or the directory if that is the node's own.
pub(super) fn of(dir: &Path) -> String {
    kept(dir).map_or_else(|| dir.to_string_lossy().into_owned(), |kept| kept.name)
}

/// What the disk in a directory is known by: the volume's name, with its pod if the volume is made for that pod alone, which others may call by
/// the same name. Blocks.
pub(super) fn of_disk(dir: &Path) -> String {
    match kept(dir) {
        Some(Kept { pod, plugin, name }) if plugin == CSI && is_of_one_pod(dir) => format!("{pod}/{name}"),
        _ => of(dir),
    }
}

/// What a guest is known by whose disk says nothing itself.
pub(super) fn uuid(name: &str) -> Uuid {
    Uuid::new_v5(&VOLUMES, name.as_bytes())
}

/// `POD/volumes/PLUGIN/NAME`, and some have a directory below.
fn kept(dir: &Path) -> Option<Kept> {
    let parts: Vec<_> = dir.iter().map(|part| part.to_string_lossy()).collect();
    parts.windows(4).find_map(|four| match four {
        [pod, volumes, plugin, name] if volumes == "volumes" && plugin.contains('~') => {
            let [pod, plugin, name] = [pod, plugin, name].map(|part| part.clone().into_owned());
            Some(Kept { pod, plugin, name })
        }
        _ => None,
    })
}

/// Whether kubelet says of the volume that is mounted in a directory that it lasts as long as its pod.
fn is_of_one_pod(dir: &Path) -> bool {
    let read = || {
        let mut text = Vec::new();
        File::open(dir.parent()?.join(CSI_NOTE)).ok()?.take(MAX_NOTE).read_to_end(&mut text).ok()?;
        serde_json::from_slice::<CsiNote>(&text).ok()
    };
    read().is_some_and(|note| note.volume_lifecycle_mode == "Ephemeral")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_volume_is_called_as_the_cluster_calls_it() {
        let of = |path: &str| of(Path::new(path));
        assert_eq!(of("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount"), "pvc-1");
        assert_eq!(of("/var/lib/kubelet/pods/w/volumes/kubernetes.io~nfs/pvc-1"), "pvc-1");
        assert_eq!(of("/srv/volumes/one"), "/srv/volumes/one");
    }

    #[test]
    fn a_disk_of_a_volume_that_is_one_pods_is_known_by_that_pod_too() {
        let dir = tempfile::tempdir().expect("tempdir");
        let disk = |pod: &str, note: &str| {
            let volume = dir.path().join(format!("pods/{pod}/volumes/kubernetes.io~csi/root"));
            fs::create_dir_all(volume.join("mount")).expect("made");
            fs::write(volume.join(CSI_NOTE), note).expect("written");
            of_disk(&volume.join("mount"))
        };
        let ephemeral = r#"{"driverName":"d","volumeLifecycleMode":"Ephemeral"}"#;
        assert_eq!([disk("u", ephemeral), disk("w", ephemeral)], ["u/root", "w/root"]);
        for of_claim in [r#"{"volumeLifecycleMode":"Persistent"}"#, "{}", "no JSON"] {
            assert_eq!(disk("u", of_claim), "root", "{of_claim}");
        }
        assert_eq!(of_disk(Path::new("/pods/u/volumes/kubernetes.io~nfs/root")), "root");
    }
}
