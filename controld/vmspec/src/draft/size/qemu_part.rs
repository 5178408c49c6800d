//! What QEMU and its helpers take of a pod's memory beside the guest's. Pure.

use super::MIB;
use crate::Accelerator;
use crate::error::{Error, Kind, Result};
use crate::plan::{DiskBus, Firmware, Hardware, MachinePlan};
use crate::settings::MachineConfig;

/// What QEMU takes for itself.
const QEMU: u64 = 50 * MIB;
/// More of it for each vCPU.
const QEMU_VCPU: u64 = 8 * MIB;
/// More of it for the guest's code as translated.
const QEMU_EMULATION: u64 = 192 * MIB;
/// More of it for the guest's memory, as that one's divisor: page tables and the like.
const QEMU_GUEST: u64 = 512;

/// More of it for a screen.
const QEMU_GRAPHICS: u64 = 32 * MIB;
/// More of it, or beside it, for a firmware with flash memory, or a TPM's emulator.
const QEMU_FIRMWARE: u64 = 24 * MIB;
/// More of it for each [`DISKS`] disks that are begun.
const QEMU_DISKS: u64 = 8 * MIB;
/// That many disks.
const DISKS: usize = 16;
/// What QEMU has for a while when a firmware gives each disk on PCI its addresses, times the cube of their number: a map of all
/// devices for each step, until a thread comes to free it. QEMU 10.0 had 33 MiB with 32 disks and 310 MiB with 60 on an idle machine,
/// with KVM and without, and more where the thread got no processor.
const FIRMWARE_DISKS: u64 = 2304;
/// What virtiofsd takes beside QEMU.
const VIRTIOFSD: u64 = 8 * MIB;

/// What a machine has beside vCPUs and memory that memory is taken for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::draft) struct Parts {
    /// Volumes, by virtiofsd.
    pub(in crate::draft) share: bool,
    /// Disks beside root disk and seed.
    pub(in crate::draft) disks: usize,
    /// Those of them that are a device on PCI each.
    pub(in crate::draft) on_pci: usize,
    /// A screen.
    pub(in crate::draft) graphics: bool,
    /// UEFI, a TPM or both.
    pub(in crate::draft) firmware: bool,
}

impl Parts {
    /// Those of a machine that is planned.
    pub(super) fn of_plan(plan: &MachinePlan) -> Self {
        Self::of(&plan.hardware, plan.share.is_some(), plan.disks.len())
    }

    /// Those of a machine with volumes by virtiofs, if it has a share, and so many disks beside root disk and seed.
    pub(in crate::draft) fn of(hardware: &Hardware, share: bool, disks: usize) -> Self {
        Self {
            share,
            disks,
            on_pci: if hardware.has_bus(DiskBus::Virtio) { disks } else { 0 },
            graphics: hardware.extras.graphics.is_some(),
            firmware: hardware.tpm || hardware.firmware != Firmware::Bios,
        }
    }

    /// What is taken for them.
    pub(super) fn bytes(self) -> u64 {
        let Self { share, disks, on_pci: _, graphics, firmware } = self;
        let of = |is_there: bool, bytes| if is_there { bytes } else { 0 };
        let disks = u64::try_from(disks.div_ceil(DISKS)).unwrap_or(u64::MAX).saturating_mul(QEMU_DISKS);
        of(share, VIRTIOFSD) + disks + of(graphics, QEMU_GRAPHICS) + of(firmware, QEMU_FIRMWARE)
    }
}

/// What QEMU takes beside its guest's memory.
pub(super) struct QemuPart {
    fixed: u64,
    /// Whether it grows with the guest's memory.
    grows: bool,
    /// With how many disks on PCI the machine boots, and what QEMU has meanwhile, its guest's memory not yet used.
    boots: (usize, u64),
}

impl QemuPart {
    pub(super) fn of(vcpus: u16, parts: Parts, accel: Accelerator, config: &MachineConfig) -> Self {
        if let Some(fixed) = config.overhead {
            return Self { fixed, grows: false, boots: (0, 0) };
        }
        let emulation = match accel {
            Accelerator::Kvm => 0,
            Accelerator::Qemu => QEMU_EMULATION,
        };
        let own = QEMU + QEMU_VCPU * u64::from(vcpus) + parts.bytes();
        let disks = u64::try_from(parts.on_pci).unwrap_or(u64::MAX);
        let boots = own.saturating_add(disks.saturating_pow(3).saturating_mul(FIRMWARE_DISKS));
        Self { fixed: own + emulation, grows: true, boots: (parts.on_pci, boots) }
    }

    /// Refuses a memory limit and what the pod has beside it that QEMU does not boot in.
    pub(super) fn boots_in(&self, limit: u64, overhead: u64) -> Result<()> {
        let (disks, boots) = self.boots;
        if limit.saturating_add(overhead) >= boots {
            return Ok(());
        }
        let what = format!(
            "memory limit of {} and RuntimeClass `overhead.podFixed` of {} MiB are less than the {} MiB that QEMU has while a \
             firmware finds {disks} disks; raise one of them, or set annotation VirtletDiskDriver: scsi",
            super::said(limit),
            overhead / MIB,
            boots.div_ceil(MIB)
        );
        Err(Error::new(Kind::Invalid, what))
    }

    /// The most memory that a guest may have of `all`.
    pub(super) fn leaves(&self, all: u64) -> u64 {
        let rest = all.saturating_sub(self.fixed);
        if self.grows { rest - rest.div_ceil(QEMU_GUEST + 1) } else { rest }
    }

    /// What comes on top of a guest of so much memory.
    pub(super) fn beside(&self, guest: u64) -> u64 {
        self.fixed + if self.grows { guest / QEMU_GUEST } else { 0 }
    }
}
