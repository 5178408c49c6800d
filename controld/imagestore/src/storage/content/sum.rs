//! The digest of a file's bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};
use vmimage::digest::{Algorithm, Digest};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Length and SHA-256 of a file, from its beginning.
pub(super) fn sha256(file: &File) -> io::Result<(u64, Digest)> {
    let mut sum = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return Ok((at, Digest::computed(Algorithm::Sha256, &sum.finalize()))),
            Ok(length) => {
                sum.update(&piece[..length]);
                at += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
