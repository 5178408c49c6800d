//! VirtualBox's format (QEMU's `block/vdi.c`, VirtualBox's `VDICore.h`), little-endian.

use super::fields::{Piece, each, is_zero};
use super::layout::Layout;
use super::{Stop, check_size, require};
use crate::inspect::bytes::Bytes;

const MARK: u32 = 0xbeda_107f;
const VERSION_1_1: u32 = 0x0001_0001;
/// Grows as it is written, and of its whole size from the beginning; other kinds stand on another image.
const KINDS: [u32; 2] = [1, 2];
const SECTOR: u32 = 512;
const HEADER: u64 = 512;
/// The only size of blocks that QEMU takes.
const BLOCK: u64 = 1 << 20;
/// An entry from here on is of a block that is nowhere.
const NOWHERE: u32 = 0xffff_fffe;

pub(super) fn check(file: &dyn Bytes, length: u64, max_virtual_size: u64) -> Result<u64, Stop> {
    let head = Piece::read(file, 0, HEADER as usize)?;
    require(head.le32(0x40) == MARK, "it has not the mark of one")?;
    require(head.le32(0x44) == VERSION_1_1, "it is of an unknown version")?;
    require(KINDS.contains(&head.le32(0x4c)), "it stands on another image, or is of an unknown kind")?;
    require(is_zero(head.bytes(0x1a8, 32)), "it names a parent")?;
    require(head.le32(0x168) == SECTOR, "its sectors are not of 512 bytes")?;
    require(u64::from(head.le32(0x178)) == BLOCK && head.le32(0x17c) == 0, "its blocks are not of 1 MiB")?;
    let (size, blocks) = (head.le64(0x170), u64::from(head.le32(0x180)));
    check_size(size, max_virtual_size)?;
    require(blocks * BLOCK >= size, "its map is too short for its disk")?;
    let (map, data) = (u64::from(head.le32(0x154)), u64::from(head.le32(0x158)));
    require(map >= HEADER && map + blocks * 4 <= length, "its map is outside of the file")?;
    require(data <= length, "its data are outside of the file")?;
    let layout = Layout { end: length, taken: vec![0..HEADER, map..map + blocks * 4] };
    // Odd sizes are of disks with a whole sector more, to QEMU too.
    let size = size.next_multiple_of(SECTOR.into());
    check_blocks(file, &layout, map, data, size)?;
    Ok(size)
}

/// Blocks are counted from the beginning of the data on. QEMU looks at no more of the map than the disk is large.
fn check_blocks(file: &dyn Bytes, layout: &Layout, map: u64, data: u64, size: u64) -> Result<(), Stop> {
    let mut blocks = layout.blocks(data, BLOCK, BLOCK);
    each(file, map, size.div_ceil(BLOCK), |index, entry| match u32::from_le_bytes(entry) {
        NOWHERE.. => Ok(()),
        // The last one need not be whole.
        block => blocks.add(block.into(), BLOCK.min(size - index * BLOCK)),
    })?;
    blocks.check_apart()
}
