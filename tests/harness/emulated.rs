//! The emulated nodes: machines with kernels and cards that the bed's own machine lacks, one of each [`Kind`].
//!
//! [`crate::runner`] boots one when the first case of its tier wants it, and sends it cases by name over a
//! virtio-serial port, one JSON message a line; in there this same program (`bed node-agent`) runs each in a cell, as
//! the runner does outside, and answers with what failed. The machine's root file system is this machine's, read-only
//! (see `tests/guests/build-node.sh`), so there is no second set of tools and nothing to copy. A node ends with the
//! run: nothing in it outlives its memory.

mod agent;
mod kind;
mod machine;
mod node;
mod silent;
mod wire;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Context as _, Result, anyhow};

use crate::case::Case;
use crate::config::Config;

pub use agent::serve;
use kind::KINDS;
pub use kind::{Kind, PERIODIC};
use node::Node;

/// One node of each kind, booted when it is first asked for.
#[derive(Debug, Default)]
pub struct OnDemand {
    nodes: [OnceLock<Result<Node, String>>; KINDS.len()],
    turn: Mutex<()>,
}

impl OnDemand {
    /// Runs `case` in the node of `kind`; what it printed.
    ///
    /// # Errors
    /// What the case fails with, and when there is no node or it ended.
    pub fn run(&self, kind: &'static Kind, case: &Case) -> Result<String> {
        let node = KINDS.iter().position(|one| one.tier == kind.tier).and_then(|at| self.nodes.get(at));
        let node = node.context("a kind of node that is in no table")?;
        let node = node.get_or_init(|| Node::boot(kind, &Config::from_env()).map_err(|failed| format!("{failed:#}")));
        node.as_ref().map_err(|failed| anyhow!("no emulated node: {failed}"))?.run(case)
    }

    /// Waits until no other case runs that has a card to itself, and until the guard is dropped no other one will. The
    /// nodes with cards take turns among themselves: a guest in one of them takes a whole processor.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
