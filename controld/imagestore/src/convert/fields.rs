//! Numbers in headers. What is not there is zero, which no check takes for sound.

use std::io;

use crate::inspect::bytes::Bytes;

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
