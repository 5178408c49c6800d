//! Whether the default can be reached: pure, and told what time it is.
//!
//! ```text
//!            connected                 silent: Version unanswered, too
//! Never --------------.        .-----------------.
//!   |                 v        |                 v
//!   |   connected --> Up ------'     answered   Silent
//!   | lost    ^       | ^-----------------------'  |
//!   v         |       | lost                       | lost
//!  Lost <-----+-------+----------------------------'
//! ```
//!
//! Only the keeper of the connection moves it. A list that is late moves nothing: it is a reason to ask for `Version`.

use std::time::{Duration, Instant};

/// How long a connection is new: a runtime that has just started reads what it left.
const NEW: Duration = Duration::from_secs(30);
/// So many times the deadline is what a new one has.
const PATIENCE: u32 = 5;

/// Whether the default can be reached.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct Reach {
    state: State,
    deadline: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Never { since: Instant, why: String },
    Up { connected: Instant },
    Silent { since: Instant, connected: Instant },
    Lost { since: Instant, why: String },
}

/// Why it cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proxy) struct Away {
    pub(in crate::proxy) since: Instant,
    pub(in crate::proxy) why: String,
}

impl Reach {
    /// Not tried yet. `deadline` is for lists, of a connection that is not new.
    pub(in crate::proxy) fn new(deadline: Duration, now: Instant) -> Self {
        Self { state: State::Never { since: now, why: "not connected yet".into() }, deadline }
    }

    /// There is a connection, on which `Version` was answered.
    pub(super) fn connected(&mut self, now: Instant) {
        self.state = State::Up { connected: now };
    }

    /// There is none.
    pub(super) fn lost(&mut self, now: Instant, why: String) {
        self.state = match &self.state {
            State::Never { since, .. } => State::Never { since: *since, why },
            // Since when it is away does not change by the reason.
            State::Lost { since, .. } | State::Silent { since, .. } => State::Lost { since: *since, why },
            State::Up { .. } => State::Lost { since: now, why },
        };
    }

    /// `Version` is not answered.
    pub(super) fn silent(&mut self, now: Instant) {
        if let State::Up { connected } = self.state {
            self.state = State::Silent { since: now, connected };
        }
    }

    /// It is answered after all.
    pub(super) fn answered(&mut self) {
        if let State::Silent { connected, .. } = self.state {
            self.state = State::Up { connected };
        }
    }

    /// How long lists, status and the like are waited for.
    pub(in crate::proxy) fn deadline(&self, now: Instant) -> Duration {
        match self.state {
            State::Up { connected } | State::Silent { connected, .. }
                if now.saturating_duration_since(connected) >= NEW =>
            {
                self.deadline
            }
            _ => self.deadline * PATIENCE,
        }
    }

    /// Whether there is a connection, over which nothing is answered.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.state, State::Silent { .. })
    }

    /// Why nothing can be asked, if so.
    pub(in crate::proxy) fn away(&self) -> Option<Away> {
        match &self.state {
            State::Up { .. } => None,
            State::Never { since, why } | State::Lost { since, why } => Some(Away { since: *since, why: why.clone() }),
            State::Silent { since, .. } => {
                Some(Away { since: *since, why: "it answers nothing, not even `Version`".into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Duration = Duration::from_secs(2);

    #[test]
    fn since_when_it_is_away_is_the_first_moment_of_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let since = |reach: &Reach| reach.away().map(|away| (away.since - start).as_secs());
        let mut reach = Reach::new(LIST, at(0));
        assert_eq!(since(&reach), Some(0));
        reach.lost(at(1), "no such file".into());
        assert_eq!(
            reach.away(),
            Some(Away { since: at(0), why: "no such file".into() }),
            "never there since the start"
        );
        reach.connected(at(2));
        assert_eq!(reach.away(), None);
        reach.silent(at(50));
        reach.silent(at(60));
        assert_eq!(since(&reach), Some(50));
        reach.lost(at(70), "reset".into());
        reach.lost(at(80), "refused".into());
        assert_eq!(reach.away(), Some(Away { since: at(50), why: "refused".into() }));
        reach.silent(at(81));
        reach.answered();
        assert_eq!(since(&reach), Some(50), "what a dead connection said late means nothing");
        reach.connected(at(90));
        reach.silent(at(91));
        reach.answered();
        assert_eq!(reach.away(), None);
        reach.lost(at(99), "reset".into());
        assert_eq!(since(&reach), Some(99));
    }

    #[test]
    fn a_new_connection_is_waited_for_longer() {
        let start = Instant::now();
        let mut reach = Reach::new(LIST, start);
        reach.connected(start);
        let of = |reach: &Reach, seconds| reach.deadline(start + Duration::from_secs(seconds)).as_secs();
        assert_eq!((of(&reach, 0), of(&reach, 29), of(&reach, 30), of(&reach, 900)), (10, 10, 2, 2));
        reach.silent(start + Duration::from_secs(40));
        reach.answered();
        assert_eq!(of(&reach, 41), 2, "the same connection");
    }
}
