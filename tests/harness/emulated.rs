//! The emulated nodes: machines with kernels and cards that the bed's own machine lacks, one of each [`Kind`].
//!
//! [`crate::runner`] boots one when the first case of its tier wants it, and sends it cases by name over a
//! virtio-serial port, one JSON message a line; in there this same program (`bed node-agent`) runs each in a cell, as
//! the runner does outside, and answers with what failed. The machine's root file system is this machine's, read-only
//! (see `tests/guests/build-node.sh`), so there is no second set of tools and nothing to copy. A node ends with the
//! last of its cases: nothing in it outlives its memory.

mod agent;
mod kind;
mod machine;
mod node;
mod silent;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context as _, Result, anyhow};

use crate::case::Case;
use crate::config::Config;

pub use agent::serve;
use kind::KINDS;
pub use kind::{Kind, PERIODIC};
use node::Node;
use wire::locked;

/// One node of each kind, booted when it is first asked for.
#[derive(Debug, Default)]
pub struct OnDemand {
    places: [Mutex<Place>; KINDS.len()],
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Place {
    /// Once it was asked for.
    node: Option<Result<Arc<Node>, String>>,
    /// So many cases are going to ask for it.
    left: usize,
}

impl OnDemand {
    /// For these cases, with the last of which each node ends: one that idles takes a tenth of a processor.
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Self {
        let nodes = Self::default();
        for place in cases.into_iter().filter_map(|case| nodes.place(Kind::of(case.name)?)) {
            locked(place).left += 1;
        }
        nodes
    }

    /// Runs `case` in the node of `kind`; what it printed.
    ///
    /// # Errors
    /// What the case fails with, and when there is no node or it ended.
    pub fn run(&self, kind: &'static Kind, case: &Case) -> Result<String> {
        let place = self.place(kind).context("a kind of node that is in no table")?;
        let boot = || Node::boot(kind, &Config::from_env()).map(Arc::new).map_err(|failed| format!("{failed:#}"));
        let node = locked(place).node.get_or_insert_with(boot).clone();
        let said = node.map_err(|failed| anyhow!("no emulated node: {failed}")).and_then(|node| node.run(case));
        let mut place = locked(place);
        place.left = place.left.saturating_sub(1);
        if place.left == 0 {
            place.node = None;
        }
        said
    }

    fn place(&self, kind: &Kind) -> Option<&Mutex<Place>> {
        self.places.get(KINDS.iter().position(|one| one.tier == kind.tier)?)
    }

    /// Waits until no other case runs that has a card to itself, and until the guard is dropped no other one will. The
    /// nodes with cards take turns among themselves: a guest in one of them takes a whole processor.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.turn)
    }
}
