//! What a VM boots from.

use crate::Path;
use crate::finding::Findings;
use crate::types::{Disk, Spec, Volume};

impl Spec {
    /// The disk that it boots from, with its volume: the first that can be booted from, by boot order and then as they are listed.
    pub(crate) fn root(&self) -> Option<(&Disk, &Volume)> {
        let volume = |disk: &Disk| self.volumes.iter().find(|volume| volume.name == disk.name && volume.may_boot());
        let disks = &self.domain.devices.disks;
        let mut disks: Vec<(&Disk, &Volume)> =
            disks.iter().filter_map(|disk| volume(disk).map(|volume| (disk, volume))).collect();
        // Stable: those without an order stay as they are, behind all others.
        disks.sort_by_key(|(disk, _)| disk.boot_order.unwrap_or(u32::MAX));
        disks.first().copied()
    }
}

pub(super) fn check(spec: &Spec, at: &Path, found: &mut Findings) {
    let by_network = spec.domain.devices.interfaces.iter().any(|nic| nic.boot_order.is_some());
    let from_elsewhere = found.has_error_at(&at.field("domain").field("firmware").field("kernelBoot"));
    let at = at.field("volumes");
    if spec.root().is_none() && !by_network && !from_elsewhere && !found.has_error_at(&at) {
        let text = "nothing to boot from: it takes a containerDisk, a persistentVolumeClaim or an ephemeral volume";
        found.error(&at, text);
    }
}
