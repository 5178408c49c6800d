//! What comes of a process, on its way to whoever waits for it.
//!
//! Output that waits is one piece for each stream, however small the pieces were in which the guest sent it: its credit bounds
//! bytes, and a queue of pieces would cost many times that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What comes of a process.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Started,
    Refused(String),
    /// Output; [`super::Process::taken`] lets more of it come.
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The last, with the exit code.
    Exited(u8),
}

/// The end of the reader of a connection.
#[derive(Debug)]
pub(super) struct Sender(Arc<Queue>);

/// The end of a session.
#[derive(Debug)]
pub(super) struct Receiver(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// At most one of each kind.
    events: VecDeque<Event>,
    /// Nothing more comes.
    ended: bool,
    /// Nobody listens.
    left: bool,
}

/// Both ends of a queue.
pub(super) fn queue() -> (Sender, Receiver) {
    let queue = Arc::new(Queue::default());
    (Sender(queue.clone()), Receiver(queue))
}

// === impl Sender ===

impl Sender {
    /// `false` if nobody listens.
    pub(super) fn send(&self, event: Event) -> bool {
        let mut state = self.0.state();
        if state.left {
            return false;
        }
        let waiting = state.events.iter_mut().find_map(|waiting| match (waiting, &event) {
            (Event::Stdout(waiting), Event::Stdout(_)) | (Event::Stderr(waiting), Event::Stderr(_)) => Some(waiting),
            _ => None,
        });
        match (waiting, event) {
            (Some(waiting), Event::Stdout(data) | Event::Stderr(data)) => waiting.extend(data),
            (_, event) => state.events.push_back(event),
        }
        drop(state);
        self.0.changed.notify_one();
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_one();
    }
}

// === impl Receiver ===

impl Receiver {
    /// What comes next; `None` when nothing more comes.
    pub(super) async fn recv(&mut self) -> Option<Event> {
        loop {
            {
                let mut state = self.0.state();
                if let Some(event) = state.events.pop_front() {
                    return Some(event);
                }
                if state.ended {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.state().left = true;
    }
}

// === impl Queue ===

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_pieces_that_wait_are_one_of_each_stream() {
        let (sender, mut receiver) = queue();
        sender.send(Event::Started);
        for _ in 0..1000 {
            assert!(sender.send(Event::Stdout(b"a".to_vec())) && sender.send(Event::Stderr(b"b".to_vec())));
        }
        sender.send(Event::Exited(3));
        drop(sender);
        assert_eq!(receiver.0.state().events.len(), 4);
        let mut all = Vec::new();
        while let Some(event) = receiver.recv().await {
            all.push(event);
        }
        let (a, b) = (Event::Stdout(vec![b'a'; 1000]), Event::Stderr(vec![b'b'; 1000]));
        assert_eq!(all, [Event::Started, a, b, Event::Exited(3)]);
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_end_and_who_sends_that_nobody_waits() {
        let (sender, mut receiver) = queue();
        let waiting = tokio::spawn(async move { receiver.recv().await });
        drop(sender);
        assert_eq!(waiting.await.expect("waits"), None);
        let (sender, receiver) = queue();
        drop(receiver);
        assert!(!sender.send(Event::Started));
    }
}
