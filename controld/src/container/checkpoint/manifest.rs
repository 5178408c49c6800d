//! `checkpoint.json`: what the files of a checkpoint are of, and what of a node they want. A directory that has it is whole.
//!
//! It has no variable, annotation or argument of the pod: the memory has those, and is root's alone, too.

use std::path::Path;

use common::small_file;
use proto::tap::{MacAddr, PodNet};
use serde::Serialize;
use uuid::Uuid;
use vmspec::error::Result;
use vmspec::plan::MachinePlan;
use vmspec::{Applied, ContainerId};

use super::failed;
use super::plan::Of;
use crate::model::{CONTAINER_VERSION, Container, PodName};

/// Its name.
pub(super) const NAME: &str = "checkpoint.json";
const VERSION: u32 = 1;

/// The manifest.
#[derive(Debug, Serialize)]
pub(super) struct Manifest {
    version: u32,
    /// The controld that made it.
    instance: Uuid,
    /// When the guest was paused, in nanoseconds since the epoch.
    made_at: i64,
    versions: Versions,
    namespace: String,
    pod: String,
    pod_uid: String,
    container: String,
    container_id: ContainerId,
    /// By its digest, as the machine has it, and as the pod calls it.
    image_id: String,
    image: String,
    image_handler: String,
    nics: Vec<NicMade>,
    files: Vec<PartMade>,
    /// Version of a container's record, which is that of `machine`.
    machine_version: u32,
    machine: MachinePlan,
    /// What the machine had when it was written: it may have been given more since it was planned.
    applied: Applied,
}

/// What memory and devices depend on.
#[derive(Debug, Serialize)]
pub(super) struct Versions {
    /// Empty if libvirt did not tell.
    pub(super) qemu: String,
    pub(super) libvirt: String,
    /// `kvm` or `qemu`.
    pub(super) accelerator: String,
}

/// When and by whom it was made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) at: i64,
    pub(super) instance: Uuid,
    pub(super) versions: Versions,
}

/// A NIC, in the order of the guest's.
#[derive(Debug, Serialize)]
struct NicMade {
    name: String,
    network: String,
    mac: MacAddr,
}

/// A file.
#[derive(Debug, Serialize)]
pub(super) struct PartMade {
    pub(super) name: String,
    pub(super) of: Of,
    pub(super) bytes: u64,
    /// Of all of it, holes too, in lower case.
    pub(super) sha256: String,
}

// === impl Manifest ===

impl Manifest {
    pub(super) fn of(
        container: &Container,
        pod: PodName,
        net: Option<&PodNet>,
        Made { at, instance, versions }: Made,
        files: Vec<PartMade>,
    ) -> Self {
        let nics = net.iter().flat_map(|net| &net.nics);
        let nics = nics.map(|nic| NicMade { name: nic.name.to_string(), network: nic.network.clone(), mac: nic.mac });
        Self {
            version: VERSION,
            instance,
            made_at: at,
            versions,
            namespace: pod.namespace,
            pod: pod.name,
            pod_uid: pod.uid,
            container: container.config.name.clone(),
            container_id: container.id,
            image_id: container.image_id.clone(),
            image: container.config.image_name().to_owned(),
            image_handler: container.image_handler.clone(),
            nics: nics.collect(),
            files,
            machine_version: CONTAINER_VERSION,
            machine: container.machine.clone(),
            applied: container.applied(),
        }
    }

    /// Writes it to a directory whose other files are there and flushed.
    ///
    /// # Errors
    /// When it is not written; then there is none.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        small_file::write(&dir.join(NAME), self).map_err(|cause| failed("the checkpoint's manifest not written", cause))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::container::tests::container;

    #[test]
    fn a_manifest_says_what_the_files_are_of_and_nothing_that_the_pod_hides() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut container = container("vm", 0);
        container.machine_annotations.insert("VirtletCloudInitUserData".into(), "s3cret".into());
        let versions = Versions { qemu: "10.0.2".into(), libvirt: "11.3.0".into(), accelerator: "kvm".into() };
        let made = Made { at: 7, instance: Uuid::from_u128(1), versions };
        let part =
            PartMade { name: "disk-1.raw".into(), of: Of::Disk("scratch".into()), bytes: 3, sha256: "ba78".into() };
        let pod = PodName { uid: "u".into(), namespace: "ns".into(), name: "web".into() };
        Manifest::of(&container, pod, None, made, vec![part]).write(dir.path()).expect("written");
        let text = fs::read_to_string(dir.path().join(NAME)).expect("read");
        assert!(!text.contains("s3cret"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&read["version"], &read["pod"], &read["made_at"]), (&1.into(), &"web".into(), &7.into()));
        let files =
            serde_json::json!([{ "name": "disk-1.raw", "of": { "disk": "scratch" }, "bytes": 3, "sha256": "ba78" }]);
        assert_eq!(read["files"], files);
        assert_eq!(serde_json::from_value::<MachinePlan>(read["machine"].clone()).expect("a plan"), container.machine);
    }
}
