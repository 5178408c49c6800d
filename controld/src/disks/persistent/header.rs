//! The header in the first sector of a device that is a pod's root disk. All numbers are big endian.
//!
//! | bytes | version 1 (Virtlet's) | version 2 (ours) |
//! |---|---|---|
//! | 0..8 | magic | magic |
//! | 8..10 | version | version |
//! | 10 | sha256 of the image, to byte 42 | state: 1 is being written, 2 is ready |
//! | 11..43 | | sha256 of the image |
//! | 43..51 | | offset of the guest's first byte |
//! | 51..67 | | UUID of this copy |
//! | 67..75 | | bytes of the image's disk |
//! | 75..107 | | who wrote it: printable ASCII, then zeros |
//! | 107..508 | | zeros |
//! | 508..512 | | CRC-32C of all bytes before |
//!
//! In version 1 the guest's disk begins in sector 1, and nothing says whether the copy of the image was finished.

use uuid::Uuid;

/// A sector that every device has, whatever its own are.
pub(super) const SECTOR: usize = 512;
/// Where a guest's disk begins behind a header that we write: whole sectors, pages and erase blocks of any device.
pub(super) const DATA: u64 = 1 << 20;
/// Where it begins behind one of Virtlet's.
pub(super) const DATA_V1: u64 = SECTOR as u64;

const MAGIC: [u8; 8] = 0x263d_be52_ba57_6702_u64.to_be_bytes();
const VERSION_1: u16 = 1;
const VERSION_2: u16 = 2;
const CRC_AT: usize = SECTOR - 4;
const WRITTEN_BY: &str = concat!("virtlet-rs ", env!("CARGO_PKG_VERSION"));
const WRITTEN_BY_LEN: usize = 32;
/// Guests' disks begin at multiples of that.
const ALIGNMENT: u64 = 4096;

/// SHA-256 of an image.
pub(super) type ImageHash = [u8; 32];

/// A header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Header {
    /// Virtlet's.
    V1 { image: ImageHash },
    /// Ours.
    V2(Written),
}

/// What a header of ours says of the copy behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) state: State,
    pub(super) image: ImageHash,
    /// Where the guest's disk begins.
    pub(super) offset: u64,
    /// No other copy has it.
    pub(super) uuid: Uuid,
    /// Bytes of the image's disk.
    pub(super) virtual_size: u64,
    /// The release that wrote it, for people.
    pub(super) written_by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// What is behind it is not whole.
    Writing,
    Ready,
}

/// Why a first sector that begins as a header is none that can be used. Nothing of such a device is touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("its header is of version {0}, and this release knows 1 and 2; upgrade virtlet-rs")]
    Newer(u16),
    #[error(
        "its header is damaged: {0}; restore the volume from a snapshot or a backup, or, if nothing on it is wanted, wipe it (`wipefs -a DEVICE`), blank its first MiB and \
         the image is copied to it anew"
    )]
    Damaged(&'static str),
}

// === impl Header ===

impl Header {
    /// Reads a first sector; `None` if that is no header at all.
    ///
    /// # Errors
    /// When it begins as one, and is none that this release can use.
    pub(super) fn read(sector: &[u8; SECTOR]) -> Result<Option<Self>, HeaderError> {
        let mut fields = Fields(sector);
        if fields.take::<8>() != MAGIC {
            return Ok(None);
        }
        match u16::from_be_bytes(fields.take()) {
            0 => Err(HeaderError::Damaged("there is no version 0")),
            VERSION_1 => Ok(Some(Self::V1 { image: fields.take() })),
            VERSION_2 => Written::read(sector, fields).map(|written| Some(Self::V2(written))),
            newer => Err(HeaderError::Newer(newer)),
        }
    }
}

// === impl Written ===

impl Written {
    /// One that is about to be made of an image.
    pub(super) fn begin(image: ImageHash, virtual_size: u64) -> Self {
        let uuid = Uuid::new_v4();
        Self { state: State::Writing, image, offset: DATA, uuid, virtual_size, written_by: WRITTEN_BY.to_owned() }
    }

    /// The same, whole.
    pub(super) fn finished(self) -> Self {
        Self { state: State::Ready, ..self }
    }

    /// Its sector.
    pub(super) fn sector(&self) -> [u8; SECTOR] {
        let mut bytes = Vec::with_capacity(SECTOR);
        bytes.extend(MAGIC);
        bytes.extend(VERSION_2.to_be_bytes());
        bytes.push(match self.state {
            State::Writing => 1,
            State::Ready => 2,
        });
        bytes.extend(self.image);
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.uuid.as_bytes());
        bytes.extend(self.virtual_size.to_be_bytes());
        bytes.extend(self.written_by.bytes().chain(std::iter::repeat(0)).take(WRITTEN_BY_LEN));
        bytes.resize(CRC_AT, 0);
        bytes.extend(crc32c(&bytes).to_be_bytes());
        let mut sector = [0; SECTOR];
        sector.copy_from_slice(&bytes);
        sector
    }

    fn read(sector: &[u8; SECTOR], mut fields: Fields<'_>) -> Result<Self, HeaderError> {
        let (said, crc) = sector.split_at(CRC_AT);
        if crc != crc32c(said).to_be_bytes() {
            return Err(HeaderError::Damaged("its checksum is wrong"));
        }
        let state = match fields.take::<1>() {
            [1] => State::Writing,
            [2] => State::Ready,
            _ => return Err(HeaderError::Damaged("there is no such state")),
        };
        let image = fields.take();
        let offset = u64::from_be_bytes(fields.take());
        let uuid = Uuid::from_bytes(fields.take());
        let virtual_size = u64::from_be_bytes(fields.take());
        let written_by = fields.take::<WRITTEN_BY_LEN>();
        if offset == 0 || !offset.is_multiple_of(ALIGNMENT) {
            return Err(HeaderError::Damaged("no guest's disk can begin where it says"));
        }
        if uuid.is_nil() {
            return Err(HeaderError::Damaged("it has no UUID"));
        }
        let written_by = written_by.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_plain = written_by.iter().all(|byte| matches!(byte, b' '..=b'~'));
        match std::str::from_utf8(written_by) {
            Ok(name) if is_plain => Ok(Self { state, image, offset, uuid, virtual_size, written_by: name.to_owned() }),
            _ => Err(HeaderError::Damaged("the name of who wrote it is none")),
        }
    }
}

/// The rest of a sector, field by field. Beyond its end there are zeros.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes.iter_mut().zip(field).for_each(|(to, from)| *to = *from);
        bytes
    }
}

/// Castagnoli's CRC (RFC 3720, appendix B.4), bit by bit: a header is short.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _bit: u8| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests;
