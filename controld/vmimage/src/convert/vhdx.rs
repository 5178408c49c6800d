//! Microsoft's newer format ([MS-VHDX]), little-endian. Checksums are left to `qemu-img`.

use std::ops::Range;

use super::fields::{Piece, each, is_zero};
use super::layout::Layout;
use super::{Fault, Stop, check_size, require};
use crate::inspect::bytes::Bytes;

const MARK: &[u8] = b"vhdxfile";
/// Two headers; the one with the higher number counts ([MS-VHDX] 2.2.2).
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const HEADER_MARK: &[u8] = b"head";
const REGIONS: u64 = 192 << 10;
const REGIONS_MARK: &[u8] = b"regi";
const REGIONS_ROOM: usize = 64 << 10;
const METADATA_MARK: &[u8] = b"metadata";
/// Most entries of either table.
const MAX_ENTRIES: usize = 2047;
const ENTRY: usize = 32;
/// Where entries begin.
const REGION_ENTRIES: usize = 16;
const METADATA_ENTRIES: usize = 32;

// Identities as they are in the file ([MS-VHDX] 2.2.3.2, 2.6.1.2).
const BAT: [u8; 16] = guid(0x2dc2_7766, 0xf623, 0x4200, 0x9d64_115e_9bfd_4a08);
const METADATA: [u8; 16] = guid(0x8b7c_a206, 0x4790, 0x4b9a, 0xb8fe_575f_050f_886e);
const FILE_PARAMETERS: [u8; 16] = guid(0xcaa1_6737, 0xfa36, 0x4d43, 0xb3b6_33f0_aa44_e76b);
const DISK_SIZE: [u8; 16] = guid(0x2fa5_4224, 0xcd1b, 0x4876, 0xb211_5dbe_d83b_f4b8);
const PAGE_83: [u8; 16] = guid(0xbeca_12ab, 0xb2e6, 0x4523, 0x93ef_c309_e000_c746);
const LOGICAL_SECTOR: [u8; 16] = guid(0x8141_bf1d, 0xa96f, 0x4709, 0xba47_f233_a8fa_ab5f);
const PHYSICAL_SECTOR: [u8; 16] = guid(0xcda3_48c7, 0x445d, 0x4471, 0x9cc9_e988_5251_c556);
const PARENT_LOCATOR: [u8; 16] = guid(0xa8d3_5f2d, 0xb30b, 0x454d, 0xabf7_d3d8_4834_ab0c);

const HAS_PARENT: u32 = 2;
const BLOCKS: std::ops::RangeInclusive<u32> = 1 << 20..=256 << 20;
/// Those of 4096 bytes, which the format knows too, QEMU does not take, and its map would be another one.
const SECTOR: u32 = 512;

/// Blocks are in whole mebibytes, the first of which is the header ([MS-VHDX] 2.2).
const MEBIBYTE: u64 = 1 << 20;
/// After the blocks that so many bytes are stands an entry for their bitmap, which only an image that stands on another
/// has ([MS-VHDX] 2.5).
const CHUNK: u64 = (1 << 23) * SECTOR as u64;
// States of a block ([MS-VHDX] 2.5.1.1, and one that older writers have); all but the last are zeros.
const STATE: u64 = 7;
const NOWHERE: [u64; 5] = [0, 1, 2, 3, 5];
const PRESENT: u64 = 6;

/// What the metadata say.
#[derive(Default)]
struct Items {
    block: Option<u32>,
    size: Option<u64>,
    sector: Option<u32>,
}

/// The regions that matter.
struct Regions {
    metadata: Range<u64>,
    map: Range<u64>,
}

pub(super) fn check(file: &dyn Bytes, length: u64, max_virtual_size: u64) -> Result<u64, Stop> {
    let mark = Piece::read(file, 0, MARK.len())?;
    require(mark.all() == MARK, "it has not the mark of one")?;
    check_header(file)?;
    let regions = regions(file, length)?;
    let items = metadata(file, &regions.metadata)?;
    let block = items.block.filter(|block| BLOCKS.contains(block) && block.is_power_of_two());
    let block = block.ok_or(Stop::Fault(Fault::Is("its blocks have an impossible size")))?;
    let size = items.size.ok_or(Stop::Fault(Fault::Is("it does not say how large its disk is")))?;
    check_size(size, max_virtual_size)?;
    require(items.sector == Some(SECTOR), "its sectors are not of 512 bytes")?;
    require(size.is_multiple_of(SECTOR.into()), "its disk has a part of a sector")?;
    check_blocks(file, length, regions, block.into(), size)?;
    Ok(size)
}

