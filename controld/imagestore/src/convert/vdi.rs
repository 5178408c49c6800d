//! VirtualBox's format (QEMU's `block/vdi.c`, VirtualBox's `VDICore.h`), little-endian.

use super::fields::{Piece, is_zero};
use super::{Stop, require};
use crate::inspect::bytes::Bytes;

const MARK: u32 = 0xbeda_107f;
const VERSION_1_1: u32 = 0x0001_0001;
/// Grows as it is written, and of its whole size from the beginning; other kinds stand on another image.
const KINDS: [u32; 2] = [1, 2];
const SECTOR: u32 = 512;
/// The only size of blocks that QEMU takes.
const BLOCK: u64 = 1 << 20;

/// Returns the size of the disk.
pub(super) fn check(file: &dyn Bytes, length: u64) -> Result<u64, Stop> {
    let head = Piece::read(file, 0, 512)?;
    require(head.le32(0x40) == MARK, "it has not the mark of one")?;
    require(head.le32(0x44) == VERSION_1_1, "it is of an unknown version")?;
    require(KINDS.contains(&head.le32(0x4c)), "it stands on another image, or is of an unknown kind")?;
    require(is_zero(head.bytes(0x1a8, 32)), "it names a parent")?;
    require(head.le32(0x168) == SECTOR, "its sectors are not of 512 bytes")?;
    require(u64::from(head.le32(0x178)) == BLOCK && head.le32(0x17c) == 0, "its blocks are not of 1 MiB")?;
    let (size, blocks) = (head.le64(0x170), u64::from(head.le32(0x180)));
    require(blocks * BLOCK >= size, "its map is too short for its disk")?;
    let map = u64::from(head.le32(0x154));
    require(map >= 512 && map + blocks * 4 <= length, "its map is outside of the file")?;
    require(u64::from(head.le32(0x158)) <= length, "its data are outside of the file")?;
    Ok(size)
}
