//! The table of emulated nodes: what each has that the bed's machine lacks, and which cases run in it.

use crate::cell::Links;

/// A kind of emulated node.
#[derive(Debug)]
pub struct Kind {
    /// Names of the cases that run in it start so.
    pub tier: &'static str,
    /// Whose links its cases have. Where they have the node's own, one runs at a time.
    pub links: Links,
    /// The guest builder's folder with its kernel.
    pub(super) image: &'static str,
    pub(super) machine: &'static str,
    pub(super) accelerator: &'static str,
    pub(super) processor: &'static str,
    pub(super) processors: u8,
    pub(super) memory_mib: u32,
    /// Words of QEMU for what the others do not have.
    pub(super) devices: &'static [&'static str],
    /// Words of the kernel.
    pub(super) words: &'static [&'static str],
}

pub(super) const KINDS: &[Kind] = &[
    Kind {
        tier: "node::",
        links: Links::Own,
        image: "node",
        machine: "q35",
        // With a thread for each processor, QEMU may end amid the node's boot: see `crate::emulator`.
        accelerator: "tcg,thread=single",
        // Newer models cost TCG 7 to 20 %.
        processor: "Nehalem",
        // Several cases at a time run in it.
        processors: 2,
        memory_mib: 1024,
        devices: &[],
        words: &[],
    },
    Kind { tier: "sriov::", image: "node", ..WITH_CARD },
    Kind { tier: "iommufd::", image: "node-new", ..WITH_CARD },
];

/// An SR-IOV card behind an IOMMU, and room for a guest with its functions. TCG emulates AMD's virtualization, so the
/// guest runs under KVM: twenty times as quick as an emulation in an emulation.
const WITH_CARD: Kind = Kind {
    tier: "",
    // New functions of a card appear among the links of the machine, wherever the card's own link is.
    links: Links::Machine,
    image: "",
    machine: "q35,kernel-irqchip=split",
    accelerator: "tcg",
    processor: "qemu64,+svm,+npt,+ssse3,+sse4.1,+sse4.2,+popcnt",
    // One case at a time runs in it. Where QEMU has to wait for a processor of its own, the kernel of the one waits for locks that
    // the kernel of the other holds: with two a case costs as much on a quiet machine, and two fifths more beside two busy loops.
    processors: 1,
    memory_mib: 1536,
    devices: &[
        "-device",
        "intel-iommu,intremap=on,caching-mode=on",
        "-device",
        "pcie-root-port,id=card,chassis=1,slot=1",
        // The card itself connects its functions; the wire leads nowhere.
        "-netdev",
        "hubport,id=wire,hubid=0",
        "-device",
        "igb,bus=card,netdev=wire,mac=02:00:00:00:50:01",
    ],
    words: &["intel_iommu=on", "iommu=pt", "drivers=kvm_amd", PERIODIC],
};

/// Words of the kernel of any machine that is emulated.
///
/// The check of the timer counts its interrupts for an instant, which is too short for an emulator that has to wait for a processor, and
/// ends the boot. An emulator's time stamps are the host's, the same on all processors: a kernel that does not trust them asks the HPET
/// what time it is, by a lock of its own and QEMU's biggest one, which was a tenth of the samples of a node with a guest.
pub const EMULATED: &str = "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable mitigations=off cryptomgr.notests";

/// Words of the kernel of a machine with guests: ticks at a fixed rate. QEMU's emulation of AMD's virtualization sets a flag in a
/// processor's pending interrupts without a lock (`helper_vmrun`, up to QEMU 10.1), and so may lose one that another thread
/// sets meanwhile. A kernel that sets its timer anew in each interrupt then gets no more of them, and stands still with its
/// guest, about once in twenty boots of one.
pub const PERIODIC: &str = "nohz=off highres=off";

impl Kind {
    /// The kind of node that the case named `case` runs in, if it is one.
    #[must_use]
    pub fn of(case: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| case.starts_with(kind.tier))
    }

    /// Whether its cases run one at a time.
    #[must_use]
    pub fn one_at_a_time(&self) -> bool {
        self.links == Links::Machine
    }
}
