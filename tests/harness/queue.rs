//! The queue of cases that wait for each other, as each has a whole machine with guests of its own, or a card to itself.
//!
//! A guest in an emulated machine costs several times as much where that machine has to wait for a processor, so one runs at a time, and
//! others beside it. One after the other they take as long as half of all else, so they come first. Those of one kind of machine
//! follow each other: a node ends with the last of its cases, and takes a tenth of a processor until then.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::case::Case;
use crate::emulated::Kind;
use crate::installed;

/// Where in the queue a case waits: lower ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In the node with a card of this tier. A guest in one takes a whole processor.
    Card(&'static str),
    /// Whole installed machines: each has gigabytes.
    Installed,
}

/// Who waits, and whether one runs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    runs: bool,
    places: BTreeMap<Place, usize>,
}

/// Held while a case of the queue runs.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Queue);

impl Place {
    /// That of a case which has to wait.
    pub(crate) fn of(case: &Case) -> Option<Self> {
        if case.name.starts_with(installed::TIER) {
            return Some(Self::Installed);
        }
        Kind::of(case.name).filter(|kind| kind.one_at_a_time()).map(|kind| Self::Card(kind.tier))
    }
}

impl Queue {
    /// Waits until no other case of the queue runs, and none is waiting that comes before `place`.
    pub(crate) fn turn(&self, place: Place) -> Turn<'_> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting.places.entry(place).or_default() += 1;
        let mut waiting = self
            .freed
            .wait_while(waiting, |waiting| waiting.runs || waiting.places.keys().next() != Some(&place))
            .unwrap_or_else(PoisonError::into_inner);
        waiting.begin(place);
        Turn(self)
    }
}

impl Waiting {
    fn begin(&mut self, place: Place) {
        self.runs = true;
        if let Some(left) = self.places.get_mut(&place) {
            *left -= 1;
        }
        self.places.retain(|_, left| *left > 0);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).runs = false;
        // All: whoever comes first has to see it.
        self.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn one_runs_at_a_time_and_those_of_a_node_follow_each_other() {
        let queue = Queue::default();
        let places = [Place::Installed, Place::Card("b::"), Place::Card("a::"), Place::Installed, Place::Card("a::")];
        let (sender, order) = mpsc::channel();

        std::thread::scope(|scope| {
            let first = queue.turn(Place::Installed);
            for place in places {
                let (queue, sender) = (&queue, sender.clone());
                scope.spawn(move || {
                    let _turn = queue.turn(place);
                    sender.send(place)
                });
            }
            let waiting = || queue.waiting.lock().unwrap().places.values().sum::<usize>();
            // Threads that start take no time to speak of.
            let all = wait_until("all in the queue", Duration::from_secs(30), || waiting() == places.len());
            drop(first);
            all.unwrap();
        });
        drop(sender);

        let mut sorted = places;
        sorted.sort();
        assert_eq!(order.iter().collect::<Vec<_>>(), sorted);
    }
}
