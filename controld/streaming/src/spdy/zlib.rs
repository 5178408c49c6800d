//! Compression of header blocks: one zlib stream per direction (RFC 1950), each block ended by a sync flush.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::dictionary::{ADLER, DICTIONARY};

/// By how much output buffers grow.
const STEP: usize = 1024;

/// Why a header block cannot be decompressed. The stream is of no use after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ZlibError {
    /// It is not zlib's format, or its checksum is wrong.
    #[error("header block is not zlib data")]
    Corrupt,
    /// It names another dictionary.
    #[error("header block wants the dictionary {0:08x}, which is not that of SPDY/3")]
    Dictionary(u32),
    /// The stream of blocks says that it is over.
    #[error("header compression was ended by the peer")]
    Ended,
    /// It is larger than it may be.
    #[error("header block is larger than {0} bytes when decompressed")]
    TooLarge(usize),
}

/// Decompresses the blocks of one direction.
#[derive(Debug)]
pub(super) struct Inflater(Decompress);

/// Compresses the blocks of one direction.
#[derive(Debug)]
pub(super) struct Deflater(Compress);

// === impl Inflater ===

impl Inflater {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// The next block, of which no more than `limit` bytes are taken.
    pub(super) fn inflate(&mut self, block: &[u8], limit: usize) -> Result<Vec<u8>, ZlibError> {
        let (start_in, start_out) = (self.0.total_in(), self.0.total_out());
        let mut plain = Vec::new();
        loop {
            let consumed = progress(self.0.total_in(), start_in);
            let filled = progress(self.0.total_out(), start_out);
            if filled > limit {
                return Err(ZlibError::TooLarge(limit));
            }
            if filled == plain.len() {
                plain.resize(filled + STEP, 0);
            }
            let input = block.get(consumed..).unwrap_or_default();
            let output = plain.get_mut(filled..).unwrap_or_default();
            match self.0.decompress(input, output, FlushDecompress::Sync) {
                Ok(Status::Ok | Status::BufError) => {}
                Ok(Status::StreamEnd) => return Err(ZlibError::Ended),
                Err(error) => match error.needs_dictionary() {
                    Some(ADLER) => {
                        self.0.set_dictionary(&DICTIONARY).map_err(|_| ZlibError::Corrupt)?;
                        continue;
                    }
                    Some(other) => return Err(ZlibError::Dictionary(other)),
                    None => return Err(ZlibError::Corrupt),
                },
            }
            let now_consumed = progress(self.0.total_in(), start_in);
            let now_filled = progress(self.0.total_out(), start_out);
            // Room left in the output means that nothing more is to come from this input.
            if now_consumed == block.len() && now_filled < plain.len() {
                if now_filled > limit {
                    return Err(ZlibError::TooLarge(limit));
                }
                plain.truncate(now_filled);
                return Ok(plain);
            }
            if (now_consumed, now_filled) == (consumed, filled) {
                return Err(ZlibError::Corrupt);
            }
        }
    }
}

/// What a call did, of what the stream did in all.
fn progress(total: u64, start: u64) -> usize {
    usize::try_from(total.saturating_sub(start)).unwrap_or(usize::MAX)
}

// === impl Deflater ===

impl Deflater {
    pub(super) fn new() -> Self {
        let mut compress = Compress::new(Compression::default(), true);
        compress.set_dictionary(&DICTIONARY).expect("a new compressor takes a dictionary");
        Self(compress)
    }

    /// The next block.
    pub(super) fn deflate(&mut self, plain: &[u8]) -> Vec<u8> {
        let start = self.0.total_in();
        let mut block = Vec::new();
        loop {
            block.reserve(STEP);
            let input = plain.get(progress(self.0.total_in(), start)..).unwrap_or_default();
            self.0.compress_vec(input, &mut block, FlushCompress::Sync).expect("zlib takes any input and has room");
            // Room left in the output means that the block is flushed.
            if progress(self.0.total_in(), start) == plain.len() && block.len() < block.capacity() {
                return block;
            }
        }
    }
}
