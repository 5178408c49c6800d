//! Tar archives as they stream by: entries in order, each with its data, nothing kept.
//!
//! Reads POSIX ustar and pax, and GNU's long names and sparse files (its old form and pax 0.0, 0.1 and 1.0), which is
//! what layers are made with. Every number is checked before it is used; what is odd is an error, as two readers that
//! differ over an odd archive see two images.

use std::io::{self, Read};

#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub mod exercise;
mod fields;
mod pax;
mod sparse;
#[cfg(test)]
mod tests;

use fields::{decimal, name, number, until_zero};
use pax::{Ahead, Extended};
pub use sparse::Data;
use sparse::{MAX_PIECES, Piece, add_old, check};

const BLOCK: usize = 512;
/// Entries of an archive, unless its reader says otherwise.
const MAX_ENTRIES: u64 = 100_000;
/// Bytes of an extended header, of a long name, or of a map of a sparse file.
const MAX_EXTENSION: u64 = 1024 * 1024;
/// Pieces in a block of a map of GNU's old form.
const OLD_PIECES: usize = 21;

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    /// It ends amid something.
    #[error("the archive is cut off")]
    Truncated,
    /// No header where one must be.
    #[error("no tar archive, or a broken one ({0})")]
    Header(&'static str),
    /// An extended header that makes no sense.
    #[error("broken extended header ({0})")]
    Extension(&'static str),
    /// A map that makes no sense.
    #[error("broken map of a sparse file ({0})")]
    Sparse(&'static str),
    /// More than anybody needs.
    #[error("more than {0} entries")]
    Entries(u64),
}

impl From<TarError> for io::Error {
    fn from(error: TarError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Regular,
    Directory,
    Symlink,
    Hardlink,
    Device,
    Fifo,
    /// Something of another tool.
    Other,
}

/// An entry, whose data come next.
#[derive(Debug)]
pub struct Entry {
    pub path: Vec<u8>,
    /// Of a link: what it leads to, which the archive may lie about.
    pub target: Vec<u8>,
    pub kind: Kind,
    /// Permissions (chmod(2)), with what else may be among them.
    pub mode: u32,
    /// Bytes of the data, with the holes of a sparse file.
    pub size: u64,
    /// Bytes of the headers in front of its own.
    pub ahead: u64,
    /// Where the stored bytes belong, if not one after the other.
    pieces: Option<Vec<Piece>>,
}

/// A reader of entries.
#[derive(Debug)]
pub struct Tar<R> {
    input: R,
    entries: u64,
    most: u64,
    /// Bytes of the current entry, and its padding, that were not read yet.
    stored: u64,
    padding: u64,
}

impl<R: Read> Tar<R> {
    #[must_use]
    pub fn new(input: R) -> Self {
        Self::of(input, MAX_ENTRIES)
    }

    /// A reader of an archive of no more headers than these.
    #[must_use]
    pub fn of(input: R, most: u64) -> Self {
        Self { input, entries: 0, most, stored: 0, padding: 0 }
    }

    /// The next entry, or nothing at the archive's end. What was not read of the last one is passed over.
    ///
    /// # Errors
    /// Those of the input, and a [`TarError`] in one of kind `InvalidData`.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let (mut ahead, mut bytes) = (Ahead::default(), 0);
        loop {
            self.pass_over()?;
            let Some(header) = self.header()? else {
                return if ahead.is_empty() { Ok(None) } else { Err(TarError::Truncated.into()) };
            };
            self.entries += 1;
            if self.entries > self.most {
                return Err(TarError::Entries(self.most).into());
            }
            let size = number(&header[124..136]).ok_or(TarError::Header("size"))?;
            self.begin(size)?;
            match header[156] {
                b'x' => ahead.pax(&self.extension()?)?,
                b'g' => ahead.global(&self.extension()?)?,
                b'L' => ahead.long_path(until_zero(&self.extension()?))?,
                b'K' => ahead.long_target(until_zero(&self.extension()?))?,
                _ => {
                    let entry = self.entry(&header, size, ahead.together()?)?;
                    return Ok(Some(Entry { ahead: bytes, ..entry }));
                }
            }
            bytes += BLOCK as u64 + size;
        }
    }

    fn entry(&mut self, header: &[u8; BLOCK], size: u64, extended: Extended) -> io::Result<Entry> {
        let kind = match header[156] {
            b'0' | 0 | b'7' | b'S' => Kind::Regular,
            b'1' => Kind::Hardlink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            _ => Kind::Other,
        };
        let stored = extended.size.unwrap_or(size);
        // These have no data, whatever their size says (POSIX pax, ustar interchange format).
        let stored = if matches!(kind, Kind::Regular | Kind::Other) { stored } else { 0 };
        self.begin(stored)?;
        let is_sparse = extended.is_sparse();
        let Extended { path, target, sparse_name, sparse_size, sparse_version, map, .. } = extended;
        let path = if is_sparse { sparse_name.or(path) } else { path };
        let path = path.unwrap_or_else(|| name(header));
        if path.is_empty() || path.contains(&0) {
            return Err(TarError::Header("name").into());
        }
        let target = target.unwrap_or_else(|| until_zero(&header[157..257]));
        let (size, pieces) = if header[156] == b'S' {
            if is_sparse {
                return Err(TarError::Sparse("two forms at once").into());
            }
            let size = number(&header[483..495]).ok_or(TarError::Sparse("size"))?;
            (size, Some(self.old_map(header)?))
        } else if is_sparse && kind == Kind::Regular {
            let size = sparse_size.ok_or(TarError::Sparse("no size"))?;
            match sparse_version {
                Some((1, 0)) => (size, Some(self.map_in_data()?)),
                None | Some((0, 0 | 1)) => (size, Some(map)),
                Some(_) => return Err(TarError::Sparse("unknown version").into()),
            }
        } else {
            (stored, None)
        };
        if let Some(pieces) = &pieces {
            check(pieces, size, self.stored)?;
        }
        let mode = number(&header[100..108]).and_then(|mode| u32::try_from(mode).ok()).unwrap_or_default();
        Ok(Entry { path, target, kind, mode, size, ahead: 0, pieces })
    }

    /// Data of the current entry as they are stored.
    fn read_stored(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let most = room.len().min(usize::try_from(self.stored).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        match self.input.read(&mut room[..most])? {
            0 => Err(TarError::Truncated.into()),
            count => {
                self.stored -= count as u64;
                Ok(count)
            }
        }
    }

    fn begin(&mut self, stored: u64) -> Result<(), TarError> {
        if stored > i64::MAX.cast_unsigned() {
            return Err(TarError::Header("size"));
        }
        self.stored = stored;
        self.padding = stored.next_multiple_of(BLOCK as u64) - stored;
        Ok(())
    }

    fn pass_over(&mut self) -> io::Result<()> {
        let left = self.stored + self.padding;
        let passed = io::copy(&mut (&mut self.input).take(left), &mut io::sink())?;
        if passed != left {
            return Err(TarError::Truncated.into());
        }
        (self.stored, self.padding) = (0, 0);
        Ok(())
    }

    /// A header whose sum is right; nothing at a block of zeros or where the archive ends without one.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(TarError::Truncated.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if block == [0; BLOCK] {
            return Ok(None);
        }
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
            .sum();
        if number(&block[148..156]) != Some(sum) {
            return Err(TarError::Header("checksum").into());
        }
        Ok(Some(block))
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.stored > MAX_EXTENSION {
            return Err(TarError::Extension("too long").into());
        }
        let mut bytes = vec![0; usize::try_from(self.stored).map_err(io::Error::other)?];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_stored(&mut bytes[filled..])? {
                0 => return Err(TarError::Truncated.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// The map of GNU's old form: four pieces in the header, more in blocks behind it.
    fn old_map(&mut self, header: &[u8; BLOCK]) -> io::Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        add_old(&header[386..482], &mut pieces)?;
        let mut more = header[482] != 0;
        // Blocks are counted, and not pieces, of which a block may have none.
        for _ in 0..=MAX_PIECES / OLD_PIECES {
            if !more {
                return Ok(pieces);
            }
            let mut block = [0; BLOCK];
            self.input.read_exact(&mut block).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => TarError::Truncated.into(),
                _ => error,
            })?;
            add_old(&block[..504], &mut pieces)?;
            more = block[504] != 0;
        }
        Err(TarError::Sparse("too many pieces").into())
    }

    /// The map of pax 1.0: lines of decimal numbers in front of the data, padded to a block.
    fn map_in_data(&mut self) -> io::Result<Vec<Piece>> {
        let mut numbers: Vec<u64> = Vec::new();
        let mut wanted = 1;
        let mut digits = Vec::new();
        let mut read = 0_u64;
        while numbers.len() < wanted {
            let mut block = [0; BLOCK];
            self.fill(&mut block)?;
            read += BLOCK as u64;
            if read > MAX_EXTENSION {
                return Err(TarError::Sparse("too long").into());
            }
            for byte in block {
                if numbers.len() == wanted {
                    break;
                }
                if byte != b'\n' {
                    digits.push(byte);
                    continue;
                }
                let number = decimal(&digits).ok_or(TarError::Sparse("no number"))?;
                digits.clear();
                numbers.push(number);
                if numbers.len() == 1 {
                    let count = usize::try_from(number).ok().filter(|count| *count <= MAX_PIECES);
                    wanted = 1 + 2 * count.ok_or(TarError::Sparse("too many pieces"))?;
                }
            }
        }
        Ok(numbers[1..].chunks_exact(2).map(|pair| Piece { at: pair[0], length: pair[1] }).collect())
    }
}
