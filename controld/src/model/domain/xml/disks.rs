//! Disks, and where they are plugged in.

use super::{Doc, DomainError, DomainSpec, path};
use crate::model::plan::{Chipset, DiskBus, Hardware, Layer};

/// Of disks, each virtio disk in one. A controller of disks is in the first.
pub(super) const PLACES: usize = 2;
/// On `pci.0`: slot 1 is the chipset's own, and 2 libvirt keeps for a graphics card.
const PCI_SLOTS: [u8; PLACES] = [0x03, 0x04];

pub(super) fn root(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let overlay = path(&spec.plan.root.overlay)?;
    doc.nest("disk", &[("type", "file"), ("device", "disk")], |doc| {
        // A write without room pauses the guest, see `container::pause`; other errors are the guest's to hear, as of a disk.
        let errors = [("error_policy", "enospace"), ("rerror_policy", "report")];
        let driver = [("name", "qemu"), ("type", "qcow2"), errors[0], errors[1], ("discard", "unmap")];
        doc.leaf("driver", &driver)?;
        doc.unlabelled_source(overlay)?;
        chain(doc, &spec.plan.root.images)?;
        target(doc, spec.plan.hardware.disk_bus, 0)?;
        doc.text("serial", &[], "root")?;
        doc.leaf("boot", &[("order", "1")])?;
        address(doc, &spec.plan.hardware, 0)
    })
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

/// The guest's name of a disk, for libvirt; a guest has its own.
fn target(doc: &mut Doc, bus: DiskBus, at: u8) -> Result<(), DomainError> {
    let prefix = if bus == DiskBus::Virtio { "vd" } else { "sd" };
    let dev = format!("{prefix}{}", char::from(b'a' + at));
    doc.leaf("target", &[("dev", &dev), ("bus", bus.name())])
}

fn address(doc: &mut Doc, hardware: &Hardware, at: u8) -> Result<(), DomainError> {
    let number = at.to_string();
    let (target, unit) = match hardware.disk_bus {
        DiskBus::Virtio => return place(doc, hardware.machine.chipset(), at),
        DiskBus::Scsi => (number.as_str(), "0"),
        DiskBus::Sata => ("0", number.as_str()),
    };
    let drive = [("type", "drive"), ("controller", "0"), ("bus", "0"), ("target", target), ("unit", unit)];
    doc.leaf("address", &drive)
}

/// One of the places that are left to disks.
pub(super) fn place(doc: &mut Doc, chipset: Chipset, at: u8) -> Result<(), DomainError> {
    match chipset {
        // Behind a root port.
        Chipset::Q35 => doc.pci(at + 1, 0),
        Chipset::I440fx => doc.pci(0, PCI_SLOTS.get(usize::from(at)).copied().unwrap_or_default()),
    }
}
