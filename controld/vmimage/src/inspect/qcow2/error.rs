//! Why a qcow2 image is refused.

use super::{MAX_REFCOUNT_ORDER, V3_HEADER};

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
    #[error("header of {length} bytes; a multiple of 8 from {V3_HEADER} to {limit} is allowed")]
    HeaderLength {
        /// What it claims.
        length: u32,
        limit: u64,
    },
    /// A disk that is no number of sectors.
    #[error("a disk of {0} bytes, which is no number of sectors")]
    Size(u64),
    /// It stands on another file.
    #[error("it has a backing file; flatten it with `qemu-img convert`")]
    BackingFile,
    /// It stands on something that is no image of a store.
    #[error(
        "its backing file `{}` is neither the hash nor the name of an image; flatten it with `qemu-img convert`",
        .0.escape_debug()
    )]
    ForeignBackingFile(String),
    /// The name of the backing file is in an impossible place, or none.
    #[error("its header names no sound backing file: {length} bytes at {offset:#x}")]
    BackingName {
        /// Where.
        offset: u64,
        /// How long.
        length: u32,
    },
    /// The backing file is of a format that no image here has.
    #[error("its backing file is of the format `{}`; raw and qcow2 are known", .0.escape_debug())]
    BackingFormat(String),
    /// Its data are in another file.
    #[error("its data are in another file; make it whole with `qemu-img convert`")]
    DataFile,
    #[error("it is encrypted{}", match .0 { 1 => " with AES", 2 => " with LUKS", _ => "" })]
    Encrypted(u32),
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
    /// Clusters that are too small to be divided.
    #[error("extended L2 entries with clusters of 2^{0} bytes; they need 2^14 or more")]
    SmallSubclusters(u32),
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
    /// Two tables in one place.
    #[error("{first} and {second} overlap")]
    Overlap {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
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
    /// An entry of a table that makes no sense.
    #[error("entry {index} of the {table}, {entry:#x}, {fault}")]
    Entry {
        /// Which table.
        table: &'static str,
        /// Which entry.
        index: u64,
        /// The entry, or what it points at.
        entry: u64,
        /// What is wrong.
        fault: &'static str,
    },
    /// More second-level tables than fit.
    #[error("its L2 tables have more than {0} bytes: they overlap, or there are too many")]
    TooManyL2(u64),
    /// An extension that leaves the header.
    #[error("header extension {kind:#x} at {offset:#x} leaves the header")]
    Extension {
        /// Its type.
        kind: u32,
        /// Where it begins.
        offset: usize,
    },
    /// An extension about bitmaps that contradicts itself.
    #[error("its bitmaps are broken: {0}")]
    Bitmaps(&'static str),
    /// A snapshot that makes no sense.
    #[error("snapshot {index} is broken: {fault}")]
    Snapshot {
        /// Which.
        index: u32,
        /// What is wrong.
        fault: &'static str,
    },
    /// Two formats at once.
    #[error("it is {0} too")]
    TwoFormats(&'static str),
}
