//! Who of our pages has the screen: a node gives it to one viewer at a time, and learns a moment late that one has left. What a page of ours had
//! a moment ago, the next one may take; what somebody else has, it may not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a node may take to see that a page of ours has left the screen.
const LEAVING: Duration = Duration::from_secs(10);

/// Pages of ours that have the screen by the node's account. Clones share them.
#[derive(Clone, Default)]
pub(in super::super) struct Pages(Arc<Mutex<Seats>>);

#[derive(Default)]
struct Seats {
    /// Sessions that last.
    taken: usize,
    /// When the last one was left of which the node has not said that it has ended.
    left: Option<Instant>,
}

/// A session of a page, until it is dropped.
pub(in super::super) struct Seat {
    pages: Pages,
    is_over: bool,
}

impl Pages {
    /// Whether a session of ours has the screen, or had it a moment ago.
    pub(in super::super) fn may_have_it(&self) -> bool {
        let seats = self.seats();
        seats.taken > 0 || seats.left.is_some_and(|left| left.elapsed() < LEAVING)
    }

    /// For a session that has begun.
    pub(in super::super) fn seat(&self) -> Seat {
        self.seats().taken += 1;
        Seat { pages: self.clone(), is_over: false }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// The node has said that the session has ended.
    pub(in super::super) fn ends(mut self) {
        self.is_over = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.pages.seats();
        seats.taken = seats.taken.saturating_sub(1);
        // Where the node has ended it, the screen is free, or another's.
        seats.left = (!self.is_over).then(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_screen_is_taken_from_pages_of_ours_alone() {
        let pages = Pages::default();
        assert!(!pages.may_have_it());
        let first = pages.seat();
        advance(LEAVING * 2).await;
        assert!(pages.may_have_it());
        drop(first);
        assert!(pages.may_have_it(), "it has left a moment ago");
        advance(LEAVING).await;
        assert!(!pages.may_have_it(), "somebody else may have come");
        // Another viewer has taken it from one that came right after one of ours.
        drop(pages.seat());
        pages.seat().ends();
        assert!(!pages.may_have_it());
    }
}
