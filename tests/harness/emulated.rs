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

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};

use crate::case::Case;
use crate::config::Config;
use crate::cost::{Ran, Wait};
use crate::report::{Machine, Report};
use crate::slots::{Gate, Inside};

pub(crate) use agent::serve;
use kind::KINDS;
pub use kind::{EMULATED, Kind, PERIODIC};
use node::Node;
use wire::locked;

/// Cases at a time in a node, which has two emulated processors: CNI plugins have deadlines of their own in there, such as the 5 s in
/// which an address has to be known as nobody else's.
const AT_A_TIME: usize = 3;

/// One node of each kind, booted when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct OnDemand {
    places: [Mutex<Place>; KINDS.len()],
    gates: [Gate; KINDS.len()],
    report: Arc<Report>,
}

#[derive(Debug, Default)]
struct Place {
    /// Once it was asked for.
    node: Option<Result<Arc<Node>, String>>,
    boot_s: f64,
    /// So many cases are going to ask for it.
    left: usize,
}

impl OnDemand {
    /// For these cases, with the last of which each node ends: one that idles takes a tenth of a processor.
    pub(crate) fn of<'a>(cases: impl IntoIterator<Item = &'a Case>, report: Arc<Report>) -> Self {
        let nodes = Self { report, ..Self::default() };
        for place in cases.into_iter().filter_map(|case| nodes.place(Kind::of(case.name)?)) {
            locked(place).left += 1;
        }
        nodes
    }

    /// Runs `case` in the node of `kind`, whose boot is a part of what its first case costs.
    pub(crate) fn run(&self, kind: &'static Kind, case: &Case) -> Ran {
        let mut booted = None;
        let boot = || {
            let begun = Instant::now();
            let node = Node::boot(kind, &Config::from_env()).map(Arc::new).map_err(|failed| format!("{failed:#}"));
            booted = Some(begun.elapsed().as_secs_f64());
            node
        };
        let Some(place) = self.place(kind) else { return Ran::failed(anyhow!("a kind of node that is in no table")) };
        let node = locked(place).node.get_or_insert_with(boot).clone();
        let mut ran = match node {
            Ok(node) => node.run(case).unwrap_or_else(Ran::failed),
            Err(failed) => Ran::failed(anyhow!("no emulated node: {failed}")),
        };
        ran.cost.waits.extend(booted.map(|seconds| (Wait::Node, seconds)));
        let mut place = locked(place);
        place.boot_s += booted.unwrap_or_default();
        place.left = place.left.saturating_sub(1);
        if place.left == 0
            && let Some(Ok(node)) = place.node.take()
        {
            let processor_s = node.processor_s();
            self.report.add_machine(Machine { tier: kind.tier, boot_s: place.boot_s, processor_s });
        }
        ran
    }

    fn place(&self, kind: &Kind) -> Option<&Mutex<Place>> {
        self.places.get(place_of(kind)?)
    }

    /// Waits until there is room for one more case in the node of `kind`.
    pub(crate) fn enter(&self, kind: &Kind) -> Option<Inside<'_>> {
        Some(self.gates.get(place_of(kind)?)?.enter(AT_A_TIME))
    }
}

fn place_of(kind: &Kind) -> Option<usize> {
    KINDS.iter().position(|one| one.tier == kind.tier)
}

/// Runs one case in a node of its kind, which ends with it; what the case printed.
///
/// # Errors
/// What it fails with, and when there is no such node.
pub fn alone(case: &Case) -> Result<String> {
    let kind = Kind::of(case.name).context("a case of no node")?;
    OnDemand::of([case], Arc::default()).run(kind, case).outcome
}
