//! Queues and threads of disks, where the pod describes them.

use vmspec::plan::{DescribedDevices, DiskBus, IoThreads, MachinePlan};

use super::{Doc, DomainError};

/// Most threads, however many disks and vCPUs there are.
const MAX_THREADS: u16 = 16;

/// What a virtio disk, or a controller of such, has of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Workers {
    /// `None` is one for each vCPU.
    queues: Option<u8>,
    /// `None` is QEMU's main one.
    thread: Option<u16>,
}

/// Threads of a machine: with `auto` one for each virtio disk, as far as two for each vCPU go.
pub(super) fn count(plan: &MachinePlan) -> Option<u16> {
    let hardware = &plan.hardware;
    match hardware.described.devices.io_threads? {
        IoThreads::Shared => Some(1),
        IoThreads::Auto => {
            let is_virtio = |bus: DiskBus| bus == DiskBus::Virtio;
            let others = plan.disks.iter().filter(|disk| is_virtio(hardware.bus_of(&disk.name))).count();
            let disks = others + usize::from(is_virtio(hardware.disk_bus));
            let disks = u16::try_from(disks).unwrap_or(MAX_THREADS);
            Some(disks.min(plan.cpus.boot.saturating_mul(2)).clamp(1, MAX_THREADS))
        }
    }
}

impl Workers {
    /// Those of the `nth` virtio disk, of the root disk as the first.
    pub(super) fn of(plan: &MachinePlan, nth: u8) -> Self {
        let DescribedDevices { one_block_queue, .. } = plan.hardware.described.devices;
        let thread = count(plan).map(|count| u16::from(nth) % count + 1);
        Self { queues: one_block_queue.then_some(1), thread }
    }

    /// Of a controller of SCSI disks, whatever it has besides.
    pub(super) fn on_controller(self, doc: &mut Doc) -> Result<(), DomainError> {
        let words = self.words();
        let words: Vec<_> = words.iter().map(|(name, word)| (*name, word.as_str())).collect();
        if words.is_empty() { Ok(()) } else { doc.leaf("driver", &words) }
    }

    pub(super) fn words(self) -> Vec<(&'static str, String)> {
        let queues = self.queues.map(|queues| ("queues", queues.to_string()));
        let thread = self.thread.map(|thread| ("iothread", thread.to_string()));
        queues.into_iter().chain(thread).collect()
    }
}
