//! `kill -9` of tapmanager at each step of an Attach, an Arm and a Detach of a pod with a virtual function: the next daemon
//! restores the function, or knows it as its pod's.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::tap::PodPhase;
use serde_json::json;
use tests::case::{Bed, Case};
use tests::net_node::{NetNode, pod_id};
use tests::sriov::Card;

use super::setup::{self, MAC, allocations, claims, plugin};
use crate::net::Doomed;

/// Some thirty steps, with two daemons each, in an emulated node.
const DEADLINE: Duration = Duration::from_secs(720);
const TOO_MANY: usize = 100;

pub(super) const CASES: &[Case] =
    &[Case { name: "sriov::a_kill_at_any_step_of_a_claim_is_restored", deadline: DEADLINE, run: every_step }];

fn every_step(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    card.set(0, "mac 02:00:00:00:50:02")?;
    card.bind(0, None)?;
    let (pod, plugins) = (pod_id(1)?, setup::plugins(bed)?);
    let network = setup::conflist("fast", &plugin(&card, "10.50.0", json!({"mac": MAC})));
    let mut node = NetNode::start(bed, &network.to_string(), &plugins)?;
    let before = card.snapshot()?;
    node.tapmanager.terminate()?;

    let (mut killed_with_claim, mut whole) = (0, 0);
    for step in 1..TOO_MANY {
        let doomed = Doomed::start(bed, step, &plugins)?;
        let taps = &doomed.taps;
        let attached = taps.attach(&pod).is_ok();
        let armed = attached && taps.arm(&pod).is_ok();
        let detached = armed && taps.detach(&pod).is_ok() && taps.detach(&pod).is_ok();
        let outlived = doomed.outlived(detached)?;
        if !outlived {
            killed_with_claim += claims()?;
        }

        node.tapmanager.start_again()?;
        node.wait_ready()?;
        node.wait_recovered()?;
        if let [pod_left] = node.pods()?.as_slice() {
            ensure!(pod_left.phase == PodPhase::Attached && pod_left.trouble.is_none(), "step {step}: {pod_left:?}");
            ensure!(claims()? == 1, "step {step}: {} claims of a pod that is attached", claims()?);
            ensure!(card.driver(0)?.as_deref() == Some("vfio-pci"), "step {step}: {:?}", card.driver(0)?);
            whole += 1;
            node.detach(&pod).with_context(|| format!("after a kill at step {step}"))?;
        }
        before.holds(&card.snapshot()?).with_context(|| format!("after a kill at step {step}"))?;
        ensure!(claims()? == 0, "step {step}: {} claims are left", claims()?);
        ensure!(allocations()? == 0, "step {step}: {} allocations of the plugin are left", allocations()?);
        node.tapmanager.terminate()?;
        if outlived {
            // One for each of: observed, saved, taken, bound, in use, rebinding, restored; and before and after.
            ensure!(killed_with_claim >= 7 && whole >= 2, "{killed_with_claim} kills with a claim, {whole} pods whole");
            return Ok(());
        }
    }
    bail!("more than {TOO_MANY} steps")
}
