//! Checks where the blocks of a disk lie in its image file: inside the file, and not on its tables. Used for all
//! formats.
//!
//! `qemu-img` reads zeros behind the end of a file, so an image that was cut off would be converted without an error.
//!
//! [`Blocks`] remembers the places of blocks, four bytes for each block that fits into the file, and refuses two blocks
//! at the same place. A VMDK has too many grains to remember: [`Layout::check_sum`] checks only that together they are
//! no larger than the file, and two of them may be the same bytes.

use std::ops::Range;

use super::{Stop, require};

const OUTSIDE: &str = "its tables point beyond the file's end; it was cut off, or they lie";
const TAKEN: &str = "its tables point into its header or into tables";
const SHARED: &str = "its tables point at the same bytes twice";

/// A file, and what of it is spoken for.
pub(super) struct Layout {
    /// Where blocks end at the latest.
    pub(super) end: u64,
    /// Headers and tables.
    pub(super) taken: Vec<Range<u64>>,
}

/// Blocks of one length.
pub(super) struct Blocks<'a> {
    layout: &'a Layout,
    /// Place of the block of number 0; each number is so many bytes further.
    origin: u64,
    unit: u64,
    length: u64,
    numbers: Vec<u32>,
}

impl Layout {
    /// Whether `length` bytes at `start` are there and free.
    pub(super) fn check(&self, start: u64, length: u64) -> Result<(), Stop> {
        let end = start.saturating_add(length);
        require(end <= self.end, OUTSIDE)?;
        require(self.taken.iter().all(|taken| end <= taken.start || taken.end <= start), TAKEN)
    }

    /// Blocks of `length` bytes, which are counted in `unit` bytes from `origin` on.
    pub(super) fn blocks(&self, origin: u64, unit: u64, length: u64) -> Blocks<'_> {
        Blocks { layout: self, origin, unit, length, numbers: Vec::new() }
    }

    /// Whether `sum` bytes of blocks can be there side by side.
    pub(super) fn check_sum(&self, sum: u64) -> Result<(), Stop> {
        require(sum <= self.end, SHARED)
    }
}

impl Blocks<'_> {
    /// A block, the first `needed` bytes of which are of the disk.
    pub(super) fn add(&mut self, number: u64, needed: u64) -> Result<(), Stop> {
        let start = number.saturating_mul(self.unit).saturating_add(self.origin);
        self.layout.check(start, needed)?;
        // Before there are too many of them to look at.
        self.layout.check_sum((self.numbers.len() as u64).saturating_mul(self.length))?;
        // A file that large could not be stored.
        let Ok(number) = u32::try_from(number) else { return require(false, OUTSIDE) };
        self.numbers.push(number);
        Ok(())
    }

    /// Whether all that were added lie side by side.
    pub(super) fn check_apart(mut self) -> Result<(), Stop> {
        self.numbers.sort_unstable();
        let apart = |pair: &[u32]| match pair {
            [first, second] => u64::from(second - first) * self.unit >= self.length,
            _ => true,
        };
        require(self.numbers.windows(2).all(apart), SHARED)
    }
}
