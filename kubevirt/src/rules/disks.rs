//! Disks, and the order in which a firmware tries disks and NICs.

use std::collections::{BTreeMap, BTreeSet};

use proto::vm::BlockSize;

use crate::Path;
use crate::finding::Findings;
use crate::types::{Disk, Spec};

pub(super) fn check(spec: &Spec, at: &Path, found: &mut Findings) {
    let disks = &spec.domain.devices.disks;
    let mut names = BTreeSet::new();
    for (nth, disk) in disks.iter().enumerate() {
        let at = at.item(nth);
        let at_name = at.field("name");
        if !names.insert(&disk.name) {
            found.error(&at_name, format!("\"{}\" is the name of another disk", disk.name));
        } else if !spec.volumes.iter().any(|volume| volume.name == disk.name) {
            found.error(&at_name, format!("\"{}\" not found in spec.volumes", disk.name));
        }
        target(disk, &at, found);
        if let Some(size) = &disk.block_size {
            block_size(size, &at.field("blockSize"), found);
        }
    }
    order(spec, at, found);
    addresses(spec, at, found);
}

fn target(disk: &Disk, at: &Path, found: &mut Findings) {
    found.unless(disk.disk.is_none() || disk.cdrom.is_none(), at, "is both disk and cdrom; write one of them");
    if disk.bus() == Some("usb") {
        found.error(&at.field(kind_of(disk)).field("bus"), "not supported yet: use virtio, scsi or sata");
    }
    if let Some(cdrom) = &disk.cdrom {
        let at = at.field("cdrom");
        found.unless(cdrom.bus.as_deref() != Some("virtio"), &at.field("bus"), "a CD is on sata or scsi");
        found.unless(cdrom.readonly != Some(false), &at.field("readonly"), "a CD is read-only");
    }
    if let Some(disk) = &disk.disk {
        let at = at.field("disk");
        let is_sata = disk.bus.as_deref() == Some("sata");
        found.unless(
            !(is_sata && disk.readonly),
            &at.field("readonly"),
            "no disk on sata is read-only; use virtio or scsi",
        );
        let is_virtio = disk.bus.as_deref().is_none_or(|bus| bus == "virtio");
        found.unless(disk.pci_address.is_none() || is_virtio, &at.field("pciAddress"), "is for disks on virtio");
    }
}

pub(super) fn kind_of(disk: &Disk) -> &'static str {
    if disk.cdrom.is_some() { "cdrom" } else { "disk" }
}

fn block_size(size: &BlockSize, at: &Path, found: &mut Findings) {
    found.unless(size.custom.is_some() != size.match_volume.is_some(), at, "needs one of custom and matchVolume");
    let Some(custom) = size.custom else { return };
    let at = at.field("custom");
    for (bytes, name) in [(custom.logical, "logical"), (custom.physical, "physical")] {
        found.unless(bytes.is_power_of_two(), &at.field(name), format!("{bytes} is not a power of two"));
    }
    found.unless(custom.logical <= custom.physical, &at.field("logical"), "is more than physical");
    if let Some(bytes) = custom.discard_granularity {
        let is_fine = bytes % custom.logical.max(1) == 0;
        found.unless(is_fine, &at.field("discardGranularity"), "is not a multiple of logical");
    }
}

/// No two have the same place.
fn order(spec: &Spec, at: &Path, found: &mut Findings) {
    let devices = &spec.domain.devices;
    let interfaces = Path::of(at.as_str().trim_end_matches("disks")).as_str().to_owned();
    let interfaces = Path::of(&format!("{interfaces}interfaces"));
    let disks = devices.disks.iter().enumerate().map(|(nth, disk)| (disk.boot_order, at.item(nth)));
    let nics = devices.interfaces.iter().enumerate().map(|(nth, nic)| (nic.boot_order, interfaces.item(nth)));
    let mut places: BTreeMap<u32, Path> = BTreeMap::new();
    for (order, at) in disks.chain(nics) {
        let Some(order) = order else { continue };
        if let Some(other) = places.get(&order) {
            found.error(&at.field("bootOrder"), format!("{order} is that of {other}, too"));
        } else {
            places.insert(order, at);
        }
    }
}

fn addresses(spec: &Spec, at: &Path, found: &mut Findings) {
    let devices = &spec.domain.devices;
    let disks = devices.disks.iter().filter_map(|disk| disk.disk.as_ref()?.pci_address.as_ref());
    let nics = devices.interfaces.iter().filter_map(|nic| nic.pci_address.as_ref());
    let mut taken = BTreeSet::new();
    for address in disks.chain(nics) {
        found.unless(taken.insert(address.to_lowercase()), at, format!("two devices have the pciAddress {address}"));
    }
}
