//! The thread that opens what is around a disk: decompresses it, and takes it out of an archive.
//!
//! Compressed bytes are read where they lie in the receiver's blocks, by a process of its own if the store has a
//! program for that. What comes out goes into blocks of this thread.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use vmimage::decode::{Compression, DecodeError, Decompressed, Decompressor, Leash};

use super::{Block, GiveBack, Hashers, Ingest, IngestError, Inlet, OutputLimits, Place, Step, Sums};
use crate::sources::provider::Unpack;
use crate::storage::content::{GRAIN, is_zero};

/// What is to be opened, and what to watch for.
pub(super) struct Opening {
    pub(super) compression: Option<Compression>,
    pub(super) decompressor: Decompressor,
    /// On which its process is.
    pub(super) leash: Leash,
    pub(super) unpack: Option<Arc<dyn Unpack>>,
    pub(super) hosted: Hashers,
    pub(super) archive: Hashers,
    pub(super) limits: OutputLimits,
    /// Blocks to fill.
    pub(super) spare: Receiver<Block>,
}

/// Why the thread ends early.
enum Stop {
    /// Nobody wants it any more, in front or behind.
    Abandoned,
    Failed(IngestError),
}

/// Body of the thread.
pub(super) fn open(opening: Opening, from: Inlet, give_back: GiveBack, out: &SyncSender<Step>) {
    let Opening { compression, decompressor, leash, unpack, hosted, archive, limits, spare } = opening;
    let came = Arc::new(AtomicU64::new(0));
    let hosted = Hosted { from, give_back, block: None, at: 0, hashers: hosted, came: came.clone(), end: None };
    let mut sink = Sink { spare, out, first: true };
    let opened = opened(compression, &decompressor, hosted, &leash).and_then(|mut archived| {
        let input = Limited { input: &mut archived, limits, came, bytes: 0, filled: 0 };
        let archive = take_out(unpack, Tap { input, hashers: archive, failed: None }, &mut sink)?;
        Ok((archive, archived.into_input()))
    });
    let last = match opened {
        Ok((archive, Some(Hosted { hashers, end: Some(mut sums), .. }))) => {
            hashers.finish(Place::Hosted, &mut sums);
            archive.finish(Place::Archive, &mut sums);
            Step::End(sums)
        }
        // Every decoder reads to the end.
        Ok(_) => Step::Failed(IngestError::Lost),
        Err(Stop::Failed(error)) => Step::Failed(error),
        Err(Stop::Abandoned) => return,
    };
    let _ = out.send(last);
}

/// What is in the compression, if there is any.
enum Archived {
    Plain(Hosted),
    Compressed(Decompressed<Hosted>),
}

impl Archived {
    fn into_input(self) -> Option<Hosted> {
        match self {
            Self::Plain(hosted) => Some(hosted),
            Self::Compressed(decompressed) => decompressed.into_input(),
        }
    }
}

impl Read for Archived {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(hosted) => hosted.read(room),
            Self::Compressed(decompressed) => decompressed.read(room),
        }
    }
}

fn opened(
    by: Option<Compression>,
    decompressor: &Decompressor,
    hosted: Hosted,
    leash: &Leash,
) -> Result<Archived, Stop> {
    let Some(by) = by else { return Ok(Archived::Plain(hosted)) };
    let decompressed = decompressor.open(by, hosted, leash).map_err(|error| Stop::Failed(error.into()))?;
    Ok(Archived::Compressed(decompressed))
}

/// Brings the disk to the sink, and the archive around it to its end.
fn take_out<R: Read + Send>(
    unpack: Option<Arc<dyn Unpack>>,
    mut archive: Tap<R>,
    sink: &mut Sink<'_>,
) -> Result<Hashers, Stop> {
    let done = match unpack {
        None => sink.fill_from(&mut archive),
        Some(unpack) => {
            let disk = unpack.unpack(&mut archive).map_err(|cause| Stop::Failed(IngestError::Unpack(cause)));
            let filled = disk.and_then(|mut disk| sink.fill_from(&mut *disk));
            filled.and_then(|()| {
                io::copy(&mut archive, &mut io::sink()).map_err(|cause| Stop::Failed(IngestError::Unpack(cause)))?;
                Ok(())
            })
        }
    };
    // What went wrong further in front is the reason, whatever was made of it on the way.
    match (done, archive.failed) {
        (_, Some(stop)) => Err(stop),
        (Err(stop), None) => Err(stop),
        (Ok(()), None) => Ok(archive.hashers),
    }
}