fn check_blocks(file: &dyn Bytes, length: u64, regions: Regions, block: u64, size: u64) -> Result<(), Stop> {
    let Regions { metadata, map } = regions;
    let (count, per_chunk) = (size.div_ceil(block), CHUNK / block);
    let entries = count + (count - 1) / per_chunk;
    require(entries <= (map.end - map.start) / 8, "its table is too short for its disk")?;
    let start = map.start;
    let layout = Layout { end: length, taken: vec![0..MEBIBYTE, metadata, map] };
    let mut blocks = layout.blocks(0, MEBIBYTE, block);
    each(file, start, entries, |index, entry| {
        let (chunk, place) = (index / (per_chunk + 1), index % (per_chunk + 1));
        if place == per_chunk {
            return Ok(());
        }
        let entry = u64::from_le_bytes(entry);
        match entry & STATE {
            // The last one need not be whole.
            PRESENT => blocks.add(entry / MEBIBYTE, block.min(size - (chunk * per_chunk + place) * block)),
            state => require(NOWHERE.contains(&state), "a block is in an unknown state"),
        }
    })?;
    blocks.check_apart()
}

fn check_header(file: &dyn Bytes) -> Result<(), Stop> {
    let mut current: Option<Piece> = None;
    for at in HEADERS {
        let header = Piece::read(file, at, 80)?;
        let newer = current.as_ref().is_none_or(|current| header.le64(8) > current.le64(8));
        if header.bytes(0, 4) == HEADER_MARK && newer {
            current = Some(header);
        }
    }
    let Some(header) = current else { return require(false, "it has no header") };
    require(header.le16(66) == 1, "it is of an unknown version")?;
    // Something must be written before it can be read, as after a crash.
    require(is_zero(header.bytes(48, 16)), "its log was not replayed; was it copied while in use?")
}

fn regions(file: &dyn Bytes, length: u64) -> Result<Regions, Stop> {
    let table = Piece::read(file, REGIONS, REGIONS_ROOM)?;
    require(table.bytes(0, 4) == REGIONS_MARK, "it has no table of regions")?;
    let count = usize::try_from(table.le32(8)).unwrap_or(usize::MAX);
    require(count <= MAX_ENTRIES, "its table of regions is too large")?;
    let (mut metadata, mut map) = (None, None);
    for index in 0..count {
        let at = REGION_ENTRIES + index * ENTRY;
        let (start, room) = (table.le64(at + 16), u64::from(table.le32(at + 24)));
        let end = start.saturating_add(room);
        require(end <= length, "a region is outside of the file")?;
        match table.bytes(at, 16) {
            kind if kind == METADATA => {
                require(metadata.replace(start..end).is_none(), "a region is there twice")?;
            }
            kind if kind == BAT => require(map.replace(start..end).is_none(), "a region is there twice")?,
            _ => require(table.le32(at + 28) & 1 == 0, "it needs a region that is unknown")?,
        }
    }
    match (metadata, map) {
        (Some(metadata), Some(map)) => Ok(Regions { metadata, map }),
        _ => Err(Stop::Fault(Fault::Is("it lacks a region"))),
    }
}

fn metadata(file: &dyn Bytes, region: &Range<u64>) -> Result<Items, Stop> {
    let table = Piece::read(file, region.start, METADATA_ENTRIES + MAX_ENTRIES * ENTRY)?;
    require(table.bytes(0, 8) == METADATA_MARK, "it has no metadata")?;
    let count = usize::from(table.le16(10));
    require(count <= MAX_ENTRIES, "its metadata are too many")?;
    let mut items = Items::default();
    for index in 0..count {
        let entry = METADATA_ENTRIES + index * ENTRY;
        let (start, length) = (u64::from(table.le32(entry + 16)), u64::from(table.le32(entry + 20)));
        require(start + length <= region.end - region.start, "its metadata are outside of their region")?;
        let item = Piece::read(file, region.start + start, 8)?;
        match table.bytes(entry, 16) {
            kind if kind == FILE_PARAMETERS => {
                require(item.le32(4) & HAS_PARENT == 0, "it stands on another image")?;
                require(items.block.replace(item.le32(0)).is_none(), "its metadata say something twice")?;
            }
            kind if kind == DISK_SIZE => {
                require(items.size.replace(item.le64(0)).is_none(), "its metadata say something twice")?;
            }
            kind if kind == LOGICAL_SECTOR => {
                require(items.sector.replace(item.le32(0)).is_none(), "its metadata say something twice")?;
            }
            kind if kind == PARENT_LOCATOR => require(false, "it names a parent")?,
            kind if kind == PAGE_83 || kind == PHYSICAL_SECTOR => {}
            // IsRequired
            _ => require(table.le32(entry + 24) & 4 == 0, "it needs metadata that are unknown")?,
        }
    }
    Ok(items)
}

/// An identity as it is written, in the order in which it is stored.
const fn guid(first: u32, second: u16, third: u16, rest: u64) -> [u8; 16] {
    let (a, b, c, d) = (first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes(), rest.to_be_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}
