//! The header of a qcow2 image (QEMU's `docs/interop/qcow2.rst`), held to stricter rules than QEMU's.
//!
//! [`parse`] is the first verdict, from the beginning of a file alone: no table is read, only its place is checked.
//! [`tables`] is the last one, on the whole file. Memory does not depend on what the header claims, and time only on
//! what the file has.

mod error;
mod extension;
pub(super) mod tables;

pub use error::Qcow2Error;

use super::parent::Parent;
use super::parent::ParentRef;
use super::{Expected, SECTOR};
use extension::Extensions;

/// Mark of the format.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";
/// All of the header, with its extensions and names, must be in here. QEMU allows the first cluster, which may be more.
const SECTION: u64 = super::HEAD as u64;

const V2_HEADER: u32 = 72;
const V3_HEADER: u32 = 104;
/// The header with the field of the compression method.
const HEADER_WITH_METHOD: u32 = 112;

// QEMU's limits (block/qcow2.h, block/qcow2.c).
const MAX_L1_BYTES: u64 = 32 << 20;
const MAX_REFTABLE_BYTES: u64 = 8 << 20;
const MAX_SNAPSHOTS: u32 = 65_536;
const SNAPSHOT_HEADER: u64 = 40;
const MAX_REFCOUNT_ORDER: u32 = 6;
const MAX_BACKING_NAME: u32 = 1023;
/// A cluster has 32 subclusters of a sector or more.
const MIN_SUBCLUSTER_BITS: u32 = 14;

const INCOMPAT_DIRTY: u64 = 1;
const INCOMPAT_CORRUPT: u64 = 1 << 1;
const INCOMPAT_DATA_FILE: u64 = 1 << 2;
const INCOMPAT_COMPRESSION: u64 = 1 << 3;
const INCOMPAT_EXTENDED_L2: u64 = 1 << 4;
const COMPAT_LAZY_REFCOUNTS: u64 = 1;
const AUTOCLEAR_BITMAPS: u64 = 1;
const AUTOCLEAR_RAW_DATA_FILE: u64 = 1 << 1;

const L1_TABLE: &str = "L1 table";
const REFCOUNT_TABLE: &str = "refcount table";
const SNAPSHOT_TABLE: &str = "snapshot table";
const BITMAP_DIRECTORY: &str = "bitmap directory";

/// How clusters are compressed, if they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1951.
    Zlib,
    /// RFC 8878.
    Zstd,
}

/// Where a table is: so many entries (or clusters) at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    name: &'static str,
    offset: u64,
    entries: u64,
    bytes: u64,
}

/// What the header says, once it is found sound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) virtual_size: u64,
    pub(super) compression: Compression,
    pub(super) refcount_bits: u32,
    pub(super) lazy_refcounts: bool,
    pub(super) extended_l2: bool,
    pub(super) consistent_bitmaps: bool,
    pub(super) snapshots: u32,
    pub(super) bitmaps: u32,
    pub(super) parent: Option<Parent>,
    cluster_bits: u32,
    l1: Table,
    refcounts: Table,
    snapshot_table: Option<Table>,
    bitmap_directory: Option<Table>,
}

/// The fields that only version 3 has, as version 2 means them.
struct Version3 {
    header_length: u32,
    compression: Compression,
    refcount_order: u32,
    lazy_refcounts: bool,
    extended_l2: bool,
    consistent_bitmaps: bool,
}

impl Header {
    pub(super) fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }
}

/// Checks the header at the beginning of `head`, which is the beginning of a file of `length` bytes, if that is known.
/// `head` must have [`super::HEAD`] bytes, or be the whole file.
pub(super) fn parse(head: &[u8], length: Option<u64>, expected: Expected) -> Result<Header, Qcow2Error> {
    let Expected { layered, written, .. } = expected;
    let field = Fields(head);
    let version = field.u32(4)?;
    if !matches!(version, 2 | 3) {
        return Err(Qcow2Error::Version(version));
    }
    let cluster_bits = field.u32(20)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(Qcow2Error::ClusterBits(cluster_bits));
    }
    let cluster = 1_u64 << cluster_bits;
    // Its absence is what matters most, so it is what is told first.
    if !layered && (field.u64(8)? != 0 || field.u32(16)? != 0) {
        return Err(Qcow2Error::BackingFile);
    }
    match field.u32(32)? {
        0 => {}
        method => return Err(Qcow2Error::Encrypted(method)),
    }
    let virtual_size = field.u64(24)?;
    if virtual_size == 0 || !virtual_size.is_multiple_of(SECTOR) {
        return Err(Qcow2Error::Size(virtual_size));
    }
    let rest = if version == 2 { Version3::of_version_2() } else { Version3::read(field, cluster_bits, written)? };
    let l1 = l1_table(field, virtual_size, cluster, rest.extended_l2, length)?;
    let refcounts = refcount_table(field, cluster, length)?;
    let snapshot_table = snapshot_table(field, cluster, length)?;
    let name = backing_name(field, rest.header_length, cluster)?;
    // Extensions end where the name begins, if there is one.
    let end = name.map_or(cluster.min(SECTION), |(offset, _)| offset);
    let extensions = Extensions::read(head, rest.header_length, end)?;
    let parent = match name {
        Some((offset, length)) => Some(parent(head, offset, length, extensions.backing_format)?),
        None => None,
    };
    let bitmap_directory = match extensions.bitmaps {
        Some(bitmaps) => Some(bitmaps.directory(cluster, length)?),
        None => None,
    };
    check_overlaps([Some(l1), Some(refcounts), snapshot_table, bitmap_directory])?;
    if let Some(other) = super::magic::foreign_beside(head) {
        return Err(Qcow2Error::TwoFormats(other));
    }
    if super::mbr::is_there(head) {
        return Err(Qcow2Error::TwoFormats("a disk with a boot record"));
    }
    Ok(Header {
        version,
        virtual_size,
        compression: rest.compression,
        refcount_bits: 1 << rest.refcount_order,
        lazy_refcounts: rest.lazy_refcounts,
        extended_l2: rest.extended_l2,
        consistent_bitmaps: rest.consistent_bitmaps,
        snapshots: snapshot_table.map_or(0, |table| u32::try_from(table.entries).unwrap_or(MAX_SNAPSHOTS)),
        bitmaps: extensions.bitmaps.map_or(0, |bitmaps| bitmaps.count),
        parent,
        cluster_bits,
        l1,
        refcounts,
        snapshot_table,
        bitmap_directory,
    })
}

