//! Reads what is described of disks.

use std::collections::{BTreeMap, BTreeSet};

use proto::vm::{BlockSize, CustomBlockSize, Disk, DiskKind, DiskSource};

use super::super::disk::{DescribedDisk, DescribedSectors, DescribedSource, DiskCache, DiskIo, ErrorPolicy};
use super::nics::{NO_SLOT, slot};
use super::{MAX_ORDER, NotDescribed, Result};
use crate::plan::{MAX_DISKS, Serial};

/// Longest name of a pod's volume.
const MAX_NAME: usize = 63;
/// Longest label of a file system of ISO 9660.
const MAX_LABEL: usize = 32;
/// Bytes of a sector: the fewest, and the most that QEMU takes.
const SECTOR: [u32; 2] = [512, 2 << 20];

/// What is described.
#[derive(Default)]
pub(super) struct Disks {
    pub(super) root: DescribedDisk,
    /// The volume that it is made of, if that is described.
    pub(super) root_volume: String,
    /// By their names.
    pub(super) others: BTreeMap<String, DescribedDisk>,
}

/// All of them, each once.
pub(super) fn disks(said: Vec<Disk>) -> Result<Disks> {
    if said.len() > MAX_DISKS + 1 {
        return Err(NotDescribed::Wrong("disks", "are more than a machine has"));
    }
    let mut root: Option<(DescribedDisk, String)> = None;
    let mut others = BTreeMap::new();
    let mut orders = BTreeSet::new();
    let mut unbuilt = Vec::new();
    for disk in said {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if disk.name.is_empty() || disk.name.len() > MAX_NAME || !disk.name.bytes().all(is_plain) {
            return Err(NotDescribed::Wrong("disks", "has a name that no volume has"));
        }
        let at = At(disk.name.clone());
        let At(name) = &at;
        let is_root = disk.root;
        unbuilt.extend(not_built(&disk).map(|field| format!("disks[{name}].{field}")));
        let read = read(disk)?;
        let is_first = read.boot_order.is_none_or(|order| orders.insert(order));
        at.holds(is_first, "bootOrder", "is that of another disk")?;
        let is_new = if is_root {
            let volume = read.source.as_ref().map(|_| name.clone()).unwrap_or_default();
            root.replace((read, volume)).is_none()
        } else {
            others.insert(name.clone(), read).is_none()
        };
        at.holds(is_new, if is_root { "root" } else { "name" }, "is that of another disk, too")?;
    }
    if !unbuilt.is_empty() {
        return Err(NotDescribed::Unbuilt(unbuilt));
    }
    let (root, root_volume) = root.unwrap_or_default();
    Ok(Disks { root, root_volume, others })
}

/// Fields of a disk that are not honoured.
fn not_built(disk: &Disk) -> impl Iterator<Item = &'static str> + use<> {
    let of_root = |is_there: bool| disk.root && is_there;
    [
        ("source", of_root(matches!(disk.source, Some(DiskSource::Files { .. })))),
        ("kind", of_root(disk.kind == Some(DiskKind::Cdrom))),
        ("readonly", of_root(disk.readonly == Some(true))),
        ("shareable", of_root(disk.shareable == Some(true))),
        ("blockSize.matchVolume", of_root(disk.block_size.as_ref().is_some_and(|size| size.match_volume.is_some()))),
    ]
    .into_iter()
    .filter_map(|(field, is_there)| is_there.then_some(field))
}

/// Where something is wrong.
struct At(String);

impl At {
    fn holds(&self, fits: bool, field: &'static str, why: &'static str) -> Result<()> {
        if fits { Ok(()) } else { Err(self.wrong(field, why)) }
    }

    fn wrong(&self, field: &'static str, why: &'static str) -> NotDescribed {
        NotDescribed::OfDisk(self.0.clone(), field, why)
    }

