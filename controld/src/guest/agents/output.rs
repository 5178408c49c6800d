//! What a command printed, as `ExecSync` answers it, and the room that there is for it.

use std::sync::Arc;

use proto::agent::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use vmspec::error::{Error, Kind, Result};

use super::events::Event;
use super::process::Process;

/// Bytes that are kept of both streams together; the rest is thrown away, as other runtimes do. It has to go into one answer,
/// of which a gRPC client takes 16 MiB.
pub(super) const MAX_OUTPUT: usize = (16 << 20) - (64 << 10);
/// Bytes that are kept of all commands at a time, beside the first [`STEP`] of each: so that guests which print much do not fill the
/// node's memory together.
pub(super) const MAX_OF_ALL: usize = 128 << 20;
/// And of those in one guest.
pub(super) const MAX_OF_ONE: usize = 32 << 20;
/// Bytes that a command gets at once.
pub(super) const STEP: u32 = 64 << 10;

/// What a command printed, and its exit code.
#[derive(Debug, Default)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// There was more of it.
    pub cut: bool,
    pub code: u8,
    /// Its part of what is kept of all commands.
    _held: Vec<OwnedSemaphorePermit>,
}

/// How much may be kept of what commands print: of all of them, and of those in one guest.
#[derive(Debug, Clone)]
pub(super) struct Budget(Vec<Arc<Semaphore>>);

/// Room for what a command prints.
#[derive(Debug)]
pub(super) struct Room {
    /// Most that is still kept.
    left: usize,
    /// What it has got and has not used.
    free: usize,
    budget: Budget,
    held: Vec<OwnedSemaphorePermit>,
}

impl Output {
    /// Of a command that has ended, of whose output this was kept.
    pub(super) fn new(code: u8, [stdout, stderr]: [Vec<u8>; 2], cut: bool, room: Room) -> Self {
        Self { stdout, stderr, cut, code, _held: room.held }
    }
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![Arc::new(Semaphore::new(bytes))])
    }

    /// At most so many bytes of this one.
    pub(super) fn part(&self, bytes: usize) -> Self {
        Self([self.0.as_slice(), &[Arc::new(Semaphore::new(bytes))]].concat())
    }

    /// A step of each, or of none.
    fn step(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        self.0.iter().map(|bytes| bytes.clone().try_acquire_many_owned(STEP).ok()).collect()
    }

    /// For a command.
    pub(super) fn room(&self) -> Room {
        Room { left: MAX_OUTPUT, free: STEP as usize, budget: self.clone(), held: Vec::new() }
    }
}

impl Room {
    /// Of a command whose output nobody wants.
    pub(super) fn none() -> Self {
        Self { left: 0, ..Budget::new(0).room() }
    }

    /// Keeps as much of the data as there is room for; whether that is all of it.
    pub(super) fn keep(&mut self, kept: &mut Vec<u8>, data: &[u8]) -> bool {
        let wanted = data.len().min(self.left);
        while self.free < wanted
            && let Some(more) = self.budget.step()
        {
            self.free += STEP as usize;
            self.held.extend(more);
        }
        let room = wanted.min(self.free);
        (self.left, self.free) = (self.left - room, self.free - room);
        // What a vector takes ahead of its need is counted by nobody.
        kept.reserve_exact(room);
        kept.extend_from_slice(data.get(..room).unwrap_or_default());
        room == data.len()
    }
}

/// Collects output until the process ends.
pub(super) async fn collect(mut process: Process, mut room: Room) -> Result<Output> {
    let (mut stdout, mut stderr, mut cut) = (Vec::new(), Vec::new(), false);
    loop {
        let (stream, kept, data) = match process.next().await {
            Some(Event::Stdout(data)) => (Stream::Stdout, &mut stdout, data),
            Some(Event::Stderr(data)) => (Stream::Stderr, &mut stderr, data),
            Some(Event::Exited(code)) => return Ok(Output::new(code, [stdout, stderr], cut, room)),
            Some(Event::Started | Event::Refused(_)) => continue,
            None => {
                let what = "the command's end was not seen: the guest or its agent was restarted";
                return Err(Error::new(Kind::Unavailable, what));
            }
        };
        cut |= !room.keep(kept, &data);
        process.taken(stream, data.len()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_keeps_what_there_is_room_for() {
        const STEP: usize = super::STEP as usize;
        let budget = Budget::new(2 * STEP);
        let (mut one, mut other) = (budget.room(), budget.room());
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert!(one.keep(&mut first, &[1; 2 * STEP]), "the first is its own");
        assert!(!other.keep(&mut second, &[2; 3 * STEP]), "the other has one step of all");
        assert_eq!((first.len(), second.len()), (2 * STEP, 2 * STEP));
        assert!(!one.keep(&mut first, &[1]) && one.keep(&mut first, &[]));
        let output = Output::new(0, [first, Vec::new()], true, one);
        assert!(!other.keep(&mut second, &[2]), "it is there as long as what was kept");
        drop(output);
        assert!(other.keep(&mut second, &[2; STEP]));
        assert!(!Room::none().keep(&mut second, &[2]));
    }

    #[test]
    fn what_one_guest_prints_leaves_room_for_others() {
        const STEP: usize = super::STEP as usize;
        let all = Budget::new(3 * STEP);
        let (guest, another) = (all.part(2 * STEP), all.part(2 * STEP));
        let (mut one, mut two, mut other) = (guest.room(), guest.room(), another.room());
        let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
        assert!(one.keep(&mut first, &[1; 3 * STEP]));
        assert!(!two.keep(&mut second, &[1; 2 * STEP]), "its guest has no more");
        assert!(other.keep(&mut third, &[1; 2 * STEP]), "all have, and nothing of it was lost");
        assert!(!other.keep(&mut third, &[1]), "now they have none");
    }

    #[test]
    fn a_command_has_a_limit_of_its_own() {
        let budget = Budget::new(MAX_OF_ALL);
        let (mut room, mut kept) = (budget.room(), Vec::new());
        assert!(room.keep(&mut kept, &vec![0; MAX_OUTPUT - 1]));
        assert!(!room.keep(&mut kept, &[0; 2]));
        assert_eq!(kept.len(), MAX_OUTPUT);
    }
}
