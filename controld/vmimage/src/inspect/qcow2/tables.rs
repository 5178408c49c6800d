//! The tables that a header points at, read in pieces: no entry may point out of the file, unless QEMU writes to that.
//!
//! What is read is bounded by [`MAX_L2_BYTES`], or [`MAX_WRITTEN_L2_BYTES`], and the limits of the header; what is held is two pieces. Reference
//! counts are not compared with what refers to them: an image in the store is only ever read, and a wrong count harms
//! who writes.

use std::io;

use super::super::bytes::{Bytes, array};
use super::{Fields, Header, MAX_L1_BYTES, Qcow2Error, REFCOUNT_TABLE, SNAPSHOT_HEADER, Table};

/// Most bytes of second-level tables: those of a full disk of 2 TiB with clusters of 16 KiB, or of 8 TiB with the usual
/// ones. To walk them takes a second or two of a core.
const MAX_L2_BYTES: u64 = 1 << 30;
/// Of a file that QEMU writes to: those of a full disk of 16 TiB with clusters of 32 KiB.
const MAX_WRITTEN_L2_BYTES: u64 = 4 << 30;
/// What is read at a time.
const PIECE: usize = 64 * 1024;

// Bits of entries that are no offset (qcow2.rst, "Cluster mapping"); those that are neither are reserved.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// A compressed cluster is so many sectors.
const SECTOR_BITS: u32 = 9;

const L2_TABLE: &str = "L2 table";
const OUTSIDE: &str = "points beyond the file's end; the file is cut off or its tables lie";
const UNALIGNED: &str = "is not aligned to clusters";
const RESERVED: &str = "has reserved bits set";

// QEMU's limits (block/qcow2.h, block/qcow2-bitmap.c).
const MAX_SNAPSHOT_TABLE: u64 = 1024 * 65_536;
const MAX_SNAPSHOT_EXTRA: u32 = 1024;
const BITMAP_HEADER: u64 = 24;
const MAX_BITMAP_NAME: u16 = 1023;
const MAX_BITMAP_TABLE: u64 = 0x0800_0000;
const BITMAP_GRANULARITY: std::ops::RangeInclusive<u8> = 9..=31;
const BITMAP_TRACKING: u8 = 1;
/// In use, and automatic.
const BITMAP_FLAGS: u32 = 0b11;

/// Why a walk ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The image is refused.
    Refused(Qcow2Error),
    /// The file cannot be read.
    Io(io::Error),
}

impl From<Qcow2Error> for Stop {
    fn from(error: Qcow2Error) -> Self {
        Self::Refused(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Checks all tables of a file of `length` bytes. `written` says that QEMU writes to it.
pub(crate) fn walk(file: &dyn Bytes, length: u64, header: &Header, written: bool) -> Result<(), Stop> {
    let walk = Walk { file, length, header, cluster: header.cluster(), written };
    walk.refcounts()?;
    walk.l1()?;
    walk.snapshots()?;
    walk.bitmaps()
}

struct Walk<'a> {
    file: &'a dyn Bytes,
    length: u64,
    header: &'a Header,
    cluster: u64,
    written: bool,
}

impl Walk<'_> {
    fn refcounts(&self) -> Result<(), Stop> {
        let Table { offset, bytes, .. } = self.header.refcounts;
        self.each::<1>(offset, bytes, |index, [entry]| {
            let refused = |fault| Qcow2Error::Entry { table: REFCOUNT_TABLE, index, entry, fault };
            if entry & 0x1ff != 0 {
                return Err(refused(RESERVED).into());
            }
            self.check_cluster(entry).map_err(|fault| refused(fault).into())
        })
    }

    fn l1(&self) -> Result<(), Stop> {
        let Table { name: table, offset, bytes, .. } = self.header.l1;
        let most = if self.written { MAX_WRITTEN_L2_BYTES } else { MAX_L2_BYTES };
        let budget = most.min(self.length.next_multiple_of(self.cluster));
        let mut read = 0;
        self.each::<1>(offset, bytes, |index, [entry]| {
            let refused = |fault| Qcow2Error::Entry { table, index, entry, fault };
            if entry & !(OFFSET | COPIED) != 0 {
                return Err(refused(RESERVED).into());
            }
            let table = entry & OFFSET;
            if table == 0 {
                return Ok(());
            }
            self.check_cluster(table).map_err(refused)?;
            read += self.cluster;
            if read > budget {
                return Err(Qcow2Error::TooManyL2(budget).into());
            }
            self.l2(table)
        })
    }

    fn l2(&self, table: u64) -> Result<(), Stop> {
        let refused = |index, entry, fault| Qcow2Error::Entry { table: L2_TABLE, index, entry, fault };
        if self.header.extended_l2 {
            self.each::<2>(table, self.cluster, |index, [entry, bitmap]| {
                self.check_l2(entry, Some(bitmap)).map_err(|fault| refused(index, entry, fault).into())
            })
        } else {
            self.each::<1>(table, self.cluster, |index, [entry]| {
                self.check_l2(entry, None).map_err(|fault| refused(index, entry, fault).into())
            })
        }
    }

    fn check_l2(&self, entry: u64, bitmap: Option<u64>) -> Result<(), &'static str> {
        if entry & COMPRESSED != 0 {
            if bitmap.is_some_and(|bitmap| bitmap != 0) {
                return Err("is compressed and has subclusters");
            }
            return self.check_compressed(entry);
        }
        // Version 2 and subclusters say elsewhere, or not at all, that a cluster is zeros.
        let zero = if self.header.version == 2 || bitmap.is_some() { 0 } else { ZERO };
        if entry & !(OFFSET | COPIED | zero) != 0 {
            return Err(RESERVED);
        }
        // The lower half says which subclusters are there, the upper one which are zeros.
        if bitmap.is_some_and(|bitmap| bitmap & (bitmap >> 32) & 0xffff_ffff != 0) {
            return Err("has subclusters that are both there and zeros");
        }
        self.check_cluster(entry & OFFSET)
    }