    fn word<T>(
        &self,
        said: Option<&String>,
        of: fn(&str) -> Option<T>,
        field: &'static str,
        why: &'static str,
    ) -> Result<Option<T>> {
        said.map(|word| of(word).ok_or_else(|| self.wrong(field, why))).transpose()
    }
}

fn read(disk: Disk) -> Result<DescribedDisk> {
    let at = At(disk.name);
    let cache =
        at.word(disk.cache.as_ref(), DiskCache::of, "cache", "is none of `none`, `writethrough` and `writeback`")?;
    let io = disk.io.filter(|io| io != "default");
    let io = at.word(io.as_ref(), DiskIo::of, "io", "is none of `native`, `threads` and `default`")?;
    let is_cached = cache.is_some_and(|cache| cache != DiskCache::None);
    at.holds(!(io == Some(DiskIo::Native) && is_cached), "io", "is `native`, which needs cache `none`")?;
    let error_policy = at.word(
        disk.error_policy.as_ref(),
        ErrorPolicy::of,
        "errorPolicy",
        "is none of `stop`, `report`, `ignore` and `enospace`",
    )?;
    let bus = at.word(disk.bus.as_ref(), |bus| bus.parse().ok(), "bus", "is none of `virtio`, `scsi` and `sata`")?;
    let serial = at.word(
        disk.serial.as_ref(),
        Serial::plain,
        "serial",
        "is not 1 to 20 letters, digits, `_`, `.` and `-`, which is what each bus shows of it",
    )?;
    let slot = disk.pci_address.as_deref().map(|text| slot(text).ok_or_else(|| at.wrong("pciAddress", NO_SLOT)));
    let order = disk.boot_order.is_none_or(|order| (1..=MAX_ORDER).contains(&order));
    at.holds(order, "bootOrder", "is not from 1 to 1000")?;
    Ok(DescribedDisk {
        source: disk.source.map(|source| self::source(&at, source)).transpose()?,
        is_cd: disk.kind == Some(DiskKind::Cdrom),
        bus,
        boot_order: disk.boot_order,
        serial,
        cache,
        io,
        error_policy,
        block_size: disk.block_size.map(|size| sectors(&at, &size)).transpose()?.flatten(),
        read_only: disk.readonly == Some(true),
        slot: slot.transpose()?,
        shareable: disk.shareable == Some(true),
    })
}

fn source(at: &At, source: DiskSource) -> Result<DescribedSource> {
    let label = match source {
        DiskSource::Files { label } => label,
        DiskSource::DiskImage { size } => return Ok(DescribedSource::DiskImage { size }),
        DiskSource::Overlay {} => return Ok(DescribedSource::Overlay),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let fits = !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(is_plain);
    at.holds(fits, "source.files.label", "is not 1 to 32 letters, digits, `_`, `.` and `-`")?;
    Ok(DescribedSource::Files { label })
}

fn sectors(at: &At, size: &BlockSize) -> Result<Option<DescribedSectors>> {
    let is_matched = size.match_volume.is_some_and(|state| state.enabled != Some(false));
    at.holds(
        !(size.custom.is_some() && size.match_volume.is_some()),
        "blockSize",
        "has both `custom` and `matchVolume`",
    )?;
    let Some(CustomBlockSize { logical, physical, discard_granularity: discard }) = size.custom else {
        return Ok(is_matched.then_some(DescribedSectors::Matched));
    };
    let [least, most] = SECTOR;
    let fits = |bytes: u32| bytes.is_power_of_two() && (least..=most).contains(&bytes);
    let why =
        "has sizes that are no powers of two from 512 to 2097152, or a logical one that is more than the physical";
    at.holds(fits(logical) && fits(physical) && logical <= physical, "blockSize.custom", why)?;
    let is_multiple = discard.is_none_or(|bytes| bytes > 0 && bytes % logical == 0);
    at.holds(is_multiple, "blockSize.custom.discardGranularity", "is no multiple of the logical size")?;
    Ok(Some(DescribedSectors::Said { logical, physical, discard }))
}
