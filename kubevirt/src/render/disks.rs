//! Disks: the container's image and the pod's volumes.

mod more;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, ImageVolumeSource, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume as PodVolume, VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proto::vm::{self, DiskSource};
use vmspec::annotations::keys::{DISK_DRIVER, EMPTYDIR_DISKS, ROOT_DEVICE, ROOT_LIFETIME};

use super::Draft;
use super::world::{BLOCK, FILESYSTEM};
use crate::Path;
use crate::types::{Claim, ContainerDisk, Disk, Volume};

/// Image of a VM that has none.
const NO_IMAGE: &str = "virtlet.cloud/none:1";
/// Labels of disks with files, if the object says none.
const FILES_LABEL: &str = "cfgdata";
const SYSPREP_LABEL: &str = "sysprep";
/// Buses, as KubeVirt calls them: those of disks and of CDs that do not say.
const VIRTIO: &str = "virtio";
const SATA: &str = "sata";

pub(super) fn of(draft: &mut Draft<'_>) {
    let spec = draft.spec;
    let disks = &spec.domain.devices.disks;
    let root = spec.root().map(|(disk, _)| &disk.name);
    let bus = bus(draft);
    let mut empty_disks = Vec::new();
    for (nth, disk) in disks.iter().enumerate() {
        let Some((at_volume, volume)) = spec.volumes.iter().enumerate().find(|(_, volume)| volume.name == disk.name)
        else {
            continue;
        };
        let it = It {
            disk,
            volume,
            is_root: root == Some(&disk.name),
            at: draft.device("disks").item(nth),
            at_volume: draft.instance.at.field("volumes").item(at_volume),
            bus: bus.as_deref(),
            is_block: is_block(draft, disk, volume),
        };
        let mut more = it.more(spec);
        it.volume(draft, &mut more, &mut empty_disks);
        if more != (vm::Disk { name: more.name.clone(), ..vm::Disk::default() }) {
            it.told(draft, &more);
            more.root = it.is_root;
            draft.description.disks.push(more);
        }
    }
    if !empty_disks.is_empty() {
        let at = draft.instance.at.field("volumes");
        draft.annotate(EMPTYDIR_DISKS, empty_disks.join("; "), &at);
    }
    image(draft);
}

/// The bus of all disks, if one of them says any; of several, that of the disk that the VM boots from. An annotation says it.
fn bus(draft: &mut Draft<'_>) -> Option<String> {
    let spec = draft.spec;
    let is_seed = |disk: &Disk| spec.volumes.iter().any(|it| it.name == disk.name && it.cloud_init().is_some());
    let disks = spec.domain.devices.disks.iter().filter(|disk| !is_seed(disk));
    let mut said: BTreeSet<&str> = disks.clone().filter(|disk| disk.cdrom.is_none()).filter_map(Disk::bus).collect();
    if said.is_empty() {
        return None;
    }
    if disks.clone().any(|disk| disk.cdrom.is_none() && disk.bus().is_none()) {
        said.insert(VIRTIO);
    }
    let one = match spec.root() {
        Some((root, _)) if said.len() > 1 => bus_of(root),
        _ => said.first()?,
    };
    let at = draft.device("disks");
    draft.annotate(DISK_DRIVER, one, &at);
    Some(one.to_owned())
}

/// That of a disk, also of one that does not say.
fn bus_of(disk: &Disk) -> &str {
    disk.bus().unwrap_or(if disk.cdrom.is_some() { SATA } else { VIRTIO })
}

/// A disk with its volume.
struct It<'a> {
    disk: &'a Disk,
    volume: &'a Volume,
    is_root: bool,
    at: Path,
    at_volume: Path,
    /// That of all disks that do not say another one, if any says one.
    bus: Option<&'a str>,
    /// Whether it is of a claim whose volume is a device.
    is_block: bool,
}

/// Whether a volume is a claim's that is a device. Of one that is not known the disk may say what only such a one can be.
fn is_block(draft: &Draft<'_>, disk: &Disk, volume: &Volume) -> bool {
    let Some(claim) = volume.claim() else { return false };
    match draft.world.claim(draft.instance.namespace, &claim.claim_name).and_then(|claim| claim.mode.as_deref()) {
        Some(mode) => mode == BLOCK,
        None => {
            disk.shareable == Some(true) || disk.block_size.as_ref().is_some_and(|size| size.match_volume.is_some())
        }
    }
}

