//! Disks.

use std::path::Path;

use vmspec::plan::{
    Below, BlockDevice, DescribedDisk, Disk, DiskBus, DiskSource, Hardware, Layer, MountedDevice, OverlayDisk,
    RbdImage, VolumeDisk,
};

use super::disk_driver::{Driver, boot, sectors};
use super::io_threads::Workers;
use super::places::{PLACES, Place, of_first, target};
use super::{Doc, DomainError, DomainSpec, path};
use crate::model::domain::{DiskNow, DiskSecret, RootNow, Sectors, Slice};

/// libvirt's name of the root disk's descriptor, if the root disk is a file that libvirt is given. No other disk has this serial.
pub const GROUP_OF_ROOT: &str = "disk-root";
/// Bytes of the sectors of images.
const IMAGE_SECTOR: u32 = 512;

pub(super) fn root(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let hardware = &spec.plan.hardware;
    let said = &hardware.described.root;
    if let (Some(root), Some(now)) = (&spec.plan.root.persistent, spec.root) {
        return persistent_root(doc, spec, &root.device, now);
    }
    if let (Some(volume), Some(RootNow { disk: now, .. })) = (&spec.plan.root.volume, spec.root) {
        return doc.nest("disk", &[("type", "file"), ("device", "disk")], |doc| {
            let how = How { now, said, workers: workers(spec, hardware.disk_bus, 0) };
            of_volume(doc, volume, GROUP_OF_ROOT, how)?;
            plugged_root(doc, hardware)
        });
    }
    let overlay = path(&spec.plan.root.overlay)?;
    doc.nest("disk", &[("type", "file"), ("device", "disk")], |doc| {
        // A write without room pauses the guest, see `container::machine`; other errors are the guest's to hear, as of a disk.
        let errors = (Some("enospace"), Some("report"));
        let driver =
            Driver { format: "qcow2", cache: None, io: None, on_write: errors.0, on_read: errors.1, discards: true };
        driver.write(doc, said, workers(spec, hardware.disk_bus, 0))?;
        doc.unlabelled_source(overlay)?;
        chain(doc, &spec.plan.root.images)?;
        sectors(doc, said, None)?;
        plugged_root(doc, hardware)
    })
}

/// A block volume as it is, or a copy of an image behind a header. An image's partitions and file systems are told in its own sectors: its
/// guest has those whatever the device's are, and QEMU reads and writes whole ones of the device.
fn persistent_root(doc: &mut Doc, spec: &DomainSpec, device: &BlockDevice, now: RootNow) -> Result<(), DomainError> {
    let hardware = &spec.plan.hardware;
    let copy = (now.slice.offset > 0).then_some(now.slice);
    let of_image =
        |sectors: Sectors| if copy.is_some() { Sectors { logical: IMAGE_SECTOR, ..sectors } } else { sectors };
    let disk = DiskNow { sectors: now.disk.sectors.map(of_image), ..now.disk };
    doc.nest("disk", &[("type", "block"), ("device", "disk")], |doc| {
        let how = How { now: disk, said: &hardware.described.root, workers: workers(spec, hardware.disk_bus, 0) };
        on_device(doc, device, how, copy)?;
        plugged_root(doc, hardware)
    })
}

fn plugged_root(doc: &mut Doc, hardware: &Hardware) -> Result<(), DomainError> {
    let said = &hardware.described.root;
    target(doc, hardware.disk_bus, 0)?;
    doc.text("serial", &[], said.serial.as_ref().map_or("root", |serial| serial.as_str()))?;
    match said.boot_order {
        Some(_) => boot(doc, said)?,
        None => doc.leaf("boot", &[("order", "1")])?,
    }
    of_first(doc, hardware, 0)
}

