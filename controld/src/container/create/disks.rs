//! The disks of a container that is made, and where they lie: in its pod's folder, on the image that is the pod's, and in volumes.

use common::off_reactor;
use imagestore::Image;
use proto::tap::QemuUser;
use vmimage::digest::ImageId;
use vmspec::draft::{self, Draft};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Disk, Firmware, Layer, PersistentRoot, RootDisk, RootLifetime, VolumeDisk};

use super::plan::Drafted;
use super::{Containers, Waking};
use crate::disks::{flexvolume, image_volumes, persistent, volume_disks};
use crate::files::look;
use crate::model::{PodName, Sandbox};
use crate::store::is_disk_full;
use crate::volumes::{Base, Folder, Root, UefiFirmware, VolumeError, uefi_variables};

/// What was made.
#[derive(Debug)]
pub(super) struct Disks {
    /// Of the image that the root disk stands on.
    pub(super) image_id: ImageId,
    /// As the machine has it.
    pub(super) root: RootDisk,
    /// Those that are images, and those in volumes.
    pub(super) others: [Vec<Disk>; 2],
    /// Whose they are.
    pub(super) qemu: QemuUser,
    /// The layer, which is undone if the container is not made.
    pub(super) layer: Option<Root>,
}

impl Containers {
    /// The folder of a pod's disks, which is the pod's from here on. What is in it goes with the sandbox at the latest.
    ///
    /// # Errors
    /// When it cannot be made, or another pod's are in the way.
    pub(super) async fn claim(&self, sandbox: &Sandbox) -> Result<Folder> {
        self.uses.orphans.make_room(sandbox).await?;
        let owner = self.uses.orphans.owner(&PodName::of(sandbox)).await?;
        let volumes = self.uses.volumes.clone();
        off_reactor(move || volumes.claim(&owner)).await.map_err(no_disk)
    }

    /// Makes all disks of a container that is called by an image of this name; of a checkpoint's, if it goes on from one.
    ///
    /// # Errors
    /// When one cannot be made.
    pub(super) async fn make_disks(
        &self,
        folder: &Folder,
        (sandbox, drafted, name): (&Sandbox, &Drafted, &str),
        of_volumes: &[Image],
        waking: Option<&Waking>,
    ) -> Result<Disks> {
        let Drafted { image, handler, annotations, draft, .. } = drafted;
        match waking {
            None => flexvolume::make(draft.flexvolumes()).await?,
            Some(waking) => {
                flexvolume::make_dirs(draft.flexvolumes()).await?;
                waking.make_disks(draft.flexvolumes()).await?;
            }
        }
        let (asked, machine_type) = (draft::hardware::machine_type(handler, annotations), &draft.hardware().machine);
        self.uses.volumes.note_machine_type(folder, &asked, machine_type).await.map_err(no_disk)?;
        // A volume has a life of its own.
        let lifetime =
            if draft.has_lasting_root() { RootLifetime::Pod } else { handler.defaults.root_lifetime(annotations) };
        let wanted = Base {
            image_id: image.id.to_string(),
            path: image.path.clone(),
            format: image.format.to_string(),
            virtual_size: image.virtual_size,
            name: name.to_owned(),
        };
        let base = match lifetime {
            RootLifetime::Pod if waking.is_none() => self.uses.volumes.base(folder, wanted).await,
            RootLifetime::Pod | RootLifetime::Container => wanted,
        };
        let image_id = base
            .image_id
            .parse()
            .map_err(|cause| Error::because(Kind::Internal, "the note of the root disk names no image", cause))?;
        if image_id != image.id {
            let (name, now) = (&base.name, &image.id);
            tracing::info!(pod = %sandbox.id, name, %now, keeps = %image_id, "the pod keeps its disk of an earlier image");
        }
        self.uses.images.lease(&image_id, folder.name()).await?;
        let mut images = vec![Layer { path: base.path.clone(), format: base.format.clone() }];
        images.extend(self.uses.images.below(&image_id)?);
        let of_images = image_volumes::keep(&self.uses.images, draft.images(), of_volumes, folder.name()).await?;
        let qemu = self.uses.qemu_user().await?;
        let most = handler.defaults.on(&self.uses.config.machine).max_disk;
        let place = volume_disks::Place { volumes: &self.uses.volumes, folder, qemu, most };
        let in_volumes = volume_disks::make(draft.of_volumes(), place).await?;
        let (volume, lower) = volume_disks::make_root(draft.volume_root(), folder, most).await?.unzip();
        let persistent = self.persistent(draft, &base, &image_id).await?;
        if persistent.is_some() || volume.is_some() {
            self.uses.volumes.note_base(folder, &base).await.map_err(no_disk)?;
        }
        let size = annotations.root_volume_size.unwrap_or(0);
        let layer = match (&persistent, &volume) {
            (None, None) => Some(self.layer(folder, &base, (size, lifetime), qemu, waking).await?),
            (None, Some(VolumeDisk::Overlay(_))) => {
                let lower = lower.flatten();
                let lower = lower.as_ref().unwrap_or(&base);
                let layer = self.uses.volumes.ensure_root(folder, lower, 0, RootLifetime::Container, qemu).await;
                Some(layer.map_err(no_disk)?)
            }
            (Some(_), _) | (None, Some(VolumeDisk::File(_))) => None,
        };
        let root = RootDisk { overlay: folder.overlay(), images, persistent, volume };
        Ok(Disks { image_id, root, others: [of_images, in_volumes], qemu, layer })
    }

    /// The device that the root disk is on, if it is on one: with the image in it, or to be written.
    async fn persistent(&self, draft: &Draft, base: &Base, image: &ImageId) -> Result<Option<PersistentRoot>> {
        let Some(wanted) = draft.persistent_root().cloned() else { return Ok(None) };
        let (on, converted) = (base.clone(), self.uses.images.is_converted(image));
        look(move || persistent::check(&wanted, &on, converted)).await.map(Some)
    }

    /// The root disk's own layer, on an image.
    async fn layer(
        &self,
        folder: &Folder,
        base: &Base,
        (size, lifetime): (u64, RootLifetime),
        qemu: QemuUser,
        waking: Option<&Waking>,
    ) -> Result<Root> {
        let volumes = &self.uses.volumes;
        let Some(waking) = waking else {
            return volumes.ensure_root(folder, base, size, lifetime, qemu).await.map_err(no_disk);
        };
        let half = volumes.half_root(folder).await.map_err(no_disk)?;
        let image = (base.image_id.clone(), base.path.clone());
        waking.make_root(half, image, size.max(base.virtual_size), qemu).await?;
        volumes.install_root(folder, base).await.map_err(no_disk)
    }

    /// Has what UEFI remembers ready, if the machine has UEFI.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) async fn make_uefi(
        &self,
        folder: &Folder,
        drafted: &Drafted,
        qemu: QemuUser,
        waking: Option<&Waking>,
    ) -> Result<()> {
        let Firmware::Uefi { secure_boot } = drafted.draft.hardware().firmware else { return Ok(()) };
        let firmware = UefiFirmware { secure_boot, loaders: drafted.offer.loaders.clone() };
        let ready = self.uses.volumes.ready_uefi(folder, firmware).await;
        ready.map_err(|cause| Error::because(Kind::Internal, "UEFI's variables cannot be made ready", cause))?;
        match waking {
            Some(waking) => waking.make_uefi(uefi_variables(&folder.overlay()), qemu).await,
            None => Ok(()),
        }
    }
}

fn no_disk(cause: VolumeError) -> Error {
    let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
    Error::because(kind, "the root disk cannot be made", cause)
}
