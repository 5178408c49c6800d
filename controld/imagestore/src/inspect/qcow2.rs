//! The header of a qcow2 image (QEMU's `docs/interop/qcow2.rst`), held to stricter rules than QEMU's.
//!
//! A table is never read, only its place is checked: memory and time do not depend on what the header claims.

/// Mark of the format.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Largest cluster, and so the most of the header that is looked at.
pub(crate) const MAX_CLUSTER: usize = 2 << 20;

const V2_HEADER: u32 = 72;
const V3_HEADER: u32 = 104;
/// The header with the field of the compression method.
const HEADER_WITH_METHOD: u32 = 112;

// QEMU's limits (block/qcow2.h).
const MAX_L1_BYTES: u64 = 32 << 20;
const MAX_REFTABLE_BYTES: u64 = 8 << 20;
const MAX_SNAPSHOTS: u32 = 65_536;
const SNAPSHOT_HEADER: u64 = 40;
const MAX_REFCOUNT_ORDER: u32 = 6;

const INCOMPAT_DIRTY: u64 = 1;
const INCOMPAT_CORRUPT: u64 = 1 << 1;
const INCOMPAT_DATA_FILE: u64 = 1 << 2;
const INCOMPAT_COMPRESSION: u64 = 1 << 3;
const AUTOCLEAR_RAW_DATA_FILE: u64 = 1 << 1;

const EXT_END: u32 = 0;
const EXT_DATA_FILE: u32 = 0x4441_5441;
const EXT_ENCRYPTION: u32 = 0x0537_be77;

/// Why a qcow2 image is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Qcow2Error {
    /// The file ends within the header.
    #[error("the file ends within the header")]
    Truncated,
    /// Another version.
    #[error("version {0}; 2 and 3 are known")]
    Version(u32),
    /// A size of clusters that the format does not allow.
    #[error("clusters of 2^{0} bytes; 2^9 to 2^21 are allowed")]
    ClusterBits(u32),
    /// The length of the header.
    #[error("header of {length} bytes; a multiple of 8 from {V3_HEADER} to the cluster's {cluster} is allowed")]
    HeaderLength {
        /// What it claims.
        length: u32,
        /// The limit.
        cluster: u64,
    },
    /// A disk without sectors.
    #[error("a disk of no bytes")]
    NoSize,
    /// It stands on another file.
    #[error("it has a backing file; flatten it with `qemu-img convert`")]
    BackingFile,
    /// Its data are in another file.
    #[error("its data are in another file; make it whole with `qemu-img convert`")]
    DataFile,
    /// Encrypted.
    #[error("it is encrypted")]
    Encrypted,
    /// Not closed properly, so its reference counts may be wrong.
    #[error("it is marked as in use or not properly closed; repair it with `qemu-img check -r all`")]
    Dirty,
    /// Marked as corrupt.
    #[error("it is marked as corrupt")]
    Corrupt,
    /// Features that are not known, or not supported.
    #[error("incompatible features {0:#x} are not supported")]
    Features(u64),
    /// Compression that is not known, or contradicts the features.
    #[error("compression method {0} is unknown or contradicts the features")]
    Compression(u8),
    /// Width of reference counts.
    #[error("reference counts of 2^{0} bits; at most 2^{MAX_REFCOUNT_ORDER} are allowed")]
    RefcountOrder(u32),
    /// A table that is too large.
    #[error("{table} of {entries} entries or clusters is too large")]
    TableSize {
        /// Which.
        table: &'static str,
        /// What the header claims.
        entries: u64,
    },
    /// A table in an impossible place.
    #[error("{table} at {offset:#x} is not aligned to clusters, or in the header")]
    TableOffset {
        /// Which.
        table: &'static str,
        /// What the header claims.
        offset: u64,
    },
    /// A table beyond the end.
    #[error("{table} ends beyond the file's {length} bytes; the file is cut off or its header lies")]
    TableOutside {
        /// Which.
        table: &'static str,
        /// What the file has.
        length: u64,
    },
    /// The first-level table cannot hold the disk.
    #[error("L1 table of {entries} entries, but the disk's size needs {needed}")]
    L1Short {
        /// What the header claims.
        entries: u64,
        /// What is needed.
        needed: u64,
    },
    /// No reference counts at all.
    #[error("it has no refcount table")]
    NoRefcounts,
    /// An extension that leaves the header's cluster.
    #[error("header extension {kind:#x} at {offset:#x} leaves the header's cluster")]
    Extension {
        /// Its type.
        kind: u32,
        /// Where it begins.
        offset: usize,
    },
    /// Two formats at once.
    #[error("it is an ISO image too")]
    TwoFormats,
}

/// What the header says, once it is found sound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) virtual_size: u64,
}

/// Checks the header at the beginning of `head`, which is the beginning of a file of `length` bytes, if that is known.
/// Extensions are checked as far as `head` goes.
pub(super) fn parse(head: &[u8], length: Option<u64>) -> Result<Header, Qcow2Error> {
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
    if field.u64(8)? != 0 || field.u32(16)? != 0 {
        return Err(Qcow2Error::BackingFile);
    }
    if field.u32(32)? != 0 {
        return Err(Qcow2Error::Encrypted);
    }
    let virtual_size = field.u64(24)?;
    if virtual_size == 0 {
        return Err(Qcow2Error::NoSize);
    }
    let header_length = match version {
        2 => V2_HEADER,
        _ => check_v3(field, cluster)?,
    };
    check_l1(field, virtual_size, cluster, length)?;
    check_refcounts(field, cluster, length)?;
    check_snapshots(field, cluster, length)?;
    check_extensions(head, header_length, cluster)?;
    // Larger clusters only: in smaller ones the marks lie in guest data, where an ISO may well be.
    if cluster > 0x8800 && super::magic::is_iso(head.get(..1 << cluster_bits).unwrap_or(head)) {
        return Err(Qcow2Error::TwoFormats);
    }
    Ok(Header { virtual_size })
}

