//! What the guest is told, and what in it does what its pod wants. Contents are not shown: they may be what the pod's user wants kept.

use super::{List, MIB, Said, given};
use crate::Mount;
use crate::annotations::{EmptyDirDisk, PodAnnotations};
use crate::plan::Share;
use crate::seed::{ConfigDelivery, SeedKind};

/// The seed, and what goes into it.
pub(super) fn seed(list: &mut List<'_>, said: Said<'_>) {
    let (annotations, defaults) = (said.annotations, &said.handler.defaults);
    let kind = match defaults.seed_kind(annotations) {
        kind @ (SeedKind::NoCloud | SeedKind::ConfigDrive) => format!("{kind}, for cloud-init"),
        kind @ (SeedKind::Ignition | SeedKind::None) => kind.to_string(),
    };
    let by_pod = annotations.seed.map(|_| "VirtletCloudInitImageType");
    list.said("seed", kind, by_pod, given(&defaults.seed, "seed"), "default");
    data(list, annotations);
    let keys = annotations.ssh_keys.len();
    if keys > 0 {
        list.add("ssh keys", keys.to_string(), "annotation VirtletSSHKeys".into());
    }
    if let Some(source) = &annotations.ssh_key_source {
        let value = format!("{}, key {}", source.source, source.key);
        list.add("source of ssh keys", value, "annotation VirtletSSHKeySource".into());
    }
    if defaults.credentials {
        let from = list.by_handler("credentials");
        list.add("ssh keys as credentials of systemd", "true".into(), from);
    }
    if let Some(source) = &annotations.files_source {
        list.add("source of files", source.to_string(), "annotation VirtletFilesFromDataSource".into());
    }
    let delivery = match defaults.delivery(annotations) {
        ConfigDelivery::Share => "share: as other volumes",
        ConfigDelivery::Seed => "seed: copies, as they are when the VM starts",
        ConfigDelivery::None => "none",
    };
    let by_pod = annotations.config_delivery.map(|_| "virtlet.cloud/config-delivery");
    let by_handler = given(&defaults.config_delivery, "config_delivery");
    list.said("ConfigMaps and Secrets", delivery.to_owned(), by_pod, by_handler, "default");
}

fn data(list: &mut List<'_>, annotations: &PodAnnotations) {
    if let Some(data) = &annotations.user_data {
        let value = if data.refuses_vendor_data() {
            "given; by its `vendor_data` cloud-init takes nothing that is made for the pod"
        } else {
            "given"
        };
        list.add("user-data", value.into(), "annotation VirtletCloudInitUserData or ...Script".into());
    }
    if let Some(source) = &annotations.user_data_source {
        let key = source.key.as_ref().map_or_else(|| ", each key".to_owned(), |key| format!(", key {key}"));
        let encoding = if source.is_base64 { ", base64" } else { "" };
        let fate = match (annotations.user_data.is_some(), annotations.overwrite) {
            (true, true) => "; not used, since VirtletCloudInitUserDataOverwrite is true",
            (true, false) => "; what is given is put on top",
            (false, _) => "",
        };
        let value = format!("{}{key}{encoding}{fate}", source.source);
        list.add("source of user-data", value, "annotation VirtletCloudInitUserDataSource".into());
    }
    let meta_data = annotations.meta_data.entries();
    if !meta_data.is_empty() {
        let keys: Vec<&str> = meta_data.keys().map(String::as_str).collect();
        list.add("meta-data", keys.join(", "), "annotation VirtletCloudInitMetaData".into());
    }
}

/// The agent, and what it does.
pub(super) fn guest(list: &mut List<'_>, said: Said<'_>, share: Option<&Share>) {
    let (annotations, defaults) = (said.annotations, &said.handler.defaults);
    let runs = annotations.run_command.unwrap_or(defaults.run_command);
    let (agent, by_pod, by_handler) = match (annotations.guest_agent, defaults.guest_agent, runs) {
        (true, ..) => ("installed by cloud-init", Some("virtlet.cloud/guest-agent"), None),
        (_, true, _) => ("in the image", None, Some("guest_agent")),
        (.., true) => ("in the image, since the VM is for a command", None, None),
        _ => ("not known to be there: no `exec -it`, no sysctls of the guest's kernel", None, None),
    };
    list.said("virtlet-agent", agent.to_owned(), by_pod, by_handler, "default");
    let what = if runs { "run by the agent; the VM ends with it" } else { "none is run" };
    let by_pod = annotations.run_command.map(|_| "virtlet.cloud/run-command");
    let by_handler = defaults.run_command.then_some("run_command");
    list.said("container's command", what.to_owned(), by_pod, by_handler, "default");
    if !annotations.emptydir_disks.is_empty() {
        let disk = |disk: &EmptyDirDisk| format!("{} of {} MiB", disk.volume, disk.size / MIB);
        let disks: Vec<_> = annotations.emptydir_disks.iter().map(disk).collect();
        list.add("disks in emptyDirs", disks.join(", "), "annotation virtlet.cloud/emptydir-disks".into());
    }
    let (images, mounts): (Vec<_>, Vec<_>) = said.container.mounts.iter().partition(|mount| mount.image.is_some());
    let image = |mount: &Mount| Some(format!("{} at {}", mount.image.as_ref()?.name(), mount.container_path));
    let images: Vec<_> = images.into_iter().filter_map(image).collect();
    if !images.is_empty() {
        list.add("images as disks", images.join(", "), "pod field volumes, image".into());
    }
    let with_options = said.container.mounts.iter().filter(|mount| !mount.options.is_empty());
    let options: Vec<_> = with_options.map(|mount| format!("{} at {}", mount.options, mount.container_path)).collect();
    if !options.is_empty() {
        list.add("options of mounts", options.join("; "), "pod field volumeMounts, bindMountOptions".into());
    }
    let seen = share.map_or(0, |share| share.mounts.len());
    let volumes = format!("{seen} of {} mounts by virtiofs", mounts.len());
    let by_pod = annotations.shared_fs.map(|_| "virtlet.cloud/shared-fs");
    let otherwise = "default: those of a guest that has virtlet-agent, but what is kubelet's own";
    list.said("volumes", volumes, by_pod, given(&defaults.shared_fs, "shared_fs"), otherwise);
    if annotations.chown_9p {
        let value =
            "those of the files on the node, whatever the annotation says: volumes are seen by virtiofs".to_owned();
        list.add("owners in volumes", value, "annotation VirtletChown9pfsMounts".into());
    }
}
