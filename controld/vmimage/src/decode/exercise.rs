//! For the fuzzer: decompresses whatever it is given.

use std::io::{BufReader, Read};

use super::{Compression, Decoder};

/// Most bytes that are taken out, so that a bomb does not stop the fuzzer.
const MOST: u64 = 1 << 20;

/// Decompresses bytes that begin as a stream does, in one go and in small pieces. Both must come to the same.
///
/// # Panics
/// If they do not.
pub fn exercise(bytes: &[u8]) {
    let Some(by) = Compression::of(bytes) else { return };
    let outcomes = [1 << 16, 3].map(|piece| {
        let mut out = Vec::new();
        let decoder = Decoder::new(by, BufReader::with_capacity(piece, bytes)).ok()?;
        let read = decoder.take(MOST).read_to_end(&mut out);
        read.is_ok().then_some(out)
    });
    assert_eq!(outcomes[0], outcomes[1], "the size of the pieces matters");
}
