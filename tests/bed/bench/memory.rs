//! Memory of processes, and what ours take for each machine.

use std::time::Duration;

use anyhow::Result;
use proto::cri::ContainerConfig;
use tests::node::{Node, Vm};
use tests::pss::pss;

use super::report::Pair;

/// Programs that are ours and stay.
pub(super) const OURS: &[&str] = &["controld", "tapmanager"];
/// Machines that the first figure is of: what is taken once for all is taken by then.
const FEW: usize = 3;
const MORE: usize = 6;
/// As much as was promised, in KiB.
const PROMISED: f64 = 100.0;

/// What [`OURS`] take for each machine like this one that runs. They are started again before, since what other rows had them take is
/// given back while this one is measured.
pub(super) fn of_a_machine(node: &mut Node, container: &ContainerConfig) -> Result<Pair> {
    for daemon in [&mut node.controld, &mut node.net.tapmanager] {
        daemon.terminate()?;
        daemon.start_again()?;
    }
    node.wait_ready()?;
    let few = booted(node, container, "few", FEW)?;
    let before = pss(OURS)?;
    let more = booted(node, container, "more", MORE)?;
    let after = pss(OURS)?;
    few.iter().chain(&more).try_for_each(|vm| node.remove_vm(vm, Duration::ZERO))?;
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    Ok(Pair { ours: (after - before) / MORE as f64, baseline: PROMISED })
}

fn booted(node: &Node, container: &ContainerConfig, name: &str, count: usize) -> Result<Vec<Vm>> {
    let boot = |n| {
        let vm = node.start_pod(node.pod(&format!("{name}-{n}"))?, container)?;
        vm.wait_up()?;
        Ok(vm)
    };
    (0..count).map(boot).collect()
}
