//! What a pod describes of its machine's other devices.

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::words::words;

/// Devices beside disks and NICs, as far as they are described.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DescribedDevices {
    /// Whether it has a screen, which is the runtime handler's to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphics: Option<bool>,
    /// The card of that screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoModel>,
    /// The bus of its tablet, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tablet: Option<TabletBus>,
    /// What a watchdog of model i6300esb does, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<WatchdogAction>,
    /// What tells that the guest has panicked, beside what every machine has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panic: Vec<PanicModel>,
    /// Whether disks have one queue, and not one for each vCPU.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_block_queue: bool,
    /// The same of NICs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_nic_queue: bool,
    /// Whether it has no serial console, and so an empty log.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_serial: bool,
    /// Whether it has no balloon, and so always the memory that it boots with.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_balloon: bool,
    /// Threads that disks have in place of QEMU's main one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<IoThreads>,
}

words! {
    /// A video card.
    VideoModel {
        Vga = "vga",
        Virtio = "virtio",
        Bochs = "bochs",
    }
}

words! {
    /// What a tablet is on.
    TabletBus {
        Usb = "usb",
        Virtio = "virtio",
    }
}

words! {
    /// What a watchdog does that nobody has fed.
    WatchdogAction {
        Reset = "reset",
        Poweroff = "poweroff",
        /// As the power button.
        Shutdown = "shutdown",
    }
}

words! {
    /// What tells of a panic.
    PanicModel {
        Isa = "isa",
        /// What Windows tells by; KVM only.
        Hyperv = "hyperv",
    }
}

words! {
    /// Which threads disks have.
    IoThreads {
        /// One for all.
        Shared = "shared",
        /// One for each, as far as there are as many.
        Auto = "auto",
    }
}

impl DescribedDevices {
    pub(super) fn is_default(&self) -> bool {
        is_default(self)
    }
}
