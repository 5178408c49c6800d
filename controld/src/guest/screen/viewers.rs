//! Who views screens: one client each. QEMU would let a second one in, and end the first or not as the second says, so that two people
//! would type into one guest, or somebody lose the screen without a word.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use vmspec::MachineId;

/// All viewers. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Viewers(Arc<Mutex<Seats>>);

#[derive(Debug, Default)]
struct Seats {
    /// How many there were.
    count: u64,
    taken: HashMap<MachineId, (u64, CancellationToken)>,
}

/// The place of a viewer in front of a screen, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    viewers: Viewers,
    machine: MachineId,
    number: u64,
    lost: CancellationToken,
}

impl Viewers {
    /// A place in front of a machine's screen; with `take` also if somebody has it, who loses it then.
    pub(crate) fn seat(&self, machine: MachineId, take: bool) -> Option<Seat> {
        let mut seats = self.seats();
        if let Some((_, other)) = seats.taken.get(&machine) {
            if !take {
                return None;
            }
            other.cancel();
        }
        seats.count += 1;
        let (number, lost) = (seats.count, CancellationToken::new());
        seats.taken.insert(machine, (number, lost.clone()));
        drop(seats);
        Some(Seat { viewers: self.clone(), machine, number, lost })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Ends when another viewer has taken it.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.viewers.seats();
        if seats.taken.get(&self.machine).is_some_and(|(number, _)| *number == self.number) {
            seats.taken.remove(&self.machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_screen_has_one_viewer_and_another_only_takes_it() {
        let (viewers, machine) = (Viewers::default(), MachineId::random());
        let first = viewers.seat(machine, false).expect("nobody is there");
        assert!(viewers.seat(machine, false).is_none());
        let _elsewhere = viewers.seat(MachineId::random(), false).expect("of another machine");
        let second = viewers.seat(machine, true).expect("taken");
        first.lost().await;
        // Who has lost it does not give it free.
        drop(first);
        assert!(viewers.seat(machine, false).is_none());
        drop(second);
        let third = viewers.seat(machine, false).expect("nobody is there any more");
        assert!(!third.lost.is_cancelled());
    }
}
