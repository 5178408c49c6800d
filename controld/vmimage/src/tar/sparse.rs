//! Sparse files: which parts of one are stored, and its data with the holes filled in.

use std::io::{self, Read};

use super::fields::number;
use super::{Entry, Tar, TarError};

/// Pieces of a sparse file.
pub(super) const MAX_PIECES: usize = 100_000;

/// A part of a sparse file that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) length: u64,
}

/// Reads an entry's data with the holes of a sparse file filled in.
#[derive(Debug)]
pub struct Data {
    /// Where the next byte is.
    at: u64,
    size: u64,
    pieces: Option<Vec<Piece>>,
    next: usize,
}

impl Data {
    #[must_use]
    pub fn of(entry: Entry) -> Self {
        Self { at: 0, size: entry.size, pieces: entry.pieces, next: 0 }
    }

    /// Bytes of the entry that `tar` is at; none at its end.
    ///
    /// # Errors
    /// As of [`Tar::next_entry`].
    pub fn read<R: Read>(&mut self, tar: &mut Tar<R>, room: &mut [u8]) -> io::Result<usize> {
        let Some(pieces) = &self.pieces else { return tar.read_stored(room) };
        let limit = |length: u64| room.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        while let Some(piece) = pieces.get(self.next) {
            if self.at < piece.at {
                let count = limit(piece.at - self.at);
                room[..count].fill(0);
                self.at += count as u64;
                return Ok(count);
            }
            let left = piece.at + piece.length - self.at;
            if left > 0 {
                let count = limit(left);
                let count = tar.read_stored(&mut room[..count])?;
                self.at += count as u64;
                return Ok(count);
            }
            self.next += 1;
        }
        let count = limit(self.size - self.at);
        room[..count].fill(0);
        self.at += count as u64;
        Ok(count)
    }
}

/// Pieces in order, apart, within the file, and as many bytes as are stored.
pub(super) fn check(pieces: &[Piece], size: u64, stored: u64) -> Result<(), TarError> {
    let mut end = 0_u64;
    let mut sum = 0_u64;
    for piece in pieces {
        if piece.at < end {
            return Err(TarError::Sparse("pieces out of order"));
        }
        end =
            piece.at.checked_add(piece.length).filter(|end| *end <= size).ok_or(TarError::Sparse("beyond the end"))?;
        // No more than `end`, which is in bounds.
        sum += piece.length;
    }
    if sum == stored { Ok(()) } else { Err(TarError::Sparse("other length than stored")) }
}

/// Adds the pieces of a map of GNU's old form, or of a part of one.
pub(super) fn add_old(fields: &[u8], pieces: &mut Vec<Piece>) -> Result<(), TarError> {
    for field in fields.chunks_exact(24) {
        if field[0] == 0 {
            break;
        }
        let (at, length) = (number(&field[..12]), number(&field[12..]));
        let (Some(at), Some(length)) = (at, length) else { return Err(TarError::Sparse("no number")) };
        pieces.push(Piece { at, length });
    }
    Ok(())
}