impl Version3 {
    fn of_version_2() -> Self {
        Self {
            header_length: V2_HEADER,
            compression: Compression::Zlib,
            refcount_order: 4,
            lazy_refcounts: false,
            extended_l2: false,
            consistent_bitmaps: false,
        }
    }

    fn read(field: Fields<'_>, cluster_bits: u32, written: bool) -> Result<Self, Qcow2Error> {
        let header_length = field.u32(100)?;
        let limit = (1_u64 << cluster_bits).min(SECTION);
        if header_length < V3_HEADER || u64::from(header_length) > limit || !header_length.is_multiple_of(8) {
            return Err(Qcow2Error::HeaderLength { length: header_length, limit });
        }
        let (incompatible, compatible, autoclear) = (field.u64(72)?, field.u64(80)?, field.u64(88)?);
        if incompatible & INCOMPAT_DATA_FILE != 0 || autoclear & AUTOCLEAR_RAW_DATA_FILE != 0 {
            return Err(Qcow2Error::DataFile);
        }
        if incompatible & INCOMPAT_CORRUPT != 0 {
            return Err(Qcow2Error::Corrupt);
        }
        if incompatible & INCOMPAT_DIRTY != 0 && !written {
            return Err(Qcow2Error::Dirty);
        }
        let unknown = incompatible & !(INCOMPAT_DIRTY | INCOMPAT_COMPRESSION | INCOMPAT_EXTENDED_L2);
        if unknown != 0 {
            return Err(Qcow2Error::Features(unknown));
        }
        let extended_l2 = incompatible & INCOMPAT_EXTENDED_L2 != 0;
        if extended_l2 && cluster_bits < MIN_SUBCLUSTER_BITS {
            return Err(Qcow2Error::SmallSubclusters(cluster_bits));
        }
        let method = if header_length >= HEADER_WITH_METHOD { field.u8(104)? } else { 0 };
        // 0 is zlib and needs no feature bit, 1 is zstd and does; QEMU refuses every other pair.
        let compression = match (method, incompatible & INCOMPAT_COMPRESSION != 0) {
            (0, false) => Compression::Zlib,
            (1, true) => Compression::Zstd,
            _ => return Err(Qcow2Error::Compression(method)),
        };
        let refcount_order = field.u32(96)?;
        if refcount_order > MAX_REFCOUNT_ORDER {
            return Err(Qcow2Error::RefcountOrder(refcount_order));
        }
        Ok(Self {
            header_length,
            compression,
            refcount_order,
            lazy_refcounts: compatible & COMPAT_LAZY_REFCOUNTS != 0,
            extended_l2,
            consistent_bitmaps: autoclear & AUTOCLEAR_BITMAPS != 0,
        })
    }
}

fn l1_table(
    field: Fields<'_>,
    virtual_size: u64,
    cluster: u64,
    extended_l2: bool,
    length: Option<u64>,
) -> Result<Table, Qcow2Error> {
    let entries = u64::from(field.u32(36)?);
    if entries * 8 > MAX_L1_BYTES {
        return Err(Qcow2Error::TableSize { table: L1_TABLE, entries });
    }
    // One entry stands for a table of one cluster, each entry of which stands for a cluster.
    let per_entry = cluster * (cluster / if extended_l2 { 16 } else { 8 });
    let needed = virtual_size.div_ceil(per_entry);
    if entries < needed {
        return Err(Qcow2Error::L1Short { entries, needed });
    }
    Table { name: L1_TABLE, offset: field.u64(40)?, entries, bytes: entries * 8 }.checked(cluster, length)
}