impl It<'_> {
    fn volume(&self, draft: &mut Draft<'_>, more: &mut vm::Disk, empty_disks: &mut Vec<String>) {
        let Volume {
            container_disk, persistent_volume_claim, ephemeral, empty_disk, config_map, secret, sysprep, ..
        } = self.volume;
        if let Some(image) = container_disk {
            self.image(draft, image);
        }
        if let Some(claim) = persistent_volume_claim {
            let read_only = claim.read_only || (self.disk.is_read_only() && !self.is_root);
            let at = self.at_volume.field("persistentVolumeClaim");
            if self.is_root {
                draft.found.unless(
                    !claim.read_only,
                    &at.field("readOnly"),
                    "a VM cannot boot from a claim that is read-only; use ephemeral",
                );
            }
            if self.is_block {
                let serial = self.disk.serial.as_ref();
                let serial = serial.filter(|serial| more.serial.is_none() && self.has_serial(serial));
                if self.is_root {
                    draft.annotate(ROOT_DEVICE, "as-is", &at);
                }
                self.block(draft, claim, read_only, serial);
            } else {
                more.source = Some(DiskSource::DiskImage { size: self.size(draft, claim) });
                self.mounted_claim(draft, claim, read_only);
            }
            self.told_mode(draft, claim, &at);
        }
        if let Some(ephemeral) = ephemeral {
            more.source = Some(DiskSource::Overlay {});
            let at = self.at_volume.field("ephemeral").field("persistentVolumeClaim");
            let claim = &ephemeral.persistent_volume_claim;
            if self.is_block {
                self.block(draft, claim, true, None);
            } else {
                self.mounted_claim(draft, claim, true);
            }
            self.told_mode(draft, claim, &at);
        }
        if let Some(disk) = empty_disk {
            self.empty_disk(draft, &disk.capacity);
            empty_disks.push(format!("{}={},fs=none", self.volume.name, disk.capacity));
        }
        let optional = config_map.as_ref().and_then(|it| it.optional).or(secret.as_ref().and_then(|it| it.optional));
        let label = |said: &Option<String>| said.clone().unwrap_or_else(|| FILES_LABEL.to_owned());
        let of_sysprep = |reference: &Option<crate::types::Reference>| {
            reference.as_ref().map(|reference| (reference.name.clone(), SYSPREP_LABEL.to_owned()))
        };
        let config_map = config_map.as_ref().map(|it| (it.name.clone(), label(&it.volume_label)));
        let config_map = config_map.or_else(|| of_sysprep(&sysprep.as_ref()?.config_map));
        let secret = secret.as_ref().map(|it| (it.secret_name.clone(), label(&it.volume_label)));
        let secret = secret.or_else(|| of_sysprep(&sysprep.as_ref()?.secret));
        if let Some((name, label)) = config_map {
            let source = ConfigMapVolumeSource { name, optional, ..ConfigMapVolumeSource::default() };
            self.files(draft, PodVolume { config_map: Some(source), ..PodVolume::default() });
            self.of_files(label, more);
        }
        if let Some((name, label)) = secret {
            let source = SecretVolumeSource { secret_name: Some(name), optional, ..SecretVolumeSource::default() };
            self.files(draft, PodVolume { secret: Some(source), ..PodVolume::default() });
            self.of_files(label, more);
        }
    }

    fn image(&self, draft: &mut Draft<'_>, image: &ContainerDisk) {
        if let Some(name) = &image.image_pull_secret {
            let secret = LocalObjectReference { name: name.clone() };
            let secrets = draft.pod.image_pull_secrets.get_or_insert_default();
            if !secrets.contains(&secret) {
                secrets.push(secret);
            }
        }
        if self.is_root {
            draft.container.image = Some(image.image.clone());
            draft.container.image_pull_policy.clone_from(&image.image_pull_policy);
            // A run of a VM begins with what its image has. Who is never started again has one run.
            if draft.instance.restart != "Never" {
                draft.annotate(ROOT_LIFETIME, "container", &self.at_volume);
            }
            return;
        }
        if bus_of(self.disk) == SATA && self.disk.cdrom.is_none() {
            draft.found.error(
                &self.at,
                "an image beside the root disk is read-only, which no disk on sata is; use virtio or scsi",
            );
        } else if !self.disk.is_read_only() {
            draft
                .found
                .warn(&self.at, "is read-only: of several images, the one that the VM boots from can be written to");
        }
        let source =
            ImageVolumeSource { reference: Some(image.image.clone()), pull_policy: image.image_pull_policy.clone() };
        let path = format!("{}{}", vm::IMAGE_DIR, self.volume.name);
        self.mount(draft, PodVolume { image: Some(source), ..PodVolume::default() }, path);
    }

    /// What mode a claim is taken for, if that is not known.
    fn told_mode(&self, draft: &mut Draft<'_>, claim: &Claim, at: &Path) {
        let known = draft.world.claim(draft.instance.namespace, &claim.claim_name);
        match known.and_then(|claim| claim.mode.as_deref()) {
            Some(BLOCK | FILESYSTEM) => {}
            Some(mode) => {
                let text = format!("claim `{}` has volumeMode {mode}, which is none", claim.claim_name);
                draft.found.error(&at.field("claimName"), text);
            }
            None => {
                let mode = if self.is_block { BLOCK } else { FILESYSTEM };
                let text = format!(
                    "claim `{}` is not in these files, and taken for one with volumeMode {mode}; put it beside the VM if it is not",
                    claim.claim_name
                );
                draft.found.warn(&at.field("claimName"), text);
            }
        }
    }

    /// Bytes that a claim has, if that is known.
    fn size(&self, draft: &Draft<'_>, claim: &Claim) -> Option<u64> {
        draft.world.claim(draft.instance.namespace, &claim.claim_name)?.size
    }

    /// A claim whose volume is a device.
    fn block(&self, draft: &mut Draft<'_>, claim: &Claim, read_only: bool, serial: Option<&String>) {
        let device_path = match serial {
            _ if self.is_root => "/".to_owned(),
            Some(serial) => format!("/dev/{serial}"),
            None => format!("{}{}", vm::DEVICE_DIR, self.volume.name),
        };
        let name = self.volume.name.clone();
        let volume = PodVolume { name: name.clone(), ..of_claim(claim, read_only) };
        draft.pod.volumes.get_or_insert_default().push(volume);
        draft.container.volume_devices.get_or_insert_default().push(VolumeDevice { device_path, name });
    }

    /// One whose volume is a directory, where only the node sees it.
    fn mounted_claim(&self, draft: &mut Draft<'_>, claim: &Claim, read_only: bool) {
        let path = format!("{}{}", vm::VOLUME_DIR, self.volume.name);
        self.mount(draft, of_claim(claim, read_only), path);
        if let Some(mount) = draft.container.volume_mounts.as_mut().and_then(|mounts| mounts.last_mut()) {
            mount.read_only = read_only.then_some(true);
        }
    }

    fn empty_disk(&self, draft: &mut Draft<'_>, capacity: &str) {
        let source =
            EmptyDirVolumeSource { size_limit: Some(Quantity(capacity.to_owned())), ..EmptyDirVolumeSource::default() };
        let path = format!("/run/virtlet/disks/{}", self.volume.name);
        self.mount(draft, PodVolume { empty_dir: Some(source), ..PodVolume::default() }, path);
    }

    fn files(&self, draft: &mut Draft<'_>, volume: PodVolume) {
        self.mount(draft, volume, format!("{}{}", vm::VOLUME_DIR, self.volume.name));
    }

    fn mount(&self, draft: &mut Draft<'_>, volume: PodVolume, mount_path: String) {
        let name = self.volume.name.clone();
        let mount = VolumeMount { mount_path, name: name.clone(), ..VolumeMount::default() };
        draft.container.volume_mounts.get_or_insert_default().push(mount);
        draft.pod.volumes.get_or_insert_default().push(PodVolume { name, ..volume });
    }
}

fn of_claim(claim: &Claim, read_only: bool) -> PodVolume {
    let claim_name = claim.claim_name.clone();
    let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: read_only.then_some(true) };
    PodVolume { persistent_volume_claim: Some(source), ..PodVolume::default() }
}

/// A pod needs an image, also where a VM boots from a claim.
fn image(draft: &mut Draft<'_>) {
    if draft.container.image.is_some() {
        return;
    }
    let other = draft.spec.volumes.iter().find_map(|volume| volume.container_disk.as_ref());
    let image = other.map(|image| image.image.clone()).or_else(|| draft.options.image.clone());
    draft.container.image = Some(image.unwrap_or_else(|| {
        let at = draft.instance.at.field("volumes");
        let text = format!(
            "a pod has an image, and this one is {NO_IMAGE}, which nodes of this release do not have; name any small one of theirs: \
             virtletctl vm --image NAME"
        );
        draft.found.warn(&at, text);
        NO_IMAGE.to_owned()
    }));
}
