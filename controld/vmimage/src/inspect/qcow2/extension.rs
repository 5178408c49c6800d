//! Header extensions: a type, a length and so many bytes, padded to 8, up to an end mark.

use super::{BITMAP_DIRECTORY, Fields, Qcow2Error, Table};

const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const DATA_FILE: u32 = 0x4441_5441;
const ENCRYPTION: u32 = 0x0537_be77;
const BITMAPS: u32 = 0x2385_2875;

/// LUKS, which is what the extension is about.
const LUKS: u32 = 2;
/// QEMU keeps the name of the format in 16 bytes.
const MAX_BACKING_FORMAT: usize = 15;
const BITMAPS_LENGTH: usize = 24;
// QEMU's limits (block/qcow2.h).
const MAX_BITMAPS: u32 = 65_535;
const MAX_DIRECTORY: u64 = 1024 * MAX_BITMAPS as u64;

/// What the extensions say that matters.
#[derive(Debug, Default)]
pub(super) struct Extensions<'a> {
    pub(super) backing_format: Option<&'a [u8]>,
    pub(super) bitmaps: Option<Bitmaps>,
}

/// Where the bitmaps are listed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bitmaps {
    pub(super) count: u32,
    offset: u64,
    bytes: u64,
}

impl<'a> Extensions<'a> {
    /// Walks those between `start` and `end`.
    pub(super) fn read(head: &'a [u8], start: u32, end: u64) -> Result<Self, Qcow2Error> {
        let end = usize::try_from(end).map_err(|_| Qcow2Error::Truncated)?;
        let mut found = Self::default();
        let mut offset = start as usize;
        while offset < end {
            if end - offset < 8 {
                return Err(Qcow2Error::Extension { kind: 0, offset });
            }
            let field = Fields(head);
            let (kind, length) = (field.u32(offset)?, field.u32(offset + 4)? as usize);
            // Whatever else is wrong with them: these are why an image must not be opened.
            match kind {
                DATA_FILE => return Err(Qcow2Error::DataFile),
                ENCRYPTION => return Err(Qcow2Error::Encrypted(LUKS)),
                _ => {}
            }
            if length > end - offset - 8 {
                return Err(Qcow2Error::Extension { kind, offset });
            }
            if kind == END {
                return Ok(found);
            }
            let body = head.get(offset + 8..offset + 8 + length).ok_or(Qcow2Error::Truncated)?;
            match kind {
                BACKING_FORMAT if length > MAX_BACKING_FORMAT => return Err(Qcow2Error::Extension { kind, offset }),
                BACKING_FORMAT => found.backing_format = Some(body),
                BITMAPS => found.bitmaps = Some(Bitmaps::read(body)?),
                // Names of features, and what later versions add that older ones may ignore.
                _ => {}
            }
            offset += 8 + length.next_multiple_of(8);
        }
        Ok(found)
    }
}

impl Bitmaps {
    fn read(body: &[u8]) -> Result<Self, Qcow2Error> {
        if body.len() != BITMAPS_LENGTH {
            return Err(Qcow2Error::Bitmaps("their extension has a wrong length"));
        }
        let field = Fields(body);
        let count = field.u32(0)?;
        if field.u32(4)? != 0 {
            return Err(Qcow2Error::Bitmaps("a reserved field is set"));
        }
        if count == 0 || count > MAX_BITMAPS {
            return Err(Qcow2Error::Bitmaps("there are none, or too many"));
        }
        Ok(Self { count, bytes: field.u64(8)?, offset: field.u64(16)? })
    }

    pub(super) fn directory(self, cluster: u64, length: Option<u64>) -> Result<Table, Qcow2Error> {
        let Self { count, offset, bytes } = self;
        if bytes == 0 || bytes > MAX_DIRECTORY {
            return Err(Qcow2Error::TableSize { table: BITMAP_DIRECTORY, entries: bytes });
        }
        Table { name: BITMAP_DIRECTORY, offset, entries: count.into(), bytes }.checked(cluster, length)
    }
}