pub(super) fn seed(doc: &mut Doc, hardware: &Hardware, seed: &str) -> Result<(), DomainError> {
    // QEMU has no SATA disk that cannot be written to.
    let device = if hardware.disk_bus == DiskBus::Sata { "cdrom" } else { "disk" };
    doc.nest("disk", &[("type", "file"), ("device", device)], |doc| {
        doc.leaf("driver", &[("name", "qemu"), ("type", "raw")])?;
        doc.unlabelled_source(seed)?;
        target(doc, hardware.disk_bus, 1)?;
        doc.leaf("readonly", &[])?;
        doc.text("serial", &[], "seed")?;
        of_first(doc, hardware, 1)
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

/// The workers of the `nth` disk, if it is one on virtio.
fn workers(spec: &DomainSpec, bus: DiskBus, nth: u8) -> Option<Workers> {
    (bus == DiskBus::Virtio).then(|| Workers::of(&spec.plan, nth))
}

/// How a disk on a device or in a volume is used.
struct How<'a> {
    now: DiskNow,
    said: &'a DescribedDisk,
    workers: Option<Workers>,
}

/// A disk beside root disk and seed.
pub(super) struct Other<'a> {
    pub(super) nth: u8,
    pub(super) disk: &'a Disk,
    pub(super) now: DiskNow,
    pub(super) place: Place,
}

pub(super) fn other(doc: &mut Doc, spec: &DomainSpec, other: &Other<'_>) -> Result<(), DomainError> {
    let (hardware, Other { disk, now, .. }) = (&spec.plan.hardware, other);
    let unsaid = DescribedDisk::default();
    let said = hardware.said_of(&disk.name).unwrap_or(&unsaid);
    let device = if said.is_cd { "cdrom" } else { "disk" };
    let kind = |of: &'static str| [("type", of), ("device", device)];
    let workers = workers(spec, hardware.bus_of(&disk.name), other.nth.saturating_add(1));
    match &disk.source {
        DiskSource::Rbd(image) => doc.nest("disk", &kind("network"), |doc| {
            Driver { cache: Some("writeback"), io: None, ..Driver::raw(*now, "report") }.write(doc, said, workers)?;
            on_cluster(doc, image, &DiskSecret::of(spec.instance, spec.plan.id, &disk.serial))?;
            sectors(doc, said, None)?;
            plugged(doc, hardware, other, said, false)
        }),
        DiskSource::Block(device) | DiskSource::Mounted(MountedDevice { device, .. }) => {
            doc.nest("disk", &kind("block"), |doc| {
                on_device(doc, device, How { now: *now, said, workers }, None)?;
                plugged(doc, hardware, other, said, hardware.shared_disks)
            })
        }
        DiskSource::File(file) => doc.nest("disk", &kind("file"), |doc| {
            // It may find no room, as the root disk.
            Driver::raw(*now, "enospace").write(doc, said, workers)?;
            descriptor(doc, &file.path(), &group_of(disk))?;
            below(doc, said, *now)?;
            plugged(doc, hardware, other, said, false)
        }),
        DiskSource::Volume(volume) => doc.nest("disk", &kind("file"), |doc| {
            of_volume(doc, volume, &group_of(disk), How { now: *now, said, workers })?;
            plugged(doc, hardware, other, said, false)
        }),
        DiskSource::Files(_) => doc.nest("disk", &kind("file"), |doc| {
            let file = spec.files.get(&disk.name).ok_or_else(|| DomainError::Files(disk.name.clone()))?;
            let on_read = Some("report");
            let driver = Driver { format: "raw", cache: None, io: None, on_write: None, on_read, discards: false };
            // It is in memory, of which kernels before 6.6 read nothing past their cache, and nothing is to be gained by it.
            let cached = DescribedDisk { cache: None, io: None, ..said.clone() };
            driver.write(doc, &cached, workers)?;
            doc.unlabelled_source(path(file)?)?;
            sectors(doc, said, None)?;
            plugged(doc, hardware, other, said, false)
        }),
        DiskSource::Image(image) => doc.nest("disk", &kind("file"), |doc| {
            let on_read = Some("report");
            let format = &*image.file.format;
            let driver = Driver { format, cache: None, io: None, on_write: None, on_read, discards: false };
            driver.write(doc, said, workers)?;
            doc.unlabelled_source(path(&image.file.path)?)?;
            chain(doc, &image.below)?;
            sectors(doc, said, None)?;
            plugged(doc, hardware, other, said, false)
        }),
    }
}

/// An image of a Ceph cluster. QEMU's own library keeps what is written until the guest flushes it, as a disk does.
fn on_cluster(doc: &mut Doc, image: &RbdImage, secret: &DiskSecret) -> Result<(), DomainError> {
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
/// libvirt wants it of them: devices always have unless they are described otherwise, see [`Driver::raw`].
fn plugged(
    doc: &mut Doc,
    hardware: &Hardware,
    Other { nth, disk, place, .. }: &Other<'_>,
    said: &DescribedDisk,
    is_shared: bool,
) -> Result<(), DomainError> {
    target(doc, hardware.bus_of(&disk.name), PLACES + nth)?;
    if is_shared {
        doc.leaf("shareable", &[])?;
    }
    if disk.read_only {
        doc.leaf("readonly", &[])?;
    }
    doc.text("serial", &[], disk.serial.as_str())?;
    boot(doc, said)?;
    place.address(doc, hardware.machine.chipset())
}

/// libvirt's name of a disk's descriptor, which it has to be given before each start.
#[must_use]
pub fn group_of(disk: &Disk) -> String {
    format!("disk-{}", disk.serial)
}

/// What a disk in a volume is made of, up to where it is plugged in.
fn of_volume(
    doc: &mut Doc,
    volume: &VolumeDisk,
    group: &str,
    How { now, said, workers }: How<'_>,
) -> Result<(), DomainError> {
    match volume {
        VolumeDisk::File(file) => {
            // It may find no room, as the root disk, or that a quota is used up (`EDQUOT`), which is just another error to QEMU. So
            // any error of a write pauses the guest, as with KubeVirt.
            Driver { format: file.format.word(), ..Driver::raw(now, "stop") }.write(doc, said, workers)?;
            descriptor(doc, &file.path(), group)?;
            below(doc, said, now)
        }
        VolumeDisk::Overlay(OverlayDisk { overlay, below }) => {
            let errors = (Some("enospace"), Some("report"));
            let driver = Driver {
                format: "qcow2",
                cache: None,
                io: None,
                on_write: errors.0,
                on_read: errors.1,
                discards: true,
            };
            driver.write(doc, said, workers)?;
            match below {
                // libvirt gives a device below to QEMU's user only if it may do so with the layer, which is that user's already.
                Below::Block(_) => doc.leaf("source", &[("file", path(overlay)?)])?,
                Below::File(_) => doc.unlabelled_source(path(overlay)?)?,
            }
            lower(doc, below, group)?;
            sectors(doc, said, now.sectors)
        }
    }
}

/// What is below a layer, to which nobody writes, and that nothing is below that.
fn lower(doc: &mut Doc, below: &Below, group: &str) -> Result<(), DomainError> {
    let kind = match below {
        Below::Block(_) => "block",
        Below::File(_) => "file",
    };
    doc.nest("backingStore", &[("type", kind)], |doc| {
        match below {
            Below::Block(device) => {
                doc.leaf("format", &[("type", "raw")])?;
                doc.leaf("source", &[("dev", path(&device.node)?)])?;
            }
            Below::File(file) => {
                doc.leaf("format", &[("type", file.format.word())])?;
                descriptor(doc, &file.path(), group)?;
            }
        }
        doc.leaf("backingStore", &[])
    })
}

/// A file of which libvirt has the descriptor by the name `group`; its own name is for people and for AppArmor.
fn descriptor(doc: &mut Doc, file: &Path, group: &str) -> Result<(), DomainError> {
    let source = [("file", path(file)?), ("fdgroup", group)];
    doc.nest("source", &source, |doc| doc.leaf("seclabel", &[("model", "dac"), ("relabel", "no")]))
}

/// What a disk on a device is made of, up to where it is plugged in.
fn on_device(
    doc: &mut Doc,
    device: &BlockDevice,
    How { now, said, workers }: How<'_>,
    slice: Option<Slice>,
) -> Result<(), DomainError> {
    // What goes wrong on a device is the guest's to hear, as of a disk of its own.
    Driver::raw(now, "report").write(doc, said, workers)?;
    let source = [("dev", path(&device.node)?)];
    match slice {
        None => doc.leaf("source", &source)?,
        Some(Slice { offset, size }) => doc.nest("source", &source, |doc| {
            let (offset, size) = (offset.to_string(), size.to_string());
            let slice = [("type", "storage"), ("offset", &*offset), ("size", &*size)];
            doc.nest("slices", &[], |doc| doc.leaf("slice", &slice))
        })?,
    }
    below(doc, said, now)
}

/// That nothing is below a disk, and the size of its sectors.
fn below(doc: &mut Doc, said: &DescribedDisk, now: DiskNow) -> Result<(), DomainError> {
    doc.leaf("backingStore", &[])?;
    sectors(doc, said, now.sectors)
}
