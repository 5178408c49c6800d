//! `kill -9` of the daemon at each step of an Attach and of a Detach in turn, and a reboot as far as namespaces go: the next
//! daemon undoes what was half done and knows what was whole.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, umount2};
use proto::tap::{Arm, Attach, ErrorCode, NetworkAsk, PodId, PodPhase, Request};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::net_node::{NetNode, attach, pod_id};
use tests::world::World;

use super::in_process::Doomed;

/// Some thirty steps, with two daemons each.
const DEADLINE: Duration = Duration::from_secs(480);
/// An Attach and a Detach have fewer steps than this, or the loop would never end.
const TOO_MANY: usize = 100;

pub(super) const CASES: &[Case] = &[
    Case { name: "net::a_kill_at_any_step_is_undone_or_finished", deadline: DEADLINE, run: every_step },
    Case { name: "net::a_pod_whose_namespace_went_is_told_and_goes", deadline: DEADLINE, run: rebooted },
];

/// The bridge plugin leaves its masquerading rules, and says so to nobody, where DEL finds no namespace.
fn start(bed: &Bed) -> Result<NetNode> {
    NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())
}

fn every_step(bed: &Bed) -> Result<()> {
    let pod = pod_id(1)?;
    let mut node = start(bed)?;
    // What plugins make once and for all is there before anything is counted.
    node.attach(&pod)?;
    node.detach(&pod)?;
    let before = World::settled()?;
    node.tapmanager.terminate()?;

    let [mut of_attach, mut of_detach, mut unanswered] = [0; 3];
    for step in 1..TOO_MANY {
        let doomed = Doomed::start(bed, step, &cni::debian_plugins())?;
        let taps = &doomed.taps;
        let attached = taps.attach_as(on_two_networks(&pod)).is_ok();
        // The second one waits for what is behind the answer of the first.
        let detached = attached && taps.detach(&pod).is_ok() && taps.detach(&pod).is_ok();
        let outlived = doomed.outlived(detached)?;
        if !outlived {
            *(if attached { &mut of_detach } else { &mut of_attach }) += 1;
        }

        node.tapmanager.start_again()?;
        node.wait_ready()?;
        node.wait_recovered()?;
        // What was half done is undone; what was whole, but for the answer, is there.
        if let [whole] = node.pods()?.as_slice() {
            ensure!(whole.phase == PodPhase::Attached, "step {step}: {whole:?}");
            ensure!(!attached, "step {step}: a Detach that began is not finished");
            unanswered += 1;
            node.detach(&pod).with_context(|| format!("after a kill at step {step}"))?;
        }
        as_before(&before).with_context(|| format!("after a kill at step {step}"))?;
        node.attach_as(on_two_networks(&pod)).with_context(|| format!("after a kill at step {step}"))?;
        node.detach(&pod)?;
        as_before(&before).with_context(|| format!("after the Detach that followed step {step}"))?;
        node.tapmanager.terminate()?;
        if outlived {
            ensure!(of_attach > 15 && of_detach >= 6, "{of_attach} and {of_detach} steps");
            ensure!(unanswered == 1, "{unanswered} pods after the result was written, not one");
            return Ok(());
        }
    }
    anyhow::bail!("more than {TOO_MANY} steps")
}

fn rebooted(bed: &Bed) -> Result<()> {
    let mut node = start(bed)?;
    let (stays, gone) = (pod_id(1)?, pod_id(2)?);
    let before = World::look()?;
    let net = node.attach(&stays)?;
    let lost = node.attach(&gone)?.netns;
    node.tapmanager.kill9()?;
    umount2(&lost, MntFlags::MNT_DETACH)?;
    fs::remove_file(&lost)?;

    node.tapmanager.start_again()?;
    node.wait_ready()?;
    node.wait_recovered()?;
    let phases: Vec<_> = node.pods()?.iter().map(|pod| pod.phase).collect();
    ensure!(phases == [PodPhase::Attached; 2], "{phases:?}");
    ensure!(node.attach(&stays)? == net, "the other pod has another network");
    let refused = node.attach(&gone).err().context("a pod without a namespace is of no use")?;
    ensure!(format!("{refused:#}").contains("is gone"), "{refused:#}");
    let arm = Request::Arm(Arm { pod: gone.clone(), qemu: None, iommufd: None });
    let refused = node.client().call(&arm).err().context("nor can a machine start on it")?;
    ensure!(refused.code() == ErrorCode::Conflict, "{refused}");
    node.detach(&stays)?;
    node.detach(&gone)?;
    as_before(&before)
}

/// But for the daemon's own processes, which are others now.
fn as_before(before: &World) -> Result<()> {
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

fn on_two_networks(pod: &PodId) -> Attach {
    Attach { networks: vec![NetworkAsk::default(); 2], ..attach(pod) }
}
