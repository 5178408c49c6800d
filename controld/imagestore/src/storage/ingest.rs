//! Ingests an image in one pass over its bytes: decompresses, takes the disk out of an archive, hashes, judges, writes,
//! and compares with every promised digest, in bounded memory.
//!
//! The receiver fills blocks of 1 MiB; threads pass them on, and they come back to be filled again. There are
//! [`BLOCKS`] blocks in all, so a slow disk slows the receiver down and memory does not grow:
//!
//! ```text
//! push() --> [hash] --> [write] --+                    as it comes
//!    ^------ free blocks ---------+
//!
//! push() --> [hash, decompress, unpack] --> [hash] --> [write] --+     compressed, or in an archive
//!    ^------ free blocks -+    ^------------- free blocks -------+
//! ```
//!
//! The first block is what the inspection judges first ([`HEAD`]), so junk ends the pass there. A failure in a thread
//! is passed on like a block, and returned by [`Ingest::finish`] or by whichever method is called before it.
//!
//! Dropping an [`Ingest`] before [`Ingest::finish`] ends the threads, and the process that decompresses. The last
//! thread keeps the part file if the download can be resumed, and removes it otherwise. After any other failure it is
//! removed.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use vmimage::decode::{Compression, Decompressor, Keeper};
use vmimage::digest::Algorithm;
use vmimage::inspect::{HEAD, Refusal};

use crate::sources::provider::{HashAlg, Promise, Unpack};
use crate::storage::content::{Part, Received};

mod block;
mod error;
mod stage;
mod sums;
#[cfg(test)]
pub(crate) mod tests;
mod unpack;

pub(crate) use block::Block;
pub use error::IngestError;
use stage::{GiveBack, Hashing, Inlet, Step, hash};
use sums::{Hashers, Place, Shape, Sums};
use unpack::Opening;

/// Blocks in flight: 16 MiB, half of them on each way where there are two. More would only leave the caches.
const BLOCKS: usize = 16;
/// How long the disk may take for one block, or for all that it has not written when an image is at its end.
const BLOCK_DEADLINE: Duration = Duration::from_secs(60);
const FLUSH_DEADLINE: Duration = Duration::from_secs(600);

/// Bounds on what comes out of a compressed image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLimits {
    /// Most bytes.
    pub(crate) bytes: u64,
    /// Most bytes that are not zero for each one that came, once there are `ratio_from` of them.
    pub(crate) ratio: u64,
    pub(crate) ratio_from: u64,
}

/// Judges the beginning of the content, and says whether that is all there is.
pub(crate) type Judge = Box<dyn FnOnce(&[u8], bool) -> Result<(), Refusal> + Send>;

/// What to make of the bytes.
pub(crate) struct Plan {
    pub(crate) compression: Option<Compression>,
    pub(crate) decompressor: Decompressor,
    pub(crate) unpack: Option<Arc<dyn Unpack>>,
    pub(crate) promises: Vec<Promise>,
    pub(crate) limits: OutputLimits,
    pub(crate) judge: Judge,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Ingest {
    free: mpsc::Receiver<Block>,
    full: mpsc::Sender<Step>,
    outcome: oneshot::Receiver<Result<Received, IngestError>>,
    block_deadline: Duration,
    /// Of the process that decompresses, if there is one.
    _keeper: Keeper,
}

impl Ingest {
    /// Starts the threads. Bytes that `part` has already are those before the first that is pushed.
    pub(crate) fn start(part: Part, plan: Plan) -> Result<Self, IngestError> {
        let Plan { compression, decompressor, unpack, promises, limits, judge } = plan;
        let keeper = Keeper::default();
        let shape = Shape { compressed: compression.is_some(), archived: unpack.is_some() };
        let opened_first = shape.compressed || shape.archived;
        let blocks = if opened_first { BLOCKS / 2 } else { BLOCKS };
        let (free_tx, free) = mpsc::channel(blocks);
        let (full, first) = mpsc::channel(blocks + 1);
        let (outcome_tx, outcome) = oneshot::channel();
        for _ in 1..blocks {
            // The channel has room for all of them.
            let _ = free_tx.try_send(Block::new());
        }
        // Nobody needs it any more at the end.
        let to_receiver: GiveBack = Box::new(move |block| drop(free_tx.try_send(block)));
        let mut inlet = Inlet::Receiver(first);
        let mut give_back = to_receiver;
        if opened_first {
            let (spare_tx, spare) = sync_channel(blocks);
            for _ in 0..blocks {
                let _ = spare_tx.try_send(Block::new());
            }
            let opening = Opening {
                compression,
                decompressor,
                leash: keeper.leash(),
                unpack,
                hosted: Hashers::new(shape.needed(&promises, Place::Hosted)),
                archive: Hashers::new(shape.needed(&promises, Place::Archive)),
                limits,
                spare,
            };
            let (outlet, opened) = sync_channel(blocks + 1);
            let given = std::mem::replace(&mut give_back, Box::new(move |block| drop(spare_tx.try_send(block))));
            let from = std::mem::replace(&mut inlet, Inlet::Thread(opened));
            spawn("image-open", move || unpack::open(opening, from, given, &outlet))?;
        }
        // The one that the content is stored under last; others before it, each with a core of its own if there is one.
        let mut judge = Some(judge);
        let needed = shape.needed(&promises, Place::Content);
        let stages = needed.into_iter().map(|alg| (alg == HashAlg::Sha256, alg));
        let mut stages: Vec<_> = stages.collect();
        stages.sort_unstable();
        for (_, alg) in stages {
            let (outlet, hashed) = sync_channel(blocks + 1);
            let hashing = Hashing {
                hashers: Hashers::new([alg]),
                judge: judge.take(),
                before: part.reader().map_err(|cause| IngestError::of_write(&part, cause))?,
            };
            let from = std::mem::replace(&mut inlet, Inlet::Thread(hashed));
            spawn("image-hash", move || hash(hashing, from, &outlet))?;
        }
        spawn("image-write", move || {
            // Nobody waits any more if the pull was given up.
            let _ = outcome_tx.send(write(part, inlet, &give_back, |sums| sums.verify(&promises, shape)));
        })?;
        // Much may come out of one block.
        let block_deadline = if shape.compressed { FLUSH_DEADLINE } else { BLOCK_DEADLINE };
        Ok(Self { free, full, outcome, block_deadline, _keeper: keeper })
    }