/// The fields that only version 3 has. Returns the header's length.
fn check_v3(field: Fields<'_>, cluster: u64) -> Result<u32, Qcow2Error> {
    let length = field.u32(100)?;
    if length < V3_HEADER || u64::from(length) > cluster || !length.is_multiple_of(8) {
        return Err(Qcow2Error::HeaderLength { length, cluster });
    }
    let incompatible = field.u64(72)?;
    if incompatible & INCOMPAT_DATA_FILE != 0 || field.u64(88)? & AUTOCLEAR_RAW_DATA_FILE != 0 {
        return Err(Qcow2Error::DataFile);
    }
    if incompatible & INCOMPAT_CORRUPT != 0 {
        return Err(Qcow2Error::Corrupt);
    }
    if incompatible & INCOMPAT_DIRTY != 0 {
        return Err(Qcow2Error::Dirty);
    }
    // Among them bit 4, extended L2 entries: not taken yet, the bounds below are those of plain entries.
    let unknown = incompatible & !INCOMPAT_COMPRESSION;
    if unknown != 0 {
        return Err(Qcow2Error::Features(unknown));
    }
    let method = if length >= HEADER_WITH_METHOD { field.u8(104)? } else { 0 };
    // 0 is zlib and needs no feature bit, 1 is zstd and does; QEMU refuses every other pair.
    if !matches!((method, incompatible & INCOMPAT_COMPRESSION != 0), (0, false) | (1, true)) {
        return Err(Qcow2Error::Compression(method));
    }
    let refcount_order = field.u32(96)?;
    if refcount_order > MAX_REFCOUNT_ORDER {
        return Err(Qcow2Error::RefcountOrder(refcount_order));
    }
    Ok(length)
}

fn check_l1(field: Fields<'_>, virtual_size: u64, cluster: u64, length: Option<u64>) -> Result<(), Qcow2Error> {
    let entries = u64::from(field.u32(36)?);
    if entries * 8 > MAX_L1_BYTES {
        return Err(Qcow2Error::TableSize { table: "L1 table", entries });
    }
    // One entry stands for a table of one cluster with entries of 8 bytes, each for a cluster.
    let per_entry = cluster * (cluster / 8);
    let needed = virtual_size.div_ceil(per_entry);
    if entries < needed {
        return Err(Qcow2Error::L1Short { entries, needed });
    }
    check_table("L1 table", field.u64(40)?, entries * 8, cluster, length)
}

fn check_refcounts(field: Fields<'_>, cluster: u64, length: Option<u64>) -> Result<(), Qcow2Error> {
    let clusters = u64::from(field.u32(56)?);
    if clusters == 0 {
        return Err(Qcow2Error::NoRefcounts);
    }
    if clusters * cluster > MAX_REFTABLE_BYTES {
        return Err(Qcow2Error::TableSize { table: "refcount table", entries: clusters });
    }
    check_table("refcount table", field.u64(48)?, clusters * cluster, cluster, length)
}

/// Snapshots are left alone, but their table must be where the file is.
fn check_snapshots(field: Fields<'_>, cluster: u64, length: Option<u64>) -> Result<(), Qcow2Error> {
    let count = field.u32(60)?;
    if count == 0 {
        return Ok(());
    }
    if count > MAX_SNAPSHOTS {
        return Err(Qcow2Error::TableSize { table: "snapshot table", entries: count.into() });
    }
    check_table("snapshot table", field.u64(64)?, u64::from(count) * SNAPSHOT_HEADER, cluster, length)
}

fn check_table(
    table: &'static str,
    offset: u64,
    bytes: u64,
    cluster: u64,
    length: Option<u64>,
) -> Result<(), Qcow2Error> {
    if offset < cluster || !offset.is_multiple_of(cluster) {
        return Err(Qcow2Error::TableOffset { table, offset });
    }
    let end = offset.checked_add(bytes).ok_or(Qcow2Error::TableOffset { table, offset })?;
    match length {
        Some(length) if end > length => Err(Qcow2Error::TableOutside { table, length }),
        _ => Ok(()),
    }
}

fn check_extensions(head: &[u8], header_length: u32, cluster: u64) -> Result<(), Qcow2Error> {
    let cluster = usize::try_from(cluster).unwrap_or(MAX_CLUSTER);
    let mut offset = header_length as usize;
    while offset < cluster {
        if offset + 8 > cluster {
            return Err(Qcow2Error::Extension { kind: 0, offset });
        }
        // Behind what is there yet: judged when the file is whole. A file that ends here has no tables either.
        let Some(start) = head.get(offset..offset + 8) else { return Ok(()) };
        let field = Fields(start);
        let (kind, length) = (field.u32(0)?, field.u32(4)? as usize);
        match kind {
            EXT_END => return Ok(()),
            EXT_DATA_FILE => return Err(Qcow2Error::DataFile),
            EXT_ENCRYPTION => return Err(Qcow2Error::Encrypted),
            _ => {}
        }
        if length > cluster - offset - 8 {
            return Err(Qcow2Error::Extension { kind, offset });
        }
        offset += 8 + length.next_multiple_of(8);
    }
    Ok(())
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

    fn u32(self, at: usize) -> Result<u32, Qcow2Error> {
        self.bytes(at).map(u32::from_be_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, Qcow2Error> {
        self.bytes(at).map(u64::from_be_bytes)
    }
}
