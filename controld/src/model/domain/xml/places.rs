//! Where disks are plugged in, and what that takes.
//!
//! Root disk and seed are the first two on the bus of all disks. Of the others each has the next place of its own bus; a bus that only some
//! of them are on has its controller where the first of those would be. So no device moves for a guest that gets another disk.

use vmspec::plan::{Chipset, Disk, DiskBus, Hardware};

use super::io_threads::Workers;
use super::{Doc, DomainError};

/// Of root disk and seed, each virtio disk in one. A controller of disks is in the first.
pub(super) const PLACES: u8 = 2;
/// On `pci.0`: slot 1 is the chipset's own, and 2 libvirt keeps for a graphics card.
const PCI_SLOTS: [u8; PLACES as usize] = [0x03, 0x04];
/// Devices in a slot.
const FUNCTIONS: u8 = 8;
/// Where the functions begin that are for what other disks need: root ports, controllers, or on `pci.0` virtio disks.
const FIRST_OF_OTHERS: [(Chipset, u8); 2] = [(Chipset::Q35, 0x03), (Chipset::I440fx, 0x05)];
/// Disks of a SATA controller.
const SATA_PORTS: u8 = 6;

/// Of disks beside root disk and seed.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// One for each of them.
    pub(super) of_disks: Vec<Place>,
    /// What they take, in the order of its places on the root bus.
    pub(super) plugs: Vec<Plug>,
}

/// Where a disk is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Behind a root port, which is this PCI bus.
    Port(u8),
    /// A slot of the root bus of its own.
    Slot(u8),
    /// That many devices behind the first one on the root bus that is for such.
    Function(u8),
    /// On a controller.
    Drive { controller: u8, target: u8, unit: u8 },
}

/// What disks are plugged into.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plug {
    /// A root port, with its place, and the PCI bus that it is.
    Port {
        nth: u8,
        bus: u8,
    },
    /// Controllers, each with its place.
    Sata {
        nth: u8,
        index: u8,
    },
    Scsi {
        nth: u8,
    },
}

