//! VMware's format, in the two kinds that are one file: `monolithicSparse` and `streamOptimized` ("Virtual Disk Format
//! 1.1"; QEMU's `block/vmdk.c`). Little-endian.
//!
//! All others are a text that names files, and QEMU opens what it names. A sparse file has such a text in it too, so it
//! is held to a grammar: one extent, no parent, nothing that is not known. Then all its tables are walked ([`grains`]).

mod grains;

use super::fields::{Piece, is_zero};
use super::{Fault, Stop, check_size, require};
use crate::inspect::bytes::Bytes;
use grains::Extent;

const MARK: &[u8] = b"KDMV";
const HEADER: usize = 512;
const SECTOR: u64 = 512;
/// Header, descriptor and tables have these lengths in all that QEMU and VMware write.
const MAX_DESCRIPTOR_SECTORS: u64 = 128;
/// What QEMU reads of a descriptor, whatever its length is said to be.
const QEMU_DESCRIPTOR: usize = 20 * 512;
const GRAINS: std::ops::RangeInclusive<u64> = 8..=4096;
/// Of compressed ones, each of which has to be looked at; the only size that is in use.
const COMPRESSED_GRAIN: u64 = 128;
const TABLE_ENTRIES: u32 = 512;
/// The directory is behind the data, and a second header says where.
const AT_END: u64 = u64::MAX;
/// Marker, header, marker.
const FOOTER: usize = 3 * 512;
/// What a marker says; the rest of its sector is zeros.
const MARKER: usize = 16;
const FOOTER_MARKER: u32 = 3;
const NEWLINES: &[u8] = b"\n \r\n";
/// Also QEMU does not open what a text inside of a sparse file names; this does not rely on it.
const PATH: &str =
    "its descriptor names its extent with a path; make it anew without, or convert it with qemu-img if it is your own";

/// A grain may be said to be zeros.
const FLAG_ZEROS: u32 = 1 << 2;
const FLAG_COMPRESSED: u32 = 1 << 16;
const FLAG_MARKERS: u32 = 1 << 17;
/// RFC 1950.
const DEFLATE: u16 = 1;

/// Where the directory is, in a header.
const DIRECTORY: std::ops::Range<usize> = 56..64;
/// What is told about the last writer.
const UNCLEAN: usize = 72;
const ALGORITHM: usize = 77;

pub(super) fn check(file: &dyn Bytes, length: u64, max_virtual_size: u64) -> Result<u64, Stop> {
    let head = Piece::read(file, 0, HEADER)?;
    require(
        head.bytes(0, 4) == MARK,
        "it is not a single sparse file; descriptors that name other files are not taken",
    )?;
    require((1..=3).contains(&head.le32(4)), "it is of an unknown version")?;
    let newlines = head.le32(8) & 1 == 0 || head.bytes(UNCLEAN + 1, 4) == NEWLINES;
    require(newlines, "it was damaged by a transfer as text")?;
    let (capacity, grain) = (head.le64(12), head.le64(20));
    let size = capacity.checked_mul(SECTOR).ok_or(Stop::Fault(Fault::Is("its disk is too large")))?;
    // With none, QEMU takes the descriptor's word for all.
    check_size(size, max_virtual_size)?;
    require(grain.is_power_of_two() && GRAINS.contains(&grain), "its grains have an impossible size")?;
    require(head.le32(44) == TABLE_ENTRIES, "its tables have an impossible size")?;
    let flags = head.le32(8);
    let compressed = match (flags & (FLAG_COMPRESSED | FLAG_MARKERS), head.le16(ALGORITHM)) {
        (0, 0) => false,
        // Without markers nobody knows how long its grains are.
        (flags, DEFLATE) if flags == FLAG_COMPRESSED | FLAG_MARKERS => true,
        _ => return Err(Stop::Fault(Fault::Is("it is compressed in an unknown way"))),
    };
    require(!compressed || grain >= COMPRESSED_GRAIN, "its compressed grains are too small")?;
    let directory = match head.le64(DIRECTORY.start) {
        AT_END => footer_directory(file, length, &head)?,
        directory => directory,
    };
    let (at, sectors) = (head.le64(28), head.le64(36));
    require(at == 1 && (1..=MAX_DESCRIPTOR_SECTORS).contains(&sectors), "its descriptor is in an impossible place")?;
    require(within(at, sectors, length), "its descriptor is outside of the file")?;
    check_descriptor(file, at * SECTOR, usize::try_from(sectors * SECTOR).unwrap_or_default())?;
    let zeros = flags & FLAG_ZEROS != 0;
    let extent = Extent { capacity, grain, directory, header: at + sectors, zeros, compressed };
    grains::check(file, length, &extent)?;
    Ok(size)
}

fn within(at: u64, sectors: u64, length: u64) -> bool {
    at != 0 && at.checked_add(sectors).and_then(|end| end.checked_mul(SECTOR)).is_some_and(|end| end <= length)
}

