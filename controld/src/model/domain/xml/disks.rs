//! Disks, and where they are plugged in.

use vmspec::plan::{BlockDevice, Chipset, Disk, DiskBus, DiskSource, Hardware, Layer, MountedDevice, RbdImage};

use super::{Doc, DomainError, DomainSpec, path};
use crate::model::domain::{AsyncIo, DiskNow, DiskSecret, RootNow, Sectors, Slice};

/// Of root disk and seed, each virtio disk in one. A controller of disks is in the first.
pub(super) const PLACES: u8 = 2;
/// On `pci.0`: slot 1 is the chipset's own, and 2 libvirt keeps for a graphics card.
const PCI_SLOTS: [u8; PLACES as usize] = [0x03, 0x04];
/// Devices in a slot.
const FUNCTIONS: u8 = 8;
/// Where the functions begin that are for what other disks need: root ports, SATA controllers, or on `pci.0` virtio disks.
const FIRST_OF_OTHERS: [(Chipset, u8); 2] = [(Chipset::Q35, 0x03), (Chipset::I440fx, 0x05)];
/// Bytes of the sectors of images.
const IMAGE_SECTOR: u32 = 512;
/// Disks of a SATA controller.
const SATA_PORTS: u8 = 6;

pub(super) fn root(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    if let (Some(root), Some(now)) = (&spec.plan.root.persistent, spec.root) {
        return persistent_root(doc, &spec.plan.hardware, &root.device, now);
    }
    let overlay = path(&spec.plan.root.overlay)?;
    doc.nest("disk", &[("type", "file"), ("device", "disk")], |doc| {
        // A write without room pauses the guest, see `container::machine`; other errors are the guest's to hear, as of a disk.
        let errors = [("error_policy", "enospace"), ("rerror_policy", "report")];
        let driver = [("name", "qemu"), ("type", "qcow2"), errors[0], errors[1], ("discard", "unmap")];
        doc.leaf("driver", &driver)?;
        doc.unlabelled_source(overlay)?;
        chain(doc, &spec.plan.root.images)?;
        target(doc, &spec.plan.hardware, 0)?;
        doc.text("serial", &[], "root")?;
        doc.leaf("boot", &[("order", "1")])?;
        address(doc, &spec.plan.hardware, 0)
    })
}

/// A block volume as it is, or a copy of an image behind a header. An image's partitions and file systems are told in its own sectors: its
/// guest has those whatever the device's are, and QEMU reads and writes whole ones of the device.
fn persistent_root(doc: &mut Doc, hardware: &Hardware, device: &BlockDevice, now: RootNow) -> Result<(), DomainError> {
    let copy = (now.slice.offset > 0).then_some(now.slice);
    let of_image =
        |sectors: Sectors| if copy.is_some() { Sectors { logical: IMAGE_SECTOR, ..sectors } } else { sectors };
    let disk = DiskNow { sectors: now.disk.sectors.map(of_image), ..now.disk };
    doc.nest("disk", &[("type", "block"), ("device", "disk")], |doc| {
        on_device(doc, device, disk, copy)?;
        target(doc, hardware, 0)?;
        doc.text("serial", &[], "root")?;
        doc.leaf("boot", &[("order", "1")])?;
        address(doc, hardware, 0)
    })
}

pub(super) fn seed(doc: &mut Doc, hardware: &Hardware, seed: &str) -> Result<(), DomainError> {
    // QEMU has no SATA disk that cannot be written to.
    let device = if hardware.disk_bus == DiskBus::Sata { "cdrom" } else { "disk" };
    doc.nest("disk", &[("type", "file"), ("device", device)], |doc| {
        doc.leaf("driver", &[("name", "qemu"), ("type", "raw")])?;
        doc.unlabelled_source(seed)?;
        target(doc, hardware, 1)?;
        doc.leaf("readonly", &[])?;
        doc.text("serial", &[], "seed")?;
        address(doc, hardware, 1)
    })
}

/// The images below a disk, each within the one above it. QEMU is told each of them with its format, and follows no name that
/// is written in one. The end is said too: without it libvirt would look into the last one.
fn chain(doc: &mut Doc, bases: &[Layer]) -> Result<(), DomainError> {
    let Some((base, below)) = bases.split_first() else { return doc.leaf("backingStore", &[]) };
    let file = path(&base.path)?;
    doc.nest("backingStore", &[("type", "file")], |doc| {
        doc.leaf("format", &[("type", &base.format)])?;
        doc.unlabelled_source(file)?;
        chain(doc, below)
    })
}

