//! Devices that a runtime handler may give its machines.

use std::path::Path;

use vmspec::plan::{Chipset, Graphics, Hardware, Watchdog};

use super::{Doc, DomainError, RNG_SLOT, path};

/// What the chipset `pc` keeps for a graphics card. All slots of the other are taken, so what is rare has functions of the slot of
/// what is always there.
const SCREEN_SLOT_PC: u8 = 0x02;
const SCREEN_FUNCTION: u8 = 1;
const WATCHDOG_FUNCTION: u8 = 2;

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
        doc.leaf("model", &[("type", "vga"), ("vram", "16384"), ("heads", "1"), ("primary", "yes")])?;
        match hardware.machine.chipset() {
            Chipset::Q35 => doc.pci_of_several(RNG_SLOT, SCREEN_FUNCTION),
            Chipset::I440fx => doc.pci(0, SCREEN_SLOT_PC),
        }
    })
}

/// The random number generator, and whether others are functions of its slot.
pub(super) fn rng(doc: &mut Doc, hardware: &Hardware) -> Result<(), DomainError> {
    let extras = &hardware.extras;
    let has_screen = extras.graphics.is_some_and(Graphics::is_vnc) && hardware.machine.chipset() == Chipset::Q35;
    let is_shared = has_screen || extras.watchdog == Some(Watchdog::I6300esb);
    doc.nest("rng", &[("model", "virtio")], |doc| {
        doc.text("backend", &[("model", "random")], "/dev/urandom")?;
        if is_shared { doc.pci_of_several(RNG_SLOT, 0) } else { doc.pci(0, RNG_SLOT) }
    })
}

/// The one that is of the chipset has no address.
pub(super) fn watchdog(doc: &mut Doc, watchdog: Watchdog) -> Result<(), DomainError> {
    let attributes = [("model", watchdog.word()), ("action", "reset")];
    match watchdog {
        Watchdog::Itco => doc.leaf("watchdog", &attributes),
        Watchdog::I6300esb => doc.nest("watchdog", &attributes, |doc| doc.pci_of_several(RNG_SLOT, WATCHDOG_FUNCTION)),
    }
}
