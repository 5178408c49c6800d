//! Takes in the bytes of one image: hashed and written in one pass, with bounded memory.
//!
//! The receiver fills blocks of 1 MiB; one thread hashes them, another writes them, and they come back to be filled
//! again. There are [`BLOCKS`] of them, so a slow disk holds the receiver back and memory never grows:
//!
//! ```text
//! push() --> [hash thread] --> [write thread] --+
//!    ^---------------- free blocks -------------+
//! ```
//!
//! Dropping an [`Intake`] before [`Intake::finish`] ends both threads, and the last of them removes the part file.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256, Sha512};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::error::in_seconds;
use crate::error::{ErrorKind, of_io};
use crate::name::{Algorithm, Digest};
use crate::shelf::{Disk, DiskError, Part, Received};

mod block;
#[cfg(test)]
mod tests;

use block::Block;

/// Blocks in flight: 16 MiB. More would only leave the caches.
const BLOCKS: usize = 16;
/// How long the disk may take for one block, or for all that it has not written when an image is at its end.
const BLOCK_DEADLINE: Duration = Duration::from_secs(60);
const FLUSH_DEADLINE: Duration = Duration::from_secs(600);

/// Why bytes could not be taken in.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// Writing failed.
    #[error("failed to write the image to `{path}`")]
    Write {
        /// The part file.
        path: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Something around the file failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No thread to be had.
    #[error("failed to start a thread for the image")]
    Thread(#[source] io::Error),
    /// The disk does not answer.
    #[error("disk took longer than {} to {what}", in_seconds(*.deadline))]
    Slow {
        /// What was waited for.
        what: &'static str,
        /// How long.
        deadline: Duration,
    },
    /// A thread ended without a word.
    #[error("a thread of the intake ended early")]
    Lost,
}

impl IntakeError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Write { cause, .. } => of_io(cause),
            Self::Disk(error) => error.kind(),
            Self::Slow { .. } => ErrorKind::Deadline,
            Self::Thread(_) | Self::Lost => ErrorKind::Internal,
        }
    }
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct Intake {
    filling: Block,
    free: mpsc::Receiver<Block>,
    full: mpsc::Sender<Step>,
    outcome: oneshot::Receiver<Result<Received, IntakeError>>,
}

/// What goes through the threads.
#[derive(Debug)]
enum Step {
    Block(Block),
    End,
}

/// What the hash thread knows at the end.
struct Sums {
    sha256: Digest,
    sha512: Option<Digest>,
}

enum Hashed {
    Block(Block),
    End(Sums),
}

impl Intake {
    /// Opens a part file and starts the threads. SHA-256 is always computed, SHA-512 if it is wanted.
    pub(crate) fn start(disk: &Arc<Disk>, want: Algorithm) -> Result<Self, IntakeError> {
        let part = Part::create(disk)?;
        let (free_tx, free) = mpsc::channel(BLOCKS);
        let (full, to_hash) = mpsc::channel(BLOCKS + 1);
        let (to_write, hashed) = std::sync::mpsc::sync_channel(BLOCKS + 1);
        let (outcome_tx, outcome) = oneshot::channel();
        for _ in 1..BLOCKS {
            // The channel has room for all of them.
            let _ = free_tx.try_send(Block::new());
        }
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        named("image-hash").spawn(move || hash(to_hash, &to_write, want)).map_err(IntakeError::Thread)?;
        named("image-write")
            .spawn(move || {
                let written = write(part, &hashed, &free_tx);
                // Nobody waits any more if the pull was given up; the part goes with the message then.
                let _ = outcome_tx.send(written);
            })
            .map_err(IntakeError::Thread)?;
        Ok(Self { filling: Block::new(), free, full, outcome })
    }

    /// Takes the next bytes, waiting while the disk is behind.
    pub(crate) async fn push(&mut self, mut bytes: &[u8]) -> Result<(), IntakeError> {
        while !bytes.is_empty() {
            let taken = self.filling.fill(bytes);
            bytes = &bytes[taken..];
            if self.filling.is_full() {
                self.hand_over().await?;
            }
        }
        Ok(())
    }

    /// There are no more bytes: waits until all are hashed and on the disk.
    pub(crate) async fn finish(mut self) -> Result<Received, IntakeError> {
        if !self.filling.is_empty() {
            self.hand_over().await?;
        }
        // If the threads are gone, the outcome says why.
        let _ = self.full.try_send(Step::End);
        self.outcome(FLUSH_DEADLINE).await
    }

    async fn hand_over(&mut self) -> Result<(), IntakeError> {
        let next = match timeout(BLOCK_DEADLINE, self.free.recv()).await {
            Ok(Some(block)) => block,
            // The writer is gone.
            Ok(None) => return Err(self.failure().await),
            Err(_) => return Err(IntakeError::Slow { what: "take a block", deadline: BLOCK_DEADLINE }),
        };
        let full = std::mem::replace(&mut self.filling, next);
        // There is room for all blocks, so this fails only if the threads are gone.
        match self.full.try_send(Step::Block(full)) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure().await),
        }
    }

    async fn failure(&mut self) -> IntakeError {
        match self.outcome(BLOCK_DEADLINE).await {
            Err(error) => error,
            Ok(_) => IntakeError::Lost,
        }
    }

    async fn outcome(&mut self, deadline: Duration) -> Result<Received, IntakeError> {
        match timeout(deadline, &mut self.outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(IntakeError::Lost)),
            Err(_) => Err(IntakeError::Slow { what: "write the rest and sync", deadline }),
        }
    }
}

/// Body of the hash thread. Ends when either neighbour is gone.
fn hash(mut blocks: mpsc::Receiver<Step>, out: &std::sync::mpsc::SyncSender<Hashed>, want: Algorithm) {
    let mut sha256 = Sha256::new();
    let mut sha512 = (want == Algorithm::Sha512).then(Sha512::new);
    while let Some(step) = blocks.blocking_recv() {
        let hashed = match step {
            Step::Block(block) => {
                sha256.update(block.bytes());
                if let Some(sha512) = &mut sha512 {
                    sha512.update(block.bytes());
                }
                Hashed::Block(block)
            }
            Step::End => Hashed::End(Sums {
                sha256: Digest::computed(Algorithm::Sha256, &std::mem::take(&mut sha256).finalize()),
                sha512: sha512.take().map(|sum| Digest::computed(Algorithm::Sha512, &sum.finalize())),
            }),
        };
        if out.send(hashed).is_err() {
            return;
        }
    }
}

/// Body of the write thread. Ends with the part file whole, or removed.
fn write(
    mut part: Part,
    hashed: &std::sync::mpsc::Receiver<Hashed>,
    free: &mpsc::Sender<Block>,
) -> Result<Received, IntakeError> {
    let mut length = 0;
    // The other end closes without an end when the pull is given up.
    while let Ok(step) = hashed.recv() {
        match step {
            Hashed::Block(mut block) => {
                let fresh = block.bytes().len() as u64;
                length += fresh;
                part.append(block.padded(), fresh).map_err(|cause| write_failed(&part, cause))?;
                block.clear();
                // Nobody needs it any more at the end.
                let _ = free.try_send(block);
            }
            Hashed::End(Sums { sha256, sha512 }) => {
                part.complete().map_err(|cause| write_failed(&part, cause))?;
                return Ok(Received { part, length, sha256, sha512 });
            }
        }
    }
    Err(IntakeError::Lost)
}

fn write_failed(part: &Part, cause: io::Error) -> IntakeError {
    IntakeError::Write { path: part.path().display().to_string(), cause }
}
