//! Microsoft's older format ("Virtual Hard Disk Image Format Specification", 2006), big-endian.

use super::fields::{Piece, each, is_zero};
use super::layout::Layout;
use super::{Fault, Stop, check_size, require};
use crate::inspect::bytes::Bytes;

const FOOTER: usize = 512;
const MARK: &[u8] = b"conectix";
const VERSION: u32 = 0x0001_0000;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;

const HEADER: usize = 1024;
const HEADER_MARK: &[u8] = b"cxsparse";
const SECTOR: u64 = 512;
/// QEMU forgets the bitmap of smaller ones.
const BLOCKS: std::ops::RangeInclusive<u64> = 4 << 10..=256 << 20;
/// The table of a disk of 2 TiB with the smallest blocks that are in use, 512 KiB.
const MAX_ENTRIES: u64 = 4 << 20;
/// An entry for a block that is nowhere.
const NOWHERE: u32 = u32::MAX;

pub(super) fn check(file: &dyn Bytes, length: u64, max_virtual_size: u64) -> Result<u64, Stop> {
    let Some(end) = length.checked_sub(FOOTER as u64) else { return Err(Stop::Fault(Fault::Is("it is too short"))) };
    let footer = Piece::read(file, end, FOOTER)?;
    check_footer(&footer)?;
    let size = footer.be64(48);
    check_size(size, max_virtual_size)?;
    require(size.is_multiple_of(SECTOR), "its disk has a part of a sector")?;
    if footer.be32(60) == FIXED {
        // QEMU looks for the mark at the beginning first, and takes the file for one that grows if it is there.
        let begin = Piece::read(file, 0, MARK.len())?;
        require(begin.all() != MARK, "it begins like one that grows, and ends like one of a fixed size")?;
        // Sector after sector, then the footer.
        require(end == size, "its disk is not as large as the file")?;
        return Ok(size);
    }
    let copy = Piece::read(file, 0, FOOTER)?;
    require(copy.all() == footer.all(), "its beginning and its end contradict each other")?;
    let at = footer.be64(16);
    require(at.checked_add(HEADER as u64).is_some_and(|end| end <= length), "its header is outside of the file")?;
    let header = Piece::read(file, at, HEADER)?;
    check_header(&header, size, length)?;
    check_blocks(file, at, &header, end)?;
    Ok(size)
}

fn check_footer(footer: &Piece) -> Result<(), Stop> {
    require(footer.bytes(0, 8) == MARK, "it has not the mark of one")?;
    require(footer.be32(12) == VERSION, "it is of an unknown version")?;
    require(footer.be32(64) == checksum(footer.all(), 64), "the checksum of its footer is wrong")?;
    require(matches!(footer.be32(60), FIXED | DYNAMIC), "it stands on another image, or is of an unknown kind")
}

fn check_header(header: &Piece, size: u64, length: u64) -> Result<(), Stop> {
    require(header.bytes(0, 8) == HEADER_MARK, "its header has not the mark of one")?;
    require(header.be32(24) == VERSION, "its header is of an unknown version")?;
    require(header.be32(36) == checksum(header.all(), 36), "the checksum of its header is wrong")?;
    // Identity, time, name and eight places where a parent may be.
    let parent = [header.bytes(40, 16), header.bytes(64, 512), header.bytes(576, 192)];
    require(parent.into_iter().all(is_zero), "it names a parent")?;
    let (entries, block) = (u64::from(header.be32(28)), u64::from(header.be32(32)));
    require(block.is_power_of_two() && BLOCKS.contains(&block), "its blocks have an impossible size")?;
    require(entries <= MAX_ENTRIES, "its table is too large")?;
    require(entries * block >= size, "its table is too short for its disk")?;
    let end = header.be64(16).checked_add(entries * 4);
    require(end.is_some_and(|end| end <= length), "its table is outside of the file")
}

/// Each block is a bitmap of its sectors and then these, in whole sectors. As QEMU does, all that the table has are
/// looked at, whether or not the disk is so large; `end` is where the footer begins.
fn check_blocks(file: &dyn Bytes, at: u64, header: &Piece, end: u64) -> Result<(), Stop> {
    let (table, entries, block) = (header.be64(16), u64::from(header.be32(28)), u64::from(header.be32(32)));
    let taken = vec![0..FOOTER as u64, at..at + HEADER as u64, table..table + entries * 4];
    let layout = Layout { end, taken };
    let length = (block / SECTOR / 8).next_multiple_of(SECTOR) + block;
    let mut blocks = layout.blocks(0, SECTOR, length);
    each(file, table, entries, |_, entry| match u32::from_be_bytes(entry) {
        NOWHERE => Ok(()),
        sector => blocks.add(sector.into(), length),
    })?;
    blocks.check_apart()
}

/// One's complement of the sum of all bytes but those of the checksum itself.
fn checksum(bytes: &[u8], at: usize) -> u32 {
    let others = bytes.iter().enumerate().filter(|(index, _)| !(at..at + 4).contains(index));
    !others.fold(0_u32, |sum, (_, byte)| sum.wrapping_add((*byte).into()))
}
