//! What of a disk only the description says.

use proto::vm::{self, DiskKind, DiskSource};

use super::{It, SATA, VIRTIO, bus_of};
use crate::render::Draft;
use crate::types::{Disk, Spec};

/// Place of a disk without one that others come before.
const LAST: u32 = 1000;

impl It<'_> {
    /// What it says that neither fields nor other annotations of a pod can say.
    pub(super) fn more(&self, spec: &Spec) -> vm::Disk {
        let Disk { name, disk: _, cdrom, boot_order, serial, cache, io, error_policy, shareable, block_size } =
            self.disk;
        let is_seed = self.volume.cloud_init().is_some();
        let target = self.disk.disk.as_ref();
        let is_cd = cdrom.is_some();
        let has_own = self.is_root || self.volume.ephemeral.is_some();
        // Beside others that say nothing, or as that of a CD if nobody says any.
        let bus = Some(bus_of(self.disk)).filter(|bus| *bus != self.bus.unwrap_or(if is_cd { SATA } else { VIRTIO }));
        let said = vm::Disk {
            name: name.clone(),
            // cloud-init finds its disk by the label, whatever it is.
            kind: (is_cd && !is_seed).then_some(DiskKind::Cdrom),
            bus: bus.filter(|_| !is_seed && !self.is_root).map(str::to_owned),
            boot_order: if self.is_root { behind(*boot_order, spec) } else { boot_order.filter(|_| !is_seed) },
            cache: cache.clone().filter(|cache| !(cache == "none" && self.is_block)),
            io: io.clone().filter(|io| io != "default"),
            error_policy: error_policy.clone(),
            shareable: shareable.filter(|shareable| *shareable),
            block_size: block_size.clone(),
            // Of others the volume says it, but for those that a layer is on.
            readonly: (has_own && target.is_some_and(|disk| disk.readonly)).then_some(true),
            pci_address: target.and_then(|target| target.pci_address.clone()),
            ..vm::Disk::default()
        };
        let is_more = said != vm::Disk { name: name.clone(), ..vm::Disk::default() };
        // Of a block volume the path says it, unless that has to say the name.
        let has_name = is_more && self.is_block && !self.is_root;
        let serial = serial.clone().filter(|serial| has_name || !self.has_serial(serial));
        vm::Disk { serial, ..said }
    }

    /// Of a volume's files: nobody writes to such a disk, and no disk on sata is so but CDs.
    pub(super) fn of_files(&self, label: String, more: &mut vm::Disk) {
        more.source = Some(DiskSource::Files { label });
        more.kind = more.kind.or((bus_of(self.disk) == SATA).then_some(DiskKind::Cdrom));
    }

    /// Of what only the description says: what nodes do not take, and what they take of some.
    pub(super) fn told(&self, draft: &mut Draft<'_>, more: &vm::Disk) {
        let (disk, cdrom) = (self.at.field("disk"), self.at.field("cdrom"));
        let block_size = self.at.field("blockSize");
        let is_matched = more.block_size.as_ref().is_some_and(|size| size.match_volume.is_some());
        for (at, is_there) in [
            (&disk.field("readonly"), self.is_root && more.readonly.is_some()),
            (&cdrom, self.is_root && more.kind.is_some()),
            (&block_size.field("matchVolume"), self.is_root && is_matched),
        ] {
            if is_there {
                draft.described(at);
            }
        }
        let is_block = self.is_block && self.volume.persistent_volume_claim.is_some();
        let at = block_size.field("matchVolume");
        draft.found.unless(is_block || !is_matched, &at, "only a claim with volumeMode Block has sectors to match");
        if more.shareable.is_some() {
            let at = self.at.field("shareable");
            draft.found.unless(is_block, &at, "only a claim with volumeMode Block can be written to by several VMs");
            draft.found.warn(&at, "the RuntimeClass's handler on the node has to have shared_disks = true");
        }
    }

    /// Whether the guest knows it by this serial without further ado.
    pub(super) fn has_serial(&self, serial: &str) -> bool {
        let is_claim = self.is_block && self.volume.persistent_volume_claim.is_some() && !self.is_root;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        (is_claim && serial.len() <= 20 && serial.chars().all(is_plain) && serial != "root" && serial != "seed")
            || (self.volume.empty_disk.is_some() && serial == self.volume.name)
    }
}

/// The place of the root disk, if a NIC comes before it: without one it is the first in any case.
fn behind(order: Option<u32>, spec: &Spec) -> Option<u32> {
    let order = order.unwrap_or(LAST);
    let mut nics = spec.domain.devices.interfaces.iter().filter_map(|nic| nic.boot_order);
    nics.any(|nic| nic < order).then_some(order)
}