/// A disk beside root disk and seed, the `nth` of them.
pub(super) fn other(doc: &mut Doc, spec: &DomainSpec, nth: u8, disk: &Disk, now: DiskNow) -> Result<(), DomainError> {
    let hardware = &spec.plan.hardware;
    match &disk.source {
        DiskSource::Rbd(image) => doc.nest("disk", &[("type", "network"), ("device", "disk")], |doc| {
            on_cluster(doc, image, &DiskSecret::of(spec.instance, spec.plan.id, &disk.serial))?;
            plugged(doc, hardware, nth, disk, false)
        }),
        DiskSource::Block(device) | DiskSource::Mounted(MountedDevice { device, .. }) => {
            doc.nest("disk", &[("type", "block"), ("device", "disk")], |doc| {
                on_device(doc, device, now, None)?;
                plugged(doc, hardware, nth, disk, hardware.shared_disks)
            })
        }
        DiskSource::File(file) => doc.nest("disk", &[("type", "file"), ("device", "disk")], |doc| {
            // It may find no room, as the root disk.
            driver(doc, now, "enospace")?;
            // libvirt has the descriptor; the name is for people and for AppArmor.
            let (file, group) = (file.path(), group_of(disk));
            let source = [("file", path(&file)?), ("fdgroup", &*group)];
            doc.nest("source", &source, |doc| doc.leaf("seclabel", &[("model", "dac"), ("relabel", "no")]))?;
            below(doc, now)?;
            plugged(doc, hardware, nth, disk, false)
        }),
        DiskSource::Image(image) => doc.nest("disk", &[("type", "file"), ("device", "disk")], |doc| {
            let driver = [("name", "qemu"), ("type", &*image.file.format), ("rerror_policy", "report")];
            doc.leaf("driver", &driver)?;
            doc.unlabelled_source(path(&image.file.path)?)?;
            chain(doc, &image.below)?;
            plugged(doc, hardware, nth, disk, false)
        }),
    }
}

/// An image of a Ceph cluster. QEMU's own library keeps what is written until the guest flushes it, as a disk does.
fn on_cluster(doc: &mut Doc, image: &RbdImage, secret: &DiskSecret) -> Result<(), DomainError> {
    let errors = [("error_policy", "report"), ("rerror_policy", "report")];
    let driver =
        [("name", "qemu"), ("type", "raw"), ("cache", "writeback"), errors[0], errors[1], ("discard", "unmap")];
    doc.leaf("driver", &driver)?;
    if let Some(user) = &image.user {
        doc.nest("auth", &[("username", user)], |doc| {
            doc.leaf("secret", &[("type", "ceph"), ("uuid", &secret.id.to_string())])
        })?;
    }
    doc.nest("source", &[("protocol", "rbd"), ("name", &image.name())], |doc| {
        let mut hosts = image.monitors.iter();
        hosts.try_for_each(|host| doc.leaf("host", &[("name", &host.host), ("port", &host.port.to_string())]))
    })
}

/// Where a disk beside root disk and seed is plugged in, and whether other machines may write to it. Those have `cache=none`, as
/// libvirt wants it of them: devices always have, see [`driver`].
fn plugged(doc: &mut Doc, hardware: &Hardware, nth: u8, disk: &Disk, is_shared: bool) -> Result<(), DomainError> {
    target(doc, hardware, PLACES + nth)?;
    if is_shared {
        doc.leaf("shareable", &[])?;
    }
    if disk.read_only {
        doc.leaf("readonly", &[])?;
    }
    doc.text("serial", &[], disk.serial.as_str())?;
    address(doc, hardware, PLACES + nth)
}

/// libvirt's name of a disk's descriptor, which it has to be given before each start.
#[must_use]
pub fn group_of(disk: &Disk) -> String {
    format!("disk-{}", disk.serial)
}

/// What a disk on a device is made of, up to where it is plugged in.
fn on_device(doc: &mut Doc, device: &BlockDevice, now: DiskNow, slice: Option<Slice>) -> Result<(), DomainError> {
    // What goes wrong on a device is the guest's to hear, as of a disk of its own.
    driver(doc, now, "report")?;
    let source = [("dev", path(&device.node)?)];
    match slice {
        None => doc.leaf("source", &source)?,
        Some(Slice { offset, size }) => doc.nest("source", &source, |doc| {
            let (offset, size) = (offset.to_string(), size.to_string());
            let slice = [("type", "storage"), ("offset", &*offset), ("size", &*size)];
            doc.nest("slices", &[], |doc| doc.leaf("slice", &slice))
        })?,
    }
    below(doc, now)
}

