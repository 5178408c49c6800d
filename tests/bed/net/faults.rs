//! Attach that fails after each of its steps in turn, on the real kernel with real plugins: nothing is left, and the
//! next Attach of the same pod succeeds. The daemon runs in this process, told where to fail.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tapmanager::faults::Faults;
use tests::case::{Bed, Case};
use tests::cni::{self, Kind, Network};
use tests::net_node::pod_id;
use tests::world::World;

use super::in_process::InProcess;

/// Some twenty steps, each with two attaches; ptp waits seconds for the addresses of each.
const DEADLINE: Duration = Duration::from_secs(720);
/// An Attach has fewer steps than this, or the loop would never end.
const TOO_MANY: usize = 100;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "net::a_failure_at_any_step_is_undone_bridge",
        deadline: DEADLINE,
        run: |bed| every_step(bed, Kind::Bridge),
    },
    Case {
        name: "net::a_failure_at_any_step_is_undone_ptp",
        deadline: DEADLINE,
        run: |bed| every_step(bed, Kind::Ptp),
    },
];

fn every_step(bed: &Bed, kind: Kind) -> Result<()> {
    let network = Network { kind, masquerade: true, hairpin: false };
    cni::install(&network.conflist().to_string())?;
    let pod = pod_id(1)?;
    let steps = steps_of_an_attach(bed)?;
    ensure!((4..TOO_MANY).contains(&steps), "an Attach has {steps} steps");
    for step in 1..=steps {
        let daemon = InProcess::start(bed, Faults::after_step(step))?;
        let before = World::settled()?;
        let failed = daemon.taps.attach(&pod).err().with_context(|| format!("step {step} did not fail"))?;
        let failed = failed.to_string();
        ensure!(failed.contains("injected after step"), "step {step} failed by itself: {failed}");
        before.assert_same().with_context(|| format!("after: {failed}"))?;
        daemon.taps.attach(&pod).with_context(|| format!("next Attach after: {failed}"))?;
        daemon.taps.detach(&pod)?;
        before.assert_same().with_context(|| format!("after the Detach that followed: {failed}"))?;
        daemon.stop()?;
    }
    Ok(())
}

fn steps_of_an_attach(bed: &Bed) -> Result<usize> {
    let daemon = InProcess::start(bed, Faults::none())?;
    let pod = pod_id(1)?;
    daemon.taps.attach(&pod)?;
    let steps = daemon.faults.steps_seen();
    daemon.taps.detach(&pod)?;
    daemon.stop()?;
    Ok(steps)
}
