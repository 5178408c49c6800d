//! What a machine is by its handler and its pod's description together.

use super::described::DescribedDisk;
use super::disk_bus::DiskBus;
use super::disks::Serial;
use super::hardware::Hardware;

impl Hardware {
    /// What is described of the disk that the description calls so.
    #[must_use]
    pub fn said_of(&self, name: &str) -> Option<&DescribedDisk> {
        self.described.disks.get(name)
    }

    /// This name, if the description says anything of a disk that is called so; else nothing.
    pub(crate) fn described_name<'a>(&self, name: Option<&'a str>) -> &'a str {
        name.filter(|name| self.said_of(name).is_some()).unwrap_or_default()
    }

    /// The serial that the description gives that disk, if it does.
    pub(crate) fn said_serial(&self, name: &str) -> Option<Serial> {
        self.said_of(name)?.serial.clone()
    }

    /// The bus of that disk. There is no CD on virtio.
    #[must_use]
    pub fn bus_of(&self, name: &str) -> DiskBus {
        match (self.said_of(name), self.disk_bus) {
            (Some(DescribedDisk { bus: Some(bus), .. }), _) => *bus,
            (Some(said), DiskBus::Virtio) if said.is_cd => DiskBus::Sata,
            (_, bus) => bus,
        }
    }

    /// Whether the guest takes that disk for a CD.
    #[must_use]
    pub fn is_cd(&self, name: &str) -> bool {
        self.said_of(name).is_some_and(|said| said.is_cd)
    }

    /// Whether it is described that nobody writes to that disk.
    pub(crate) fn is_read_only(&self, name: &str) -> bool {
        self.said_of(name).is_some_and(|said| said.is_cd || said.read_only)
    }

    /// Whether that disk can be one that nobody writes to: QEMU has no such disk on SATA, but CDs.
    pub(crate) fn may_be_read_only(&self, name: &str) -> bool {
        self.bus_of(name) != DiskBus::Sata || self.is_cd(name)
    }

    /// Whether any disk is on this bus.
    pub(crate) fn has_bus(&self, bus: DiskBus) -> bool {
        self.disk_bus == bus || self.described.disks.keys().any(|name| self.bus_of(name) == bus)
    }

    /// Whether its guest has a screen.
    #[must_use]
    pub fn has_screen(&self) -> bool {
        self.extras.graphics.is_some()
    }
}
