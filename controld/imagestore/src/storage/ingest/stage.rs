//! The stages that blocks pass through, and the threads that hash.

use std::sync::mpsc::SyncSender;

use tokio::sync::mpsc;
use vmimage::inspect::HEAD;

use super::{Block, Hashers, IngestError, Judge, Place, Sums};
use crate::storage::content::Reader;

/// What goes down the line.
#[derive(Debug)]
pub(super) enum Step {
    Block(Block),
    /// All is well so far, and this is the end. Each thread adds its hashes.
    End(Sums),
    Failed(IngestError),
}

/// Takes a block that may be filled again.
pub(super) type GiveBack = Box<dyn Fn(Block) + Send>;

/// Where steps come from. Closed without an end if the pull was given up.
pub(super) enum Inlet {
    Receiver(mpsc::Receiver<Step>),
    Thread(std::sync::mpsc::Receiver<Step>),
}

impl Inlet {
    pub(super) fn next(&mut self) -> Option<Step> {
        match self {
            Self::Receiver(steps) => steps.blocking_recv(),
            Self::Thread(steps) => steps.recv().ok(),
        }
    }
}

/// What a hash thread does.
pub(super) struct Hashing {
    pub(super) hashers: Hashers,
    pub(super) judge: Option<Judge>,
    /// What is on the disk already.
    pub(super) before: Option<Reader>,
}

impl Hashing {
    fn take(&mut self, bytes: &[u8]) -> Result<(), IngestError> {
        if let Some(judge) = self.judge.take() {
            judge(&bytes[..bytes.len().min(HEAD)], bytes.len() < HEAD)?;
        }
        self.hashers.update(bytes);
        Ok(())
    }

    fn catch_up(&mut self) -> Result<(), IngestError> {
        // Its file goes with it: one that is removed gives its room back when nobody has it open.
        let Some(before) = self.before.take() else { return Ok(()) };
        let mut block = Block::new();
        let length = before.length();
        let mut at = 0;
        while at < length {
            let left = usize::try_from(length - at).unwrap_or(usize::MAX);
            let count = block.room().len().min(left);
            let room = &mut block.room()[..count];
            before.read(room, at)?;
            block.advance(count);
            self.take(block.bytes())?;
            at += count as u64;
            block.clear();
        }
        Ok(())
    }
}

/// Body of a hash thread. Ends when either neighbour is gone.
pub(super) fn hash(mut hashing: Hashing, mut steps: Inlet, out: &SyncSender<Step>) {
    if let Err(error) = hashing.catch_up() {
        let _ = out.send(Step::Failed(error));
        return;
    }
    while let Some(step) = steps.next() {
        let step = match step {
            Step::Block(block) => match hashing.take(block.bytes()) {
                Ok(()) => Step::Block(block),
                Err(error) => Step::Failed(error),
            },
            Step::End(mut sums) => {
                let empty = hashing.judge.take().map_or(Ok(()), |judge| judge(&[], true));
                let _ = out.send(match empty {
                    Ok(()) => {
                        hashing.hashers.finish(Place::Content, &mut sums);
                        Step::End(sums)
                    }
                    Err(refusal) => Step::Failed(refusal.into()),
                });
                return;
            }
            failed => failed,
        };
        let over = matches!(step, Step::Failed(_));
        if out.send(step).is_err() || over {
            return;
        }
    }
}
