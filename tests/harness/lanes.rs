//! Cases of which one at a time runs, as each has a whole machine of its own or a card to itself, and others beside it.
//!
//! One after the other they take longer than all else, so they come first, and there are two rows of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::case::Case;
use crate::emulated::Kind;
use crate::installed;

/// A row of cases that wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Whole installed machines: each has gigabytes, and a guest of its own.
    Installed,
    /// What is done with a card. The nodes that have one take turns: a guest in one of them takes a whole processor.
    Cards,
}

/// Whose turn it is in each lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    installed: Mutex<()>,
    cards: Mutex<()>,
}

impl Lane {
    /// The lane of a case that has to wait in one.
    pub(crate) fn of(case: &Case) -> Option<Self> {
        if case.name.starts_with(installed::TIER) {
            return Some(Self::Installed);
        }
        Kind::of(case.name).is_some_and(Kind::one_at_a_time).then_some(Self::Cards)
    }
}

impl Lanes {
    /// Waits until no other case runs in `lane`; until the guard is dropped no other one will.
    pub(crate) fn turn(&self, lane: Lane) -> MutexGuard<'_, ()> {
        let turn = match lane {
            Lane::Installed => &self.installed,
            Lane::Cards => &self.cards,
        };
        turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
