//! Devices that a runtime handler may give its machines.

use std::path::Path;

use vmspec::plan::{Chipset, DescribedDevices, Graphics, Hardware, TabletBus, VideoModel, Watchdog, WatchdogAction};

use super::{Doc, DomainError, RNG_SLOT, path};

/// What the chipset `pc` keeps for a graphics card. All slots of the other are taken, so what is rare has functions of the slot of
/// what is always there.
const SCREEN_SLOT_PC: u8 = 0x02;
const SCREEN_FUNCTION: u8 = 1;
const WATCHDOG_FUNCTION: u8 = 2;
const TABLET_FUNCTION: u8 = 3;
const USB_FUNCTION: u8 = 4;

/// What Windows knows to use, and Linux does no harm with.
const ENLIGHTENMENTS: [&str; 9] =
    ["relaxed", "vapic", "vpindex", "runtime", "synic", "stimer", "frequencies", "tlbflush", "ipi"];

pub(super) fn hyperv(doc: &mut Doc) -> Result<(), DomainError> {
    doc.nest("hyperv", &[("mode", "custom")], |doc| {
        ENLIGHTENMENTS.iter().try_for_each(|name| doc.leaf(name, &[("state", "on")]))?;
        // Tries before a vCPU tells KVM that it waits for another one; what Windows' own hypervisor says.
        doc.leaf("spinlocks", &[("state", "on"), ("retries", "8191")])
    })
}

/// A screen behind a UNIX socket.
pub(super) fn screen(doc: &mut Doc, hardware: &Hardware, socket: &Path) -> Result<(), DomainError> {
    let socket = path(socket)?;
    doc.nest("graphics", &[("type", "vnc")], |doc| doc.leaf("listen", &[("type", "socket"), ("socket", socket)]))?;
    doc.nest("video", &[], |doc| {
        let card = hardware.described.devices.video.unwrap_or(VideoModel::Vga);
        let mut model = vec![("type", card.word()), ("vram", "16384"), ("heads", "1"), ("primary", "yes")];
        // Of this one the guest's memory is the card's.
        model.retain(|(name, _)| card != VideoModel::Virtio || *name != "vram");
        doc.leaf("model", &model)?;
        match hardware.machine.chipset() {
            Chipset::Q35 => doc.pci_of_several(RNG_SLOT, SCREEN_FUNCTION),
            Chipset::I440fx => doc.pci(0, SCREEN_SLOT_PC),
        }
    })
}

/// The random number generator, and whether others are functions of its slot.
pub(super) fn rng(doc: &mut Doc, hardware: &Hardware) -> Result<(), DomainError> {
    let extras = &hardware.extras;
    let has_tablet = hardware.described.devices.tablet.is_some();
    let has_screen = extras.graphics.is_some_and(Graphics::is_vnc) && hardware.machine.chipset() == Chipset::Q35;
    let is_shared = has_screen || has_tablet || extras.watchdog == Some(Watchdog::I6300esb);
    doc.nest("rng", &[("model", "virtio")], |doc| {
        doc.text("backend", &[("model", "random")], "/dev/urandom")?;
        if is_shared { doc.pci_of_several(RNG_SLOT, 0) } else { doc.pci(0, RNG_SLOT) }
    })
}

/// The one that is of the chipset has no address.
pub(super) fn watchdog(doc: &mut Doc, watchdog: Watchdog, described: &DescribedDevices) -> Result<(), DomainError> {
    let action = described.watchdog.unwrap_or(WatchdogAction::Reset);
    let attributes = [("model", watchdog.word()), ("action", action.word())];
    match watchdog {
        Watchdog::Itco => doc.leaf("watchdog", &attributes),
        Watchdog::I6300esb => doc.nest("watchdog", &attributes, |doc| doc.pci_of_several(RNG_SLOT, WATCHDOG_FUNCTION)),
    }
}

/// A controller of USB, if there is anything on it.
pub(super) fn usb(doc: &mut Doc, hardware: &Hardware) -> Result<(), DomainError> {
    let of_model = |model: &'static str| [("type", "usb"), ("index", "0"), ("model", model)];
    match hardware.described.devices.tablet {
        Some(TabletBus::Usb) => {
            doc.nest("controller", &of_model("qemu-xhci"), |doc| doc.pci_of_several(RNG_SLOT, USB_FUNCTION))
        }
        Some(TabletBus::Virtio) | None => doc.leaf("controller", &of_model("none")),
    }
}

/// What is pointed with, where a mouse of PS/2 would lag behind the viewer's.
pub(super) fn tablet(doc: &mut Doc, hardware: &Hardware) -> Result<(), DomainError> {
    let Some(bus) = hardware.described.devices.tablet else { return Ok(()) };
    doc.nest("input", &[("type", "tablet"), ("bus", bus.word())], |doc| match bus {
        TabletBus::Usb => doc.leaf("address", &[("type", "usb"), ("bus", "0"), ("port", "1")]),
        TabletBus::Virtio => doc.pci_of_several(RNG_SLOT, TABLET_FUNCTION),
    })
}