fn refcount_table(field: Fields<'_>, cluster: u64, length: Option<u64>) -> Result<Table, Qcow2Error> {
    let clusters = u64::from(field.u32(56)?);
    if clusters == 0 {
        return Err(Qcow2Error::NoRefcounts);
    }
    let bytes = clusters * cluster;
    if bytes > MAX_REFTABLE_BYTES {
        return Err(Qcow2Error::TableSize { table: REFCOUNT_TABLE, entries: clusters });
    }
    Table { name: REFCOUNT_TABLE, offset: field.u64(48)?, entries: bytes / 8, bytes }.checked(cluster, length)
}

/// Snapshots are left alone, but their table must be where the file is.
fn snapshot_table(field: Fields<'_>, cluster: u64, length: Option<u64>) -> Result<Option<Table>, Qcow2Error> {
    let (count, offset) = (field.u32(60)?, field.u64(64)?);
    if count == 0 {
        // QEMU wants even the place of no table to be one.
        let possible = offset.is_multiple_of(cluster) && i64::try_from(offset).is_ok();
        return if possible { Ok(None) } else { Err(Qcow2Error::TableOffset { table: SNAPSHOT_TABLE, offset }) };
    }
    if count > MAX_SNAPSHOTS {
        return Err(Qcow2Error::TableSize { table: SNAPSHOT_TABLE, entries: count.into() });
    }
    let entries = u64::from(count);
    let least = entries * SNAPSHOT_HEADER;
    Table { name: SNAPSHOT_TABLE, offset, entries, bytes: least }.checked(cluster, length).map(Some)
}

impl Table {
    /// The table, if it is where a table may be.
    fn checked(self, cluster: u64, length: Option<u64>) -> Result<Self, Qcow2Error> {
        let Self { name: table, offset, .. } = self;
        if offset < cluster || !offset.is_multiple_of(cluster) {
            return Err(Qcow2Error::TableOffset { table, offset });
        }
        let end = offset.checked_add(self.bytes).ok_or(Qcow2Error::TableOffset { table, offset })?;
        match length {
            Some(length) if end > length => Err(Qcow2Error::TableOutside { table, length }),
            _ => Ok(self),
        }
    }
}

fn check_overlaps(tables: [Option<Table>; 4]) -> Result<(), Qcow2Error> {
    let mut tables = tables.into_iter().flatten();
    while let Some(first) = tables.next() {
        let mut others = tables.clone();
        let beside = |second: &Table| {
            first.offset + first.bytes <= second.offset || second.offset + second.bytes <= first.offset
        };
        if let Some(second) = others.find(|second| !beside(second)) {
            return Err(Qcow2Error::Overlap { first: first.name, second: second.name });
        }
    }
    Ok(())
}

/// Where the name of the backing file is, if there is one: behind the header, in its first cluster.
fn backing_name(field: Fields<'_>, header_length: u32, cluster: u64) -> Result<Option<(u64, u32)>, Qcow2Error> {
    let (offset, length) = (field.u64(8)?, field.u32(16)?);
    if (offset, length) == (0, 0) {
        return Ok(None);
    }
    let end = offset.checked_add(length.into());
    let inside = offset >= header_length.into() && end.is_some_and(|end| end <= cluster.min(SECTION));
    if !inside || length == 0 || length > MAX_BACKING_NAME {
        return Err(Qcow2Error::BackingName { offset, length });
    }
    Ok(Some((offset, length)))
}

fn parent(head: &[u8], offset: u64, length: u32, format: Option<&[u8]>) -> Result<Parent, Qcow2Error> {
    let start = usize::try_from(offset).map_err(|_| Qcow2Error::Truncated)?;
    let name = head.get(start..).and_then(|rest| rest.get(..length as usize)).ok_or(Qcow2Error::Truncated)?;
    let foreign = || Qcow2Error::ForeignBackingFile(shortened(name));
    let reference = std::str::from_utf8(name).ok().and_then(ParentRef::parse).ok_or_else(foreign)?;
    let format = match format {
        // Empty is what `qemu-img rebase` leaves.
        None | Some(b"") => None,
        Some(b"qcow2") => Some(super::DiskFormat::Qcow2),
        Some(b"raw") => Some(super::DiskFormat::Raw),
        Some(other) => return Err(Qcow2Error::BackingFormat(shortened(other))),
    };
    Ok(Parent { reference, format })
}

/// Enough of foreign bytes to be recognised in a message.
fn shortened(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(80).collect()
}

/// Big-endian fields by offset; one that is not there is a truncated header.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> Result<[u8; N], Qcow2Error> {
        self.0.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or(Qcow2Error::Truncated)
    }

    fn u8(self, at: usize) -> Result<u8, Qcow2Error> {
        self.bytes::<1>(at).map(|[byte]| byte)
    }

    fn u16(self, at: usize) -> Result<u16, Qcow2Error> {
        self.bytes(at).map(u16::from_be_bytes)
    }

    fn u32(self, at: usize) -> Result<u32, Qcow2Error> {
        self.bytes(at).map(u32::from_be_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, Qcow2Error> {
        self.bytes(at).map(u64::from_be_bytes)
    }
}