    /// An empty block, waiting while the disk is behind.
    pub(crate) async fn room(&mut self) -> Result<Block, IngestError> {
        match timeout(self.block_deadline, self.free.recv()).await {
            Ok(Some(block)) => Ok(block),
            // The threads are gone.
            Ok(None) => Err(self.reason().await),
            Err(_) => Err(IngestError::Slow { what: "take a block", deadline: self.block_deadline }),
        }
    }

    /// Takes the next bytes: all but the last block must be full.
    pub(crate) async fn push(&mut self, block: Block) -> Result<(), IngestError> {
        // There is room for all blocks, so this fails only if the threads are gone.
        match self.full.try_send(Step::Block(block)) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.reason().await),
        }
    }

    /// There are no more bytes: waits until all are hashed, compared and on the disk.
    pub(crate) async fn finish(mut self) -> Result<Received, IngestError> {
        // If the threads are gone, the outcome says why.
        let _ = self.full.try_send(Step::End(Sums::default()));
        self.outcome(FLUSH_DEADLINE).await
    }

    /// An empty block that only takes what the inspector judges first: what every pass begins with.
    pub(crate) fn first_block() -> Block {
        Block::new().limited(HEAD)
    }

    /// Waits for the threads to fail.
    pub(crate) async fn failure(&mut self) -> IngestError {
        match (&mut self.outcome).await {
            Ok(Err(error)) => error,
            Ok(Ok(_)) | Err(_) => IngestError::Lost,
        }
    }

    /// Why the threads are gone.
    async fn reason(&mut self) -> IngestError {
        match timeout(BLOCK_DEADLINE, self.failure()).await {
            Ok(error) => error,
            Err(_) => IngestError::Lost,
        }
    }

    async fn outcome(&mut self, deadline: Duration) -> Result<Received, IngestError> {
        match timeout(deadline, &mut self.outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(IngestError::Lost)),
            Err(_) => Err(IngestError::Slow { what: "write the rest and sync", deadline }),
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), IngestError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(IngestError::Thread)
}

/// Body of the write thread. Ends with the part whole, kept or removed.
fn write(
    mut part: Part,
    mut steps: Inlet,
    give_back: &GiveBack,
    verify: impl FnOnce(&Sums) -> Result<(), IngestError>,
) -> Result<Received, IngestError> {
    while let Some(step) = steps.next() {
        match step {
            Step::Block(mut block) => {
                let fresh = block.bytes().len() as u64;
                part.append(block.padded(), fresh).map_err(|cause| IngestError::of_write(&part, cause))?;
                block.clear();
                give_back(block);
            }
            Step::Failed(error) => return Err(error),
            Step::End(sums) => {
                verify(&sums)?;
                part.complete().map_err(|cause| IngestError::of_write(&part, cause))?;
                let sha256 = sums.content(Algorithm::Sha256).ok_or(IngestError::Lost)?;
                let sha512 = sums.content(Algorithm::Sha512);
                return Ok(Received { length: part.offset(), part, sha256, sha512 });
            }
        }
    }
    // The other end closed without an end: the pull was given up.
    part.keep();
    Err(IngestError::Lost)
}
