//! The directory of a sparse extent, its tables, and the grains that these point at.
//!
//! ```text
//! directory --> table of 512 entries --> grain: its sectors, or a marker with a length and so many compressed bytes
//! ```

use super::super::fields::each;
use super::super::layout::Layout;
use super::super::{Stop, require};
use super::{SECTOR, TABLE_ENTRIES};
use crate::inspect::bytes::{Bytes, array};

/// Bytes of an entry.
const ENTRY: u64 = 4;
const TABLE: u64 = TABLE_ENTRIES as u64 * ENTRY;
/// Tables of a disk of 2 TiB with the smallest grains, or of 32 TiB with those that are usual.
const MAX_TABLES: u64 = 1 << 20;
/// An entry of this value is a grain of zeros, if the header says so.
const ZEROS: u32 = 1;
/// First sector and length, which stand before compressed bytes.
const MARKER: u64 = 12;

/// What the header says of an extent, in sectors.
pub(super) struct Extent {
    /// Of the disk.
    pub(super) capacity: u64,
    /// Of a grain.
    pub(super) grain: u64,
    /// Where the directory is.
    pub(super) directory: u64,
    /// Where header and descriptor end.
    pub(super) header: u64,
    /// Whether there are grains of zeros that are nowhere.
    pub(super) zeros: bool,
    pub(super) compressed: bool,
}

/// Whether all that the directory leads to is in a file of `length` bytes.
pub(super) fn check(file: &dyn Bytes, length: u64, extent: &Extent) -> Result<(), Stop> {
    let tables = extent.capacity.div_ceil(extent.grain * u64::from(TABLE_ENTRIES));
    require(tables <= MAX_TABLES, "its directory is too large")?;
    let start = extent.directory.saturating_mul(SECTOR);
    let end = start.saturating_add(tables * ENTRY);
    require(end <= length, "its directory is outside of the file")?;
    require(extent.directory >= extent.header, "its directory is in its header")?;
    let layout = Layout { end: length, taken: vec![0..extent.header * SECTOR, start..end] };
    let mut blocks = layout.blocks(0, SECTOR, TABLE);
    let mut grains = Grains { file, extent, layout: &layout, sum: 0 };
    each(file, start, tables, |index, entry| {
        let table = u64::from(u32::from_le_bytes(entry));
        if table == 0 {
            return Ok(());
        }
        blocks.add(table, TABLE)?;
        grains.check_table(table * SECTOR, index * u64::from(TABLE_ENTRIES))
    })?;
    blocks.check_apart()
}

/// Grains that were seen. There may be too many of them to remember where they are.
struct Grains<'a> {
    file: &'a dyn Bytes,
    extent: &'a Extent,
    layout: &'a Layout,
    /// Bytes of all.
    sum: u64,
}

impl Grains<'_> {
    /// Looks at the table at `at`, whose first grain has that number.
    fn check_table(&mut self, at: u64, first: u64) -> Result<(), Stop> {
        let Extent { capacity, grain, zeros, compressed, .. } = *self.extent;
        let entries = (capacity.div_ceil(grain) - first).min(TABLE_ENTRIES.into());
        each(self.file, at, entries, |index, entry| {
            let entry = u32::from_le_bytes(entry);
            if entry == 0 || (zeros && entry == ZEROS) {
                return Ok(());
            }
            let start = u64::from(entry) * SECTOR;
            let length = match compressed {
                true => self.compressed_length(start)?,
                // The last one need not be whole.
                false => grain.min(capacity - (first + index) * grain) * SECTOR,
            };
            self.layout.check(start, length)?;
            // They begin at sectors.
            self.sum = self.sum.saturating_add(length.next_multiple_of(SECTOR));
            self.layout.check_sum(self.sum)
        })
    }

    /// What a compressed grain takes: the marker, and what it says. QEMU reads twice a grain at most.
    fn compressed_length(&self, at: u64) -> Result<u64, Stop> {
        self.layout.check(at, MARKER)?;
        let [.., a, b, c, d] = array::<{ MARKER as usize }>(self.file, at)?;
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let possible = 1..=2 * self.extent.grain * SECTOR - MARKER;
        require(possible.contains(&length), "a compressed grain has an impossible length")?;
        Ok(MARKER + length)
    }
}
