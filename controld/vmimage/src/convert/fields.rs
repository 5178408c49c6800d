//! Reads numbers in headers and tables. A number behind the end of the bytes is read as zero, which no check accepts.

use std::io;

use super::Stop;
use crate::inspect::bytes::Bytes;

/// What is read of a table at a time.
const PIECE: usize = 64 * 1024;

/// A piece of a file.
pub(super) struct Piece(Vec<u8>);

impl Piece {
    /// `length` bytes from `at` on, zeros behind the end. `length` is never what a file claims.
    pub(super) fn read(file: &dyn Bytes, at: u64, length: usize) -> io::Result<Self> {
        let mut piece = vec![0; length];
        file.read(at, &mut piece)?;
        Ok(Self(piece))
    }

    pub(super) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        self.0.get(at..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }

    pub(super) fn all(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn le16(&self, at: usize) -> u16 {
        self.array(at).map_or(0, u16::from_le_bytes)
    }

    pub(super) fn le32(&self, at: usize) -> u32 {
        self.array(at).map_or(0, u32::from_le_bytes)
    }

    pub(super) fn le64(&self, at: usize) -> u64 {
        self.array(at).map_or(0, u64::from_le_bytes)
    }

    pub(super) fn be32(&self, at: usize) -> u32 {
        self.array(at).map_or(0, u32::from_be_bytes)
    }

    pub(super) fn be64(&self, at: usize) -> u64 {
        self.array(at).map_or(0, u64::from_be_bytes)
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }
}

/// Whether all are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Calls `check` with the place in the table, and the bytes, of each of `count` entries that begin at `at`.
pub(super) fn each<const N: usize>(
    file: &dyn Bytes,
    at: u64,
    count: u64,
    mut check: impl FnMut(u64, [u8; N]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let per_piece = PIECE / N;
    let mut room = vec![0; usize::try_from(count).unwrap_or(per_piece).min(per_piece) * N];
    let mut index = 0;
    while index < count {
        let entries = usize::try_from(count - index).unwrap_or(per_piece).min(per_piece);
        let piece = &mut room[..entries * N];
        file.read(at + index * N as u64, piece)?;
        for entry in piece.chunks_exact(N) {
            check(index, entry.first_chunk().copied().unwrap_or([0; N]))?;
            index += 1;
        }
    }
    Ok(())
}
