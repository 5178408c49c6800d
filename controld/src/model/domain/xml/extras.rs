//! Devices that a runtime handler may give its machines.

use std::path::Path;

use super::{Doc, DomainError, DomainSpec, path};
use crate::model::plan::{Chipset, Hardware, Watchdog};

/// Of the graphics card. The chipset `pc` keeps slot 2 for it.
const SCREEN_SLOT: u8 = 0x0a;
const SCREEN_SLOT_PC: u8 = 0x02;
const WATCHDOG_SLOT: u8 = 0x09;

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

pub(super) fn clock(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let extras = &spec.plan.hardware.extras;
    doc.nest("clock", &[("offset", extras.clock.name())], |doc| {
        doc.leaf("timer", &[("name", "rtc"), ("tickpolicy", "catchup")])?;
        doc.leaf("timer", &[("name", "hpet"), ("present", "no")])?;
        if extras.hyperv { doc.leaf("timer", &[("name", "hypervclock"), ("present", "yes")]) } else { Ok(()) }
    })
}

/// A screen behind a UNIX socket.
pub(super) fn screen(doc: &mut Doc, hardware: &Hardware, socket: &Path) -> Result<(), DomainError> {
    let socket = path(socket)?;
    doc.nest("graphics", &[("type", "vnc")], |doc| doc.leaf("listen", &[("type", "socket"), ("socket", socket)]))?;
    let slot = match hardware.machine.chipset() {
        Chipset::Q35 => SCREEN_SLOT,
        Chipset::I440fx => SCREEN_SLOT_PC,
    };
    doc.nest("video", &[], |doc| {
        doc.leaf("model", &[("type", "vga"), ("vram", "16384"), ("heads", "1"), ("primary", "yes")])?;
        doc.pci(0, slot)
    })
}

/// The one that is of the chipset has no address.
pub(super) fn watchdog(doc: &mut Doc, watchdog: Watchdog) -> Result<(), DomainError> {
    let attributes = [("model", watchdog.name()), ("action", "reset")];
    match watchdog {
        Watchdog::Itco => doc.leaf("watchdog", &attributes),
        Watchdog::I6300esb => doc.nest("watchdog", &attributes, |doc| doc.pci(0, WATCHDOG_SLOT)),
    }
}