impl Places {
    pub(super) fn of(hardware: &Hardware, disks: &[Disk]) -> Self {
        let chipset = hardware.machine.chipset();
        let begins_at = |bus: DiskBus| if hardware.disk_bus == bus { PLACES } else { 0 };
        let (mut ports, mut scsi, mut sata) = (0, begins_at(DiskBus::Scsi), begins_at(DiskBus::Sata));
        let mut nth = 0..;
        let mut next = || nth.next().unwrap_or(u8::MAX);
        let mut all = Self::default();
        for disk in disks {
            if let Some(slot) = hardware.said_of(&disk.name).and_then(|said| said.slot) {
                all.of_disks.push(Place::Slot(slot));
                continue;
            }
            let place = match (hardware.bus_of(&disk.name), chipset) {
                (DiskBus::Virtio, Chipset::Q35) => {
                    let bus = PLACES + 1 + ports;
                    ports += 1;
                    all.plugs.push(Plug::Port { nth: next(), bus });
                    Place::Port(bus)
                }
                (DiskBus::Virtio, Chipset::I440fx) => Place::Function(next()),
                (DiskBus::Scsi, _) => {
                    if scsi == 0 {
                        all.plugs.push(Plug::Scsi { nth: next() });
                    }
                    scsi += 1;
                    Place::Drive { controller: 0, target: scsi - 1, unit: 0 }
                }
                (DiskBus::Sata, _) => {
                    let (index, unit) = (sata / SATA_PORTS, sata % SATA_PORTS);
                    // The first one is the chipset's own.
                    if unit == 0 && (index > 0 || chipset == Chipset::I440fx) {
                        all.plugs.push(Plug::Sata { nth: next(), index });
                    }
                    sata += 1;
                    Place::Drive { controller: index, target: 0, unit }
                }
            };
            all.of_disks.push(place);
        }
        all
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = (u8, u8)> {
        self.plugs.iter().filter_map(|plug| match plug {
            Plug::Port { nth, bus } => Some((*nth, *bus)),
            Plug::Sata { .. } | Plug::Scsi { .. } => None,
        })
    }

    /// Controllers that only disks beside root disk and seed take.
    pub(super) fn controllers(&self, doc: &mut Doc, chipset: Chipset, workers: Workers) -> Result<(), DomainError> {
        self.plugs.iter().try_for_each(|plug| match plug {
            Plug::Port { .. } => Ok(()),
            Plug::Sata { nth, index } => {
                let index = index.to_string();
                let sata = [("type", "sata"), ("index", &*index)];
                doc.nest("controller", &sata, |doc| on_root_bus(doc, chipset, *nth))
            }
            Plug::Scsi { nth } => {
                let scsi = [("type", "scsi"), ("index", "0"), ("model", "virtio-scsi")];
                doc.nest("controller", &scsi, |doc| {
                    workers.on_controller(doc)?;
                    on_root_bus(doc, chipset, *nth)
                })
            }
        })
    }
}

impl Place {
    pub(super) fn address(self, doc: &mut Doc, chipset: Chipset) -> Result<(), DomainError> {
        match self {
            Self::Port(bus) => doc.pci(bus, 0),
            Self::Slot(slot) => doc.pci(0, slot),
            Self::Function(nth) => on_root_bus(doc, chipset, nth),
            Self::Drive { controller, target, unit } => {
                let (controller, target, unit) = (controller.to_string(), target.to_string(), unit.to_string());
                let place = [("bus", "0"), ("target", &*target), ("unit", &*unit)];
                let drive = [[("type", "drive"), ("controller", &*controller)].as_slice(), &place].concat();
                doc.leaf("address", &drive)
            }
        }
    }
}

/// The place of root disk or seed, on the bus of all disks.
pub(super) fn of_first(doc: &mut Doc, hardware: &Hardware, at: u8) -> Result<(), DomainError> {
    let chipset = hardware.machine.chipset();
    match hardware.disk_bus {
        DiskBus::Virtio => match hardware.described.root.slot.filter(|_| at == 0) {
            Some(slot) => doc.pci(0, slot),
            None => in_own_slot(doc, chipset, at),
        },
        DiskBus::Scsi => Place::Drive { controller: 0, target: at, unit: 0 }.address(doc, chipset),
        DiskBus::Sata => Place::Drive { controller: 0, target: 0, unit: at }.address(doc, chipset),
    }
}

/// The place of root disk or seed if they are virtio disks; in the first of them is else the controller.
pub(super) fn in_own_slot(doc: &mut Doc, chipset: Chipset, at: u8) -> Result<(), DomainError> {
    match (chipset, PCI_SLOTS.get(usize::from(at))) {
        (Chipset::I440fx, Some(slot)) => doc.pci(0, *slot),
        // Behind a root port.
        _ => doc.pci(at + 1, 0),
    }
}

/// Slot and function of the `nth` device that other disks need on the root bus.
pub(super) fn function_of(chipset: Chipset, nth: u8) -> (u8, u8) {
    let first = FIRST_OF_OTHERS.into_iter().find(|(of, _)| *of == chipset).map_or(0, |(_, first)| first);
    (first + nth / FUNCTIONS, nth % FUNCTIONS)
}

/// That as an address. A guest looks for further functions of a slot if the first one says that there are.
pub(super) fn on_root_bus(doc: &mut Doc, chipset: Chipset, nth: u8) -> Result<(), DomainError> {
    let (slot, function) = function_of(chipset, nth);
    doc.pci_of_several(slot, function)
}

/// libvirt's name of the root disk.
#[must_use]
pub fn target_of_root(hardware: &Hardware) -> String {
    target_at(hardware.disk_bus, 0)
}

/// libvirt's name of the `nth` disk beside root disk and seed.
#[must_use]
pub fn target_of(hardware: &Hardware, nth: u8, disk: &Disk) -> String {
    target_at(hardware.bus_of(&disk.name), PLACES.saturating_add(nth))
}

/// The guest's name of a disk, for libvirt; a guest has its own.
pub(super) fn target(doc: &mut Doc, bus: DiskBus, at: u8) -> Result<(), DomainError> {
    let dev = target_at(bus, at);
    doc.leaf("target", &[("dev", &dev), ("bus", bus.name())])
}

/// `vda` to `vdz`, then `vdaa`. No two disks of a machine have the same letters.
fn target_at(bus: DiskBus, at: u8) -> String {
    const LETTERS: u8 = 26;
    let prefix = if bus == DiskBus::Virtio { "vd" } else { "sd" };
    let first = (at / LETTERS).checked_sub(1).map(|first| char::from(b'a' + first % LETTERS));
    let last = char::from(b'a' + at % LETTERS);
    prefix.chars().chain(first).chain([last]).collect()
}
