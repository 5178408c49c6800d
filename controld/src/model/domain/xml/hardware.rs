//! Firmware, and what devices are plugged into.

use vmspec::plan::{Chipset, DiskBus, Firmware, Hardware, MachinePlan, PassedDevice};

use super::described;
use super::extras;
use super::io_threads::Workers;
use super::places::{self, PLACES, Places};
use super::{Doc, DomainError, DomainSpec, SERIAL_SLOT, path};
use crate::model::domain::Hostdev;

/// Root ports on `pcie.0` for root disk and seed: a virtio disk behind one can be unplugged. Slots 0x03 to 0x0a are for those of
/// other disks (eight to a slot), so that no device ever moves for a guest that gets another disk.
const ROOT_PORT_SLOTS: [u8; PLACES as usize] = [0x01, 0x02];
/// Where the q35 chipset has its own SATA controller.
const SATA_SLOT: u8 = 0x1f;

/// QEMU's name of the bus that slots are counted on.
pub(super) fn root_bus(hardware: &Hardware) -> &'static str {
    match hardware.machine.chipset() {
        Chipset::Q35 => "pcie.0",
        Chipset::I440fx => "pci.0",
    }
}

/// Machine type and firmware. libvirt chooses the file of a UEFI by what it can do, and that of its first variables.
pub(super) fn boot(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let machine = [("arch", "x86_64"), ("machine", spec.plan.hardware.machine.as_str())];
    let smbios = [("mode", "sysinfo")];
    let secure_boot = match spec.plan.hardware.firmware {
        Firmware::Bios => {
            doc.nest("os", &[], |doc| {
                doc.text("type", &machine, "hvm")?;
                if spec.plan.hardware.described.use_serial {
                    doc.leaf("bios", &[("useserial", "yes")])?;
                }
                doc.leaf("smbios", &smbios)
            })?;
            false
        }
        Firmware::Uefi { secure_boot } => {
            let variables = path(&spec.uefi_variables)?;
            doc.nest("os", &[("firmware", "efi")], |doc| {
                doc.text("type", &machine, "hvm")?;
                let enabled = if secure_boot { "yes" } else { "no" };
                doc.nest("firmware", &[], |doc| {
                    doc.leaf("feature", &[("enabled", enabled), ("name", "enrolled-keys")])?;
                    doc.leaf("feature", &[("enabled", enabled), ("name", "secure-boot")])
                })?;
                doc.text("nvram", &[], variables)?;
                doc.leaf("smbios", &smbios)
            })?;
            secure_boot
        }
    };
    doc.nest("features", &[], |doc| described::features(doc, spec, secure_boot))
}

pub(super) fn tpm(doc: &mut Doc) -> Result<(), DomainError> {
    let emulated = [("type", "emulator"), ("version", "2.0")];
    doc.nest("tpm", &[("model", "tpm-crb")], |doc| doc.leaf("backend", &emulated))
}

/// Driver and settings are tapmanager's affair, or that of whoever gave the device, so libvirt manages nothing of it.
pub(super) fn hostdev(doc: &mut Doc, Hostdev { device, place, rom }: &Hostdev) -> Result<(), DomainError> {
    let device = match device {
        PassedDevice::Pci(device) => device,
        PassedDevice::Mdev(uuid) => {
            let attributes = [("mode", "subsystem"), ("type", "mdev"), ("managed", "no"), ("model", "vfio-pci")];
            return doc.nest("hostdev", &attributes, |doc| {
                doc.nest("source", &[], |doc| doc.leaf("address", &[("uuid", &uuid.to_string())]))?;
                doc.slot(place.slot)
            });
        }
    };
    let (domain, bus, device, function) = device.parts();
    let (domain, bus) = (format!("{domain:#06x}"), format!("{bus:#04x}"));
    let (device, function) = (format!("{device:#04x}"), format!("{function:#x}"));
    doc.nest("hostdev", &[("mode", "subsystem"), ("type", "pci"), ("managed", "no")], |doc| {
        doc.leaf("driver", &[("name", "vfio")])?;
        doc.nest("source", &[], |doc| {
            doc.leaf("address", &[("domain", &domain), ("bus", &bus), ("slot", &device), ("function", &function)])
        })?;
        if !rom && place.boot_order.is_none() {
            doc.leaf("rom", &[("enabled", "no")])?;
        }
        if let Some(order) = place.boot_order {
            doc.leaf("boot", &[("order", &order.saturating_add(1).to_string())])?;
        }
        if let Some(index) = place.acpi_index {
            doc.leaf("acpi", &[("index", &index.to_string())])?;
        }
        doc.slot(place.slot)
    })
}

/// What devices are plugged into, disks beside root disk and seed at their places among them.
pub(super) fn controllers(doc: &mut Doc, plan: &MachinePlan, others: &Places) -> Result<(), DomainError> {
    let hardware = &plan.hardware;
    extras::usb(doc, hardware)?;
    let chipset = hardware.machine.chipset();
    match chipset {
        Chipset::Q35 => {
            doc.leaf("controller", &[("type", "pci"), ("index", "0"), ("model", "pcie-root")])?;
            for (bus, slot) in (1_u8..).zip(ROOT_PORT_SLOTS) {
                root_port(doc, bus, slot << 3, |doc| doc.pci(0, slot))?;
            }
            for (nth, bus) in others.ports() {
                let (slot, function) = places::function_of(chipset, nth);
                root_port(doc, bus, slot << 3 | function, |doc| places::on_root_bus(doc, chipset, nth))?;
            }
        }
        Chipset::I440fx => doc.leaf("controller", &[("type", "pci"), ("index", "0"), ("model", "pci-root")])?,
    }
    doc.nest("controller", &[("type", "virtio-serial"), ("index", "0")], |doc| doc.pci(0, SERIAL_SLOT))?;
    let sata = [("type", "sata"), ("index", "0")];
    match (chipset, hardware.disk_bus) {
        (Chipset::Q35, _) => doc.nest("controller", &sata, |doc| doc.pci_function(0, SATA_SLOT, 2))?,
        (Chipset::I440fx, DiskBus::Sata) => {
            doc.nest("controller", &sata, |doc| places::in_own_slot(doc, chipset, 0))?
        }
        (Chipset::I440fx, _) => {}
    }
    if hardware.disk_bus == DiskBus::Scsi {
        let scsi = [("type", "scsi"), ("index", "0"), ("model", "virtio-scsi")];
        doc.nest("controller", &scsi, |doc| {
            Workers::of(plan, 0).on_controller(doc)?;
            places::in_own_slot(doc, chipset, 0)
        })?;
    }
    others.controllers(doc, chipset, Workers::of(plan, 0))
}

/// `port` is unique among the root ports of a machine.
fn root_port(
    doc: &mut Doc,
    bus: u8,
    port: u8,
    place: impl FnOnce(&mut Doc) -> Result<(), DomainError>,
) -> Result<(), DomainError> {
    let (index, port) = (bus.to_string(), format!("{port:#x}"));
    let attributes = [("type", "pci"), ("index", &*index), ("model", "pcie-root-port")];
    doc.nest("controller", &attributes, |doc| {
        doc.leaf("target", &[("chassis", &index), ("port", &port)])?;
        place(doc)
    })
}