/// Where a footer says that the directory is. QEMU believes the footer's header instead of the first one, so it may
/// differ in nothing but what it is there for. QEMU also looks for it from the end of the last sector on, whether or not
/// that is whole.
fn footer_directory(file: &dyn Bytes, length: u64, head: &Piece) -> Result<u64, Stop> {
    require(length.is_multiple_of(SECTOR), "it does not end where a sector ends")?;
    let at = length.checked_sub(FOOTER as u64);
    require(at.is_some_and(|at| at >= HEADER as u64), "it is too short")?;
    let footer = Piece::read(file, at.unwrap_or_default(), FOOTER)?;
    let marker = (footer.le32(8), footer.le32(12));
    let padding = footer.bytes(MARKER, 512 - MARKER);
    require(marker == (0, FOOTER_MARKER) && is_zero(padding), "its footer is broken")?;
    require(is_zero(footer.bytes(1024, 512)), "its end is broken")?;
    let same = |from: usize, to: usize| head.bytes(from, to - from) == footer.bytes(512 + from, to - from);
    let agree = same(0, DIRECTORY.start) && same(DIRECTORY.end, UNCLEAN) && same(UNCLEAN + 1, HEADER);
    require(agree, "its header and its footer contradict each other")?;
    Ok(footer.le64(512 + DIRECTORY.start))
}

fn check_descriptor(file: &dyn Bytes, at: u64, length: usize) -> Result<(), Stop> {
    let bytes = Piece::read(file, at, length.max(QEMU_DESCRIPTOR))?;
    // Up to the first NUL, as a C string.
    let text = bytes.all().split(|byte| *byte == 0).next().unwrap_or_default();
    require(text.len() <= length, "its descriptor is longer than it says")?;
    // Whatever it is encoded in: of what is not ASCII nothing is read.
    let text = String::from_utf8_lossy(text);
    let printable = text.chars().all(|c| matches!(c, '\n' | '\r' | '\t' | ' '..='~') || !c.is_ascii());
    require(!text.is_empty() && printable, "its descriptor is no text")?;
    let mut found = Descriptor::default();
    for line in text.lines().map(str::trim_ascii) {
        found.take(line)?;
    }
    require(found.kind, "its descriptor does not say that it is a single sparse file")?;
    require(found.no_parent, "its descriptor does not say that it has no parent")?;
    require(found.extent, "its descriptor names no extent")
}

/// What a descriptor must have said.
#[derive(Default)]
struct Descriptor {
    kind: bool,
    no_parent: bool,
    extent: bool,
}

impl Descriptor {
    fn take(&mut self, line: &str) -> Result<(), Stop> {
        let lower = line.to_ascii_lowercase();
        if lower.contains("parentfilenamehint") {
            return require(false, "its descriptor names a parent");
        }
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        require(is_plain(line), "its descriptor has more than ASCII outside of comments and quotes")?;
        if ["rw ", "rdonly ", "noaccess "].iter().any(|access| lower.starts_with(access)) {
            require(!self.extent, "its descriptor names more than one extent")?;
            self.extent = true;
            require(is_own_extent(&lower), "its descriptor names another file")?;
            return require(!lower.contains(['/', '\\', ':']), PATH);
        }
        let Some((key, value)) = lower.split_once('=') else {
            return require(false, "its descriptor is not understood");
        };
        let value = value.trim().trim_matches('"');
        match key.trim() {
            "createtype" => {
                require(!self.kind, "its descriptor says something twice")?;
                self.kind = true;
                require(matches!(value, "monolithicsparse" | "streamoptimized"), "it is not a single sparse file")
            }
            "parentcid" => {
                require(!self.no_parent, "its descriptor says something twice")?;
                self.no_parent = true;
                require(value == "ffffffff", "it stands on another image")
            }
            "version" | "encoding" | "cid" | "isnativesnapshot" | "changetrackpath" => {
                require(!value.contains('/'), "its descriptor names another file")
            }
            key => require(key.starts_with("ddb."), "its descriptor is not understood"),
        }
    }
}

/// Whether all that is not ASCII is in quotes.
fn is_plain(line: &str) -> bool {
    line.split('"').step_by(2).all(str::is_ascii)
}

/// `RW <sectors> SPARSE "<name>"`: the name is the file's own, when it was made, and is not opened.
fn is_own_extent(line: &str) -> bool {
    let mut words = line.splitn(4, ' ');
    let (_access, sectors, kind, name) = (words.next(), words.next(), words.next(), words.next());
    let name = name.and_then(|name| name.strip_prefix('"')).and_then(|name| name.strip_suffix('"'));
    sectors.is_some_and(|sectors| sectors.parse::<u64>().is_ok())
        && kind == Some("sparse")
        && name.is_some_and(|name| !name.is_empty() && !name.contains('"'))
}