/// That nothing is below a disk, and the size of its sectors.
fn below(doc: &mut Doc, now: DiskNow) -> Result<(), DomainError> {
    doc.leaf("backingStore", &[])?;
    if let Some(sectors) = now.sectors {
        let (logical, physical) = (sectors.logical.to_string(), sectors.physical.to_string());
        doc.leaf("blockio", &[("logical_block_size", &logical), ("physical_block_size", &physical)])?;
    }
    Ok(())
}

fn driver(doc: &mut Doc, now: DiskNow, on_write: &str) -> Result<(), DomainError> {
    let (io, cache) = match now.io {
        AsyncIo::IoUring => ("io_uring", "none"),
        AsyncIo::Native => ("native", "none"),
        AsyncIo::Threads => ("threads", "writeback"),
    };
    let errors = [("error_policy", on_write), ("rerror_policy", "report")];
    let driver = [("name", "qemu"), ("type", "raw"), ("cache", cache), errors[0], errors[1], ("io", io)];
    doc.leaf("driver", &[&driver[..], &[("discard", "unmap")]].concat())
}

/// libvirt's name of the root disk.
#[must_use]
pub fn target_of_root(hardware: &Hardware) -> String {
    target_at(hardware, 0)
}

/// libvirt's name of the `nth` disk beside root disk and seed.
#[must_use]
pub fn target_of(hardware: &Hardware, nth: u8) -> String {
    target_at(hardware, PLACES.saturating_add(nth))
}

/// The guest's name of a disk, for libvirt; a guest has its own.
fn target(doc: &mut Doc, hardware: &Hardware, at: u8) -> Result<(), DomainError> {
    let dev = target_at(hardware, at);
    doc.leaf("target", &[("dev", &dev), ("bus", hardware.disk_bus.name())])
}

/// `vda` to `vdz`, then `vdaa`.
fn target_at(hardware: &Hardware, at: u8) -> String {
    const LETTERS: u8 = 26;
    let prefix = if hardware.disk_bus == DiskBus::Virtio { "vd" } else { "sd" };
    let first = (at / LETTERS).checked_sub(1).map(|first| char::from(b'a' + first % LETTERS));
    let last = char::from(b'a' + at % LETTERS);
    prefix.chars().chain(first).chain([last]).collect()
}

fn address(doc: &mut Doc, hardware: &Hardware, at: u8) -> Result<(), DomainError> {
    let (controller, target, unit) = match hardware.disk_bus {
        DiskBus::Virtio => return place(doc, hardware.machine.chipset(), at),
        DiskBus::Scsi => (0, at, 0),
        DiskBus::Sata => (at / SATA_PORTS, 0, at % SATA_PORTS),
    };
    let (controller, target, unit) = (controller.to_string(), target.to_string(), unit.to_string());
    let drive = [("type", "drive"), ("controller", &*controller), ("bus", "0"), ("target", &target), ("unit", &unit)];
    doc.leaf("address", &drive)
}

/// SATA controllers beside the first one that so many disks beside root disk and seed need.
pub(super) fn more_sata(others: u8) -> u8 {
    (PLACES + others).div_ceil(SATA_PORTS) - 1
}

/// A virtio disk's place.
pub(super) fn place(doc: &mut Doc, chipset: Chipset, at: u8) -> Result<(), DomainError> {
    match (chipset, PCI_SLOTS.get(usize::from(at))) {
        // Behind a root port.
        (Chipset::Q35, _) => doc.pci(at + 1, 0),
        (Chipset::I440fx, Some(slot)) => doc.pci(0, *slot),
        (Chipset::I440fx, None) => place_of_other(doc, chipset, at - PLACES),
    }
}

/// Slot and function of the `nth` device that other disks need on the root bus.
pub(super) fn function_of(chipset: Chipset, nth: u8) -> (u8, u8) {
    let first = FIRST_OF_OTHERS.into_iter().find(|(of, _)| *of == chipset).map_or(0, |(_, first)| first);
    (first + nth / FUNCTIONS, nth % FUNCTIONS)
}

/// That as an address. A guest looks for further functions of a slot if the first one says that there are.
pub(super) fn place_of_other(doc: &mut Doc, chipset: Chipset, nth: u8) -> Result<(), DomainError> {
    let (slot, function) = function_of(chipset, nth);
    doc.pci_of_several(slot, function)
}
