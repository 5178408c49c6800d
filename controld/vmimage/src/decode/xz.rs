//! xz streams, one behind the other, their blocks decompressed side by side where the file has several.
//!
//! The parallel decoder of liblzma knows one stream only, so what lies between streams is dealt with here: zero bytes in
//! fours (file format 1.2, section 2.2), and nothing else.

use std::io::{self, BufRead};
use std::num::NonZero;

use liblzma::stream::{Action, Error, MtStreamBuilder, Status, Stream};

use super::{Compression, DecodeError, XZ_MEMORY};

/// Above it, blocks are decompressed one after the other.
const PARALLEL_MEMORY: u64 = 96 << 20;
const MAX_THREADS: usize = 4;

pub(super) struct Decoder<R> {
    input: R,
    /// None between streams.
    stream: Option<Stream>,
}

impl<R: BufRead> Decoder<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, stream: None }
    }

    pub(super) fn into_inner(self) -> R {
        self.input
    }

    pub(super) fn get_mut(&mut self) -> &mut R {
        &mut self.input
    }

    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(stream) = &mut self.stream else {
                if !self.skip_padding()? {
                    return Ok(0);
                }
                self.stream = Some(start()?);
                continue;
            };
            let input = self.input.fill_buf()?;
            let at_end = input.is_empty();
            let before = (stream.total_in(), stream.total_out());
            let action = if at_end { Action::Finish } else { Action::Run };
            let status = stream.process(input, room, action).map_err(failed)?;
            let consumed = stream.total_in() - before.0;
            let produced = stream.total_out() - before.1;
            // Both are of the slices above.
            self.input.consume(usize::try_from(consumed).unwrap_or(usize::MAX));
            if status == Status::StreamEnd {
                self.stream = None;
            } else if status == Status::MemNeeded && produced == 0 && consumed == 0 {
                // No way on: the input is at its end, but the stream is not.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if produced > 0 {
                return Ok(usize::try_from(produced).unwrap_or(usize::MAX));
            }
        }
    }

    /// Whether another stream follows.
    fn skip_padding(&mut self) -> io::Result<bool> {
        let mut padding = 0;
        loop {
            let input = self.input.fill_buf()?;
            let more = input.first().copied();
            let zeros = input.iter().take_while(|&&byte| byte == 0).count();
            self.input.consume(zeros);
            padding += zeros;
            match more {
                Some(0) => {}
                // The mark's first byte; the decoder checks the others.
                Some(0xfd) if padding % 4 == 0 => return Ok(true),
                None if padding % 4 == 0 => return Ok(false),
                _ => return Err(io::Error::other(DecodeError::Trailing { by: Compression::Xz })),
            }
        }
    }
}

fn start() -> io::Result<Stream> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
    MtStreamBuilder::new()
        .threads(u32::try_from(threads).unwrap_or(1))
        .memlimit_threading(PARALLEL_MEMORY)
        .memlimit_stop(XZ_MEMORY)
        .decoder()
        .map_err(failed)
}

fn failed(error: Error) -> io::Error {
    let by = Compression::Xz;
    match error {
        Error::MemLimit => io::Error::other(DecodeError::Memory { by }),
        error => error.into(),
    }
}
