//! Memory of processes, and what ours take for each machine.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use proto::cri::ContainerConfig;
use tests::node::{Node, Vm};

use super::report::Pair;

/// Programs that are ours and stay.
pub(super) const OURS: &[&str] = &["controld", "tapmanager"];
/// Machines that the first figure is of: what is taken once for all is taken by then.
const FEW: usize = 3;
const MORE: usize = 6;
/// As much as was promised, in KiB.
const PROMISED: f64 = 100.0;

/// KiB that processes of these names take, shared pages divided by those who share them.
pub(super) fn pss(programs: &[&str]) -> Result<f64> {
    let mut sum = 0.0;
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Ok(name) = fs::read_to_string(process.path().join("comm")) else { continue };
        if !programs.contains(&name.trim()) {
            continue;
        }
        // One that ends meanwhile takes nothing.
        let Ok(rollup) = fs::read_to_string(process.path().join("smaps_rollup")) else { continue };
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
        sum += line.trim().trim_end_matches("kB").trim().parse::<f64>()?;
    }
    Ok(sum)
}

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