/// The bytes as they come.
struct Hosted {
    from: Inlet,
    give_back: GiveBack,
    block: Option<Block>,
    at: usize,
    hashers: Hashers,
    /// How many there were.
    came: Arc<AtomicU64>,
    /// Set at the end.
    end: Option<Sums>,
}

/// The error of a read when the pull was given up.
#[derive(Debug, thiserror::Error)]
#[error("pull was given up")]
struct Abandoned;

impl BufRead for Hosted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.end.is_none() && self.block.as_ref().is_none_or(|block| self.at == block.bytes().len()) {
            if let Some(mut block) = self.block.take() {
                block.clear();
                (self.give_back)(block);
            }
            match self.from.next() {
                Some(Step::Block(block)) => {
                    self.hashers.update(block.bytes());
                    self.came.fetch_add(block.bytes().len() as u64, Ordering::Relaxed);
                    (self.block, self.at) = (Some(block), 0);
                }
                Some(Step::End(sums)) => self.end = Some(sums),
                Some(Step::Failed(_)) | None => return Err(io::Error::other(Abandoned)),
            }
        }
        Ok(self.block.as_ref().map_or(&[], |block| &block.bytes()[self.at..]))
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }
}

impl Read for Hosted {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(room)?;
        self.consume(count);
        Ok(count)
    }
}

/// Bounds what comes out.
struct Limited<R> {
    input: R,
    limits: OutputLimits,
    came: Arc<AtomicU64>,
    bytes: u64,
    /// Those in stretches that are not all zero.
    filled: u64,
}

impl<R: Read> Limited<R> {
    fn read(&mut self, room: &mut [u8]) -> Result<usize, Stop> {
        let count = self.input.read(room).map_err(|cause| {
            if cause.get_ref().is_some_and(|cause| cause.is::<Abandoned>()) {
                return Stop::Abandoned;
            }
            Stop::Failed(cause.downcast::<DecodeError>().map_or_else(IngestError::Unpack, IngestError::Decode))
        })?;
        let OutputLimits { bytes, ratio, ratio_from } = self.limits;
        self.bytes += count as u64;
        if self.bytes > bytes {
            return Err(Stop::Failed(IngestError::TooLarge { limit: bytes }));
        }
        let filled = room[..count].chunks(GRAIN).filter(|chunk| !is_zero(chunk));
        self.filled += filled.map(|chunk| chunk.len() as u64).sum::<u64>();
        if self.filled > ratio_from && self.filled > self.came.load(Ordering::Relaxed).saturating_mul(ratio) {
            return Err(Stop::Failed(IngestError::Bomb { ratio }));
        }
        Ok(count)
    }
}

/// Hashes what goes by, and remembers why nothing more does: whoever reads may make another error of it.
struct Tap<R> {
    input: Limited<R>,
    hashers: Hashers,
    failed: Option<Stop>,
}

impl<R: Read> Read for Tap<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.input.read(room) {
            Ok(count) => {
                self.hashers.update(&room[..count]);
                Ok(count)
            }
            Err(stop) => {
                self.failed = Some(stop);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }
}

/// The line behind this thread.
struct Sink<'a> {
    spare: Receiver<Block>,
    out: &'a SyncSender<Step>,
    first: bool,
}

impl Sink<'_> {
    fn fill_from(&mut self, input: &mut dyn Read) -> Result<(), Stop> {
        loop {
            let mut block = match std::mem::take(&mut self.first) {
                true => Ingest::first_block(),
                false => self.spare.recv().map_err(|_| Stop::Abandoned)?,
            };
            while !block.is_full() {
                match input.read(block.room()) {
                    Ok(0) => {
                        return if block.is_empty() { Ok(()) } else { self.send(block) };
                    }
                    Ok(count) => block.advance(count),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(cause) => return Err(Stop::Failed(IngestError::Unpack(cause))),
                }
            }
            self.send(block)?;
        }
    }

    fn send(&self, block: Block) -> Result<(), Stop> {
        self.out.send(Step::Block(block)).map_err(|_| Stop::Abandoned)
    }
}