    fn check_compressed(&self, entry: u64) -> Result<(), &'static str> {
        if entry & COPIED != 0 {
            return Err("is compressed and marked as unshared");
        }
        let width = self.header.cluster_bits - 8;
        let shift = 62 - width;
        let offset = entry & ((1 << shift) - 1);
        let sectors = (entry >> shift & ((1 << width) - 1)) + 1;
        let end = (offset >> SECTOR_BITS << SECTOR_BITS).saturating_add(sectors << SECTOR_BITS);
        if offset < self.cluster { Err("points into the header") } else { self.check_end(end) }
    }

    /// A whole cluster at `offset`, or none.
    fn check_cluster(&self, offset: u64) -> Result<(), &'static str> {
        if !offset.is_multiple_of(self.cluster) {
            return Err(UNALIGNED);
        }
        if offset == 0 { Ok(()) } else { self.check_end(offset.saturating_add(self.cluster)) }
    }

    /// The last cluster need not be whole, as for QEMU. What was not written when it was killed is not there.
    fn check_end(&self, end: u64) -> Result<(), &'static str> {
        if end >= self.length.saturating_add(self.cluster) && !self.written { Err(OUTSIDE) } else { Ok(()) }
    }

    fn snapshots(&self) -> Result<(), Stop> {
        let Some(Table { name: table, offset: start, entries, .. }) = self.header.snapshot_table else { return Ok(()) };
        let mut offset = start;
        for index in 0..u32::try_from(entries).unwrap_or(u32::MAX) {
            let refused = |fault| Qcow2Error::Snapshot { index, fault };
            let entry = array::<{ SNAPSHOT_HEADER as usize }>(self.file, offset)?;
            let field = Fields(&entry);
            let (l1, l1_entries) = (field.u64(0)?, u64::from(field.u32(8)?));
            let extra = field.u32(36)?;
            if extra > MAX_SNAPSHOT_EXTRA {
                return Err(refused("it has too much extra data").into());
            }
            if l1_entries * 8 > MAX_L1_BYTES || !l1.is_multiple_of(self.cluster) || l1 < self.cluster {
                return Err(refused("its L1 table is too large or in an impossible place").into());
            }
            if l1.saturating_add(l1_entries * 8) > self.length {
                return Err(refused("its L1 table ends beyond the file").into());
            }
            let names = u64::from(field.u16(12)?) + u64::from(field.u16(14)?);
            let end = offset + SNAPSHOT_HEADER + u64::from(extra) + names;
            if end - start > MAX_SNAPSHOT_TABLE {
                return Err(Qcow2Error::TableSize { table, entries }.into());
            }
            if end > self.length {
                return Err(Qcow2Error::TableOutside { table, length: self.length }.into());
            }
            offset = end.next_multiple_of(8);
        }
        Ok(())
    }

    fn bitmaps(&self) -> Result<(), Stop> {
        let Some(Table { offset: start, entries, bytes, .. }) = self.header.bitmap_directory else { return Ok(()) };
        let broken = |fault| Stop::from(Qcow2Error::Bitmaps(fault));
        let end = start + bytes;
        let mut offset = start;
        for _ in 0..entries {
            let entry = array::<{ BITMAP_HEADER as usize }>(self.file, offset)?;
            let field = Fields(&entry);
            let (table, table_entries) = (field.u64(0)?, u64::from(field.u32(8)?));
            let name = field.u16(18)?;
            let sound = field.u32(12)? & !BITMAP_FLAGS == 0
                && field.u8(16)? == BITMAP_TRACKING
                && BITMAP_GRANULARITY.contains(&field.u8(17)?)
                && (1..=MAX_BITMAP_NAME).contains(&name)
                && field.u32(20)? == 0;
            if !sound {
                return Err(broken("an entry of the directory makes no sense"));
            }
            if table < self.cluster
                || !table.is_multiple_of(self.cluster)
                || !(1..=MAX_BITMAP_TABLE).contains(&table_entries)
            {
                return Err(broken("a table is too large or in an impossible place"));
            }
            if table.saturating_add(table_entries * 8) > self.length {
                return Err(broken("a table ends beyond the file"));
            }
            offset += (BITMAP_HEADER + u64::from(name)).next_multiple_of(8);
            if offset > end {
                return Err(broken("an entry leaves the directory"));
            }
        }
        if offset == end { Ok(()) } else { Err(broken("the directory is longer than its entries")) }
    }

    /// Calls `check` with each entry of `N` numbers, of those in `bytes` bytes at `offset`.
    fn each<const N: usize>(
        &self,
        offset: u64,
        bytes: u64,
        mut check: impl FnMut(u64, [u64; N]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut room = vec![0; usize::try_from(bytes).unwrap_or(PIECE).min(PIECE)];
        let mut index = 0;
        let mut done = 0;
        while done < bytes {
            let piece = usize::try_from(bytes - done).unwrap_or(PIECE).min(room.len());
            let piece = &mut room[..piece];
            self.file.read(offset + done, piece)?;
            done += piece.len() as u64;
            for entry in piece.chunks_exact(8 * N) {
                let mut numbers = [0; N];
                for (number, bytes) in numbers.iter_mut().zip(entry.chunks_exact(8)) {
                    *number = bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                }
                check(index, numbers)?;
                index += 1;
            }
        }
        Ok(())
    }
}
