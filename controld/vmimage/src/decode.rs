//! Decompresses a stream: gzip, xz, Zstandard and bzip2, found by their first bytes and never by a name or a header.
//!
//! Used by ingest, on a thread of its own or, as controld configures it, in a process of its own ([`Decompressor`]).
//! The whole input must be one or more sound streams of one kind: input that is cut off is an error, and so are bytes
//! behind the last stream. Checksums inside the streams are verified. Memory is bounded whatever the input asks for
//! ([`XZ_MEMORY`], [`ZSTD_WINDOW_LOG`]); the caller bounds the output. The output is decompressed no further: an image
//! that was compressed twice comes out compressed, and the inspection refuses it.

use std::io::{self, BufRead, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;

mod apart;
mod child;
#[cfg(any(test, feature = "exercise"))]
mod compress;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
#[cfg(test)]
mod tests;
mod xz;

pub use apart::{Decompressed, Decompressor, Keeper, Leash};
pub use child::{confine, run_apart};
#[cfg(any(test, feature = "exercise"))]
pub use compress::compress;
#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;

/// Most memory for one xz stream, whatever its dictionary: `xz -9` needs half of it.
const XZ_MEMORY: u64 = 128 << 20;
/// Largest window of Zstandard: 128 MiB, which is also what `zstd -d` takes without being told otherwise.
const ZSTD_WINDOW_LOG: u32 = 27;

/// A way of compressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip, RFC 1952.
    Gzip,
    /// xz, with LZMA2.
    Xz,
    /// Zstandard, RFC 8878.
    Zstd,
    Bzip2,
}

/// Why a stream could not be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The end is missing.
    #[error("{by} stream is cut off")]
    Truncated {
        /// What it is compressed by.
        by: Compression,
    },
    /// Something follows.
    #[error("{by} stream is followed by something else")]
    Trailing {
        /// What it is compressed by.
        by: Compression,
    },
    /// It wants too much.
    #[error("{by} stream needs more than {} MiB of memory; compress with a smaller dictionary or window", XZ_MEMORY >> 20)]
    Memory {
        /// What it is compressed by.
        by: Compression,
    },
    /// It is not sound.
    #[error("{by} stream is broken")]
    Broken {
        /// What it is compressed by.
        by: Compression,
        #[source]
        cause: io::Error,
    },
    /// It could not be begun.
    #[error("failed to start decompressing {by}")]
    Start {
        /// What it is compressed by.
        by: Compression,
        #[source]
        cause: io::Error,
    },
    /// Its process is gone.
    #[error("the process that decompressed a {by} stream died ({})", shown(*.status))]
    Died {
        /// What it is compressed by.
        by: Compression,
        /// How, if it is known.
        status: Option<ExitStatus>,
    },
}

impl DecodeError {
    /// Whether it says nothing of the stream: its process could not be started, or somebody ended it.
    pub fn is_ours(&self) -> bool {
        match self {
            Self::Start { .. } => true,
            Self::Died { status, .. } => status.is_none_or(|status| {
                status.signal().is_some_and(|signal| [libc::SIGKILL, libc::SIGTERM].contains(&signal))
            }),
            Self::Truncated { .. } | Self::Trailing { .. } | Self::Memory { .. } | Self::Broken { .. } => false,
        }
    }
}

fn shown(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "killed".into(), |status| status.to_string())
}

impl Compression {
    const ALL: [Self; 4] = [Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2];

    /// What a stream that begins with these bytes is compressed by.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.marks(head))
    }

    fn marks(self, head: &[u8]) -> bool {
        match self {
            Self::Gzip => head.starts_with(b"\x1f\x8b"),
            Self::Xz => head.starts_with(b"\xfd7zXZ\0"),
            Self::Zstd => head.starts_with(b"\x28\xb5\x2f\xfd"),
            Self::Bzip2 => head.starts_with(b"BZh") && head.get(3).is_none_or(|level| (b'1'..=b'9').contains(level)),
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// Reads what is in a compressed stream. Its errors carry a [`DecodeError`], except those of the input.
pub(crate) struct Decoder<R: BufRead> {
    by: Compression,
    input: Input<R>,
    ended: bool,
}

enum Input<R: BufRead> {
    Gzip(MultiGzDecoder<Watched<R>>),
    Xz(xz::Decoder<Watched<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Watched<R>>),
    Bzip2(MultiBzDecoder<Watched<R>>),
}

impl<R: BufRead> Decoder<R> {
    /// A decoder of `input`, which is compressed by `by`.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn new(by: Compression, input: R) -> Result<Self, DecodeError> {
        let input = Watched { input, failed: false };
        let input = match by {
            Compression::Gzip => Input::Gzip(MultiGzDecoder::new(input)),
            Compression::Xz => Input::Xz(xz::Decoder::new(input)),
            Compression::Zstd => zstd::stream::read::Decoder::with_buffer(input)
                .and_then(|mut decoder| decoder.window_log_max(ZSTD_WINDOW_LOG).map(|()| decoder))
                .map(Input::Zstd)
                .map_err(|cause| DecodeError::Start { by, cause })?,
            Compression::Bzip2 => Input::Bzip2(MultiBzDecoder::new(input)),
        };
        Ok(Self { by, input, ended: false })
    }

    pub(crate) fn into_inner(self) -> R {
        let input = match self.input {
            Input::Gzip(decoder) => decoder.into_inner(),
            Input::Xz(decoder) => decoder.into_inner(),
            Input::Zstd(decoder) => decoder.finish(),
            Input::Bzip2(decoder) => decoder.into_inner(),
        };
        input.input
    }

    fn watched(&mut self) -> &mut Watched<R> {
        match &mut self.input {
            Input::Gzip(decoder) => decoder.get_mut(),
            Input::Xz(decoder) => decoder.get_mut(),
            Input::Zstd(decoder) => decoder.get_mut(),
            Input::Bzip2(decoder) => decoder.get_mut(),
        }
    }

    fn explain(&mut self, cause: io::Error) -> io::Error {
        let by = self.by;
        if self.watched().failed || cause.get_ref().is_some_and(|cause| cause.is::<DecodeError>()) {
            return cause;
        }
        io::Error::other(match cause.kind() {
            io::ErrorKind::UnexpectedEof => DecodeError::Truncated { by },
            // The library has no code for it, only this text.
            _ if cause.to_string().contains("too much memory") => DecodeError::Memory { by },
            _ => DecodeError::Broken { by, cause },
        })
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.ended || room.is_empty() {
            return Ok(0);
        }
        let read = match &mut self.input {
            Input::Gzip(decoder) => decoder.read(room),
            Input::Xz(decoder) => decoder.read(room),
            Input::Zstd(decoder) => decoder.read(room),
            Input::Bzip2(decoder) => decoder.read(room),
        };
        let count = read.map_err(|cause| self.explain(cause))?;
        if count == 0 {
            self.ended = true;
            if !self.watched().fill_buf()?.is_empty() {
                return Err(io::Error::other(DecodeError::Trailing { by: self.by }));
            }
        }
        Ok(count)
    }
}

impl<R: BufRead> std::fmt::Debug for Decoder<R> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Decoder({})", self.by)
    }
}

/// The input, and whether an error came from it and not from what is in it.
struct Watched<R> {
    input: R,
    failed: bool,
}

impl<R: BufRead> Read for Watched<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.input.read(room).inspect_err(|_| self.failed = true)
    }
}

impl<R: BufRead> BufRead for Watched<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf().inspect_err(|_| self.failed = true)
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }
}
