//! How a guest has the volumes of its pod: as disks, or by a share. Pure, as the rest of the plan.

use super::{Wishes, disks, emptydir, files_disks, flexvolume, image_volumes, share, size, volume_disks};
use crate::error::Result;
use crate::plan::{Disk, Hardware, Share};

/// A guest's volumes.
#[derive(Debug, Clone)]
pub(super) struct Volumes {
    /// What is no disk.
    pub(super) share: Option<Share>,
    /// Block devices.
    pub(super) disks: Vec<disks::Wanted>,
    /// Files in emptyDirs.
    pub(super) files: Vec<Disk>,
    pub(super) images: Vec<image_volumes::Wanted>,
    pub(super) flexvolumes: Vec<Disk>,
    /// Disks with files of volumes.
    pub(super) with_files: Vec<Disk>,
    /// Disks that are in volumes.
    pub(super) of_volumes: Vec<volume_disks::Wanted>,
    /// The disk that the machine boots from, if it is such a one.
    pub(super) root: Option<volume_disks::Wanted>,
}

impl Volumes {
    /// # Errors
    /// When a volume cannot be had, or a guest could not tell two of them apart.
    pub(super) fn of(wishes: &Wishes<'_>, hardware: &Hardware) -> Result<Self> {
        let Wishes { sandbox, container, annotations, flexvolumes, handler, .. } = wishes;
        let volume_disks::Found { root, others: of_volumes, rest } =
            volume_disks::of(sandbox, container, &handler.defaults, hardware)?;
        let disks = disks::of(&rest, hardware)?;
        let (files, container) = emptydir::of(&annotations.emptydir_disks, sandbox, &rest, &disks, hardware)?;
        let serials: Vec<_> =
            disks.iter().map(|disk| &disk.serial).chain(files.iter().map(|disk| &disk.serial)).collect();
        volume_disks::check(&of_volumes, &serials, hardware)?;
        let serials: Vec<_> = serials.into_iter().chain(of_volumes.iter().map(|disk| &disk.serial)).collect();
        let (images, container) = image_volumes::of(&container, &serials, hardware)?;
        let serials: Vec<_> = serials.into_iter().chain(images.iter().map(|image| &image.serial)).collect();
        let (flexvolumes, container) = flexvolume::of(flexvolumes, sandbox, container, &serials, hardware)?;
        let serials: Vec<_> = serials.into_iter().chain(flexvolumes.iter().map(|disk| &disk.serial)).collect();
        let with_files = files_disks::of(sandbox, &container, &serials, hardware)?;
        let has_agent = handler.defaults.has_agent(annotations);
        let share = share::of(sandbox, &container, annotations, &handler.defaults, has_agent)?;
        Ok(Self { share, disks, files, images, flexvolumes, with_files, of_volumes, root })
    }

    /// Whether the machine boots from a disk in a volume that outlives its pod.
    pub(super) fn has_lasting_root(&self) -> bool {
        self.root.as_ref().is_some_and(volume_disks::Wanted::is_lasting)
    }

    /// Those that are made for the pod, with room of the node's disk.
    pub(super) fn new_disks(&self) -> impl Iterator<Item = &Disk> {
        self.files.iter().chain(&self.flexvolumes)
    }

    /// What of a machine with them takes memory beside its guest.
    pub(super) fn parts(&self, hardware: &Hardware) -> size::Parts {
        let Self { share, disks, files, images, flexvolumes, with_files, of_volumes, root: _ } = self;
        let disks = disks.len() + files.len() + images.len() + flexvolumes.len() + with_files.len() + of_volumes.len();
        size::Parts::of(hardware, share.is_some(), disks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::PodAnnotations;
    use crate::seed::TOKEN;
    use crate::settings::{Handler, MachineConfig};
    use crate::{Accelerator, ContainerConfig, MachineId, Mount, SandboxConfig};

    fn mount(kind: &str, name: &str, path: &str) -> Mount {
        let host_path = format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~{kind}/{name}");
        Mount { container_path: path.into(), host_path, ..Mount::default() }
    }

    #[test]
    fn memory_is_taken_for_what_is_there_and_for_nothing_else() {
        let sandbox = SandboxConfig { uid: "u".into(), ..SandboxConfig::default() };
        let said = [("virtlet.cloud/guest-agent", "true"), ("virtlet.cloud/emptydir-disks", "scratch=32Mi")];
        let annotations = PodAnnotations::parse(&said.map(|(key, value)| (key.into(), value.into())).into());
        let annotations = annotations.expect("right");
        let disk_and_token = vec![mount("empty-dir", "scratch", "/scratch"), mount("projected", "token", TOKEN)];
        let and_more = [disk_and_token.clone(), vec![mount("configmap", "site", "/site")]].concat();
        for (mounts, share) in [(disk_and_token, false), (and_more, true)] {
            let container = ContainerConfig { mounts, ..ContainerConfig::default() };
            let wishes = Wishes {
                id: MachineId::random(),
                sandbox: &sandbox,
                container: &container,
                annotations: &annotations,
                flexvolumes: &[],
                handler: &Handler::default(),
                offer: None,
                accel: Accelerator::Kvm,
                node: &MachineConfig::default(),
            };
            let hardware = Hardware::default();
            let parts = Volumes::of(&wishes, &hardware).expect("planned").parts(&hardware);
            assert_eq!((parts.share, parts.disks), (share, 1));
        }
    }
}
