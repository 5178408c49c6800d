//! `kill -9` of controld, libvirtd and QEMU amid a claim. What tapmanager's own end costs is in [`super::kills`].

use std::fs;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{ContainerConfig, ListPodSandboxRequest, PodSandboxConfig};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::cri::{self, Cri};
use tests::libvirt::{only_qemu, qemus, running_domains};
use tests::node::Node;
use tests::sriov::{Card, Snapshot};
use tests::wait::wait_until;

use super::setup::{self, MAC, allocations, claim_of, claims, plugin};

/// Some pods, whose guests need not come up.
const DEADLINE: Duration = Duration::from_secs(720);
const STEP_WITHIN: Duration = Duration::from_secs(60);
const CLEAN_WITHIN: Duration = Duration::from_secs(60);
const GUEST: &str = "tiny-vf.qcow2";

pub(super) const CASES: &[Case] =
    &[Case { name: "sriov::whoever_else_dies_amid_a_claim_costs_no_function", deadline: DEADLINE, run: each }];

#[derive(Debug, Clone, Copy)]
enum Victim {
    Controld,
    Libvirtd,
    Qemu,
}

fn each(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    card.set(0, "mac 02:00:00:00:50:02")?;
    card.bind(0, None)?;
    let mut node = setup::node(bed, &[("fast", plugin(&card, "10.50.0", json!({"mac": MAC})))])?;
    let container = cri::container(&node.pull(bed, GUEST)?, [].into());
    let before = card.snapshot()?;
    // controld waits for an answer of tapmanager's all the while; these are before, in and after each call.
    let steps = ["observed", "bound", "in_use", "rebinding"];
    let rounds = steps.map(|step| (Victim::Controld, step)).into_iter();
    let rounds =
        rounds.chain([(Victim::Libvirtd, "in_use"), (Victim::Libvirtd, "rebinding"), (Victim::Qemu, "in_use")]);
    for (number, (victim, step)) in rounds.enumerate() {
        let pod = node.pod(&format!("round-{number}"))?;
        round(&mut node, &card, &pod, &container, (victim, step))
            .and_then(|()| is_clean(&node, &card, &before))
            .with_context(|| format!("{victim:?}, killed at `{step}`"))?;
    }
    Ok(())
}

/// A pod's life, during which `victim` is killed once its claim is at `step` or just beyond, as the steps are short.
fn round(
    node: &mut Node,
    card: &Card,
    pod: &PodSandboxConfig,
    container: &ContainerConfig,
    (victim, step): (Victim, &str),
) -> Result<()> {
    let Node { cri, controld, libvirt, .. } = node;
    let name = format!("\"{step}\"");
    // A machine whose QEMU is killed runs until then.
    let (killed, is_killed) = mpsc::channel();
    std::thread::scope(move |scope| {
        let killed = matches!(victim, Victim::Qemu).then_some(killed);
        let life = scope.spawn(move || live(cri, pod, container, &is_killed));
        wait_until("step of the claim", STEP_WITHIN, || {
            claim_of(card, 0).is_ok_and(|claim| claim.contains(&name)) || life.is_finished()
        })?;
        match victim {
            Victim::Controld => controld.kill9()?,
            Victim::Libvirtd => libvirt.libvirtd.kill9()?,
            Victim::Qemu => {
                wait_until("QEMU", STEP_WITHIN, || qemus().is_ok_and(|all| !all.is_empty()))?;
                kill(Pid::from_raw(only_qemu()?), Signal::SIGKILL)?;
            }
        }
        drop(killed);
        // Whether it was answered first is of no matter to what is left.
        let _answered = life.join();
        anyhow::Ok(())
    })?;
    match victim {
        Victim::Controld => node.controld.start_again()?,
        Victim::Libvirtd => {
            node.libvirt.libvirtd.start_again()?;
            node.libvirt.wait_ready()?;
        }
        Victim::Qemu => {}
    }
    node.wait_ready()?;
    let request = ListPodSandboxRequest::default;
    let left = node.cri.call(|mut client| async move { client.list_pod_sandbox(request()).await })?.items;
    for sandbox in left {
        node.cri.remove_sandbox(&sandbox.id)?;
    }
    Ok(())
}

/// As kubelet does, but for the wait in which the guest would boot. Nothing is stopped as long as `until` has a sender.
fn live(cri: &Cri, pod: &PodSandboxConfig, container: &ContainerConfig, until: &Receiver<()>) -> Result<()> {
    let sandbox = cri.run_sandbox(pod)?;
    let machine = cri.create(&sandbox, container, pod)?;
    cri.start(&machine)?;
    // Nothing is ever sent, and whoever has the sender drops it in time, whatever happens.
    let _dropped = until.recv();
    cri.stop(&machine, Duration::ZERO)?;
    Ok(cri.remove_sandbox(&sandbox)?)
}

/// Also what controld never answered: its next run gives that back.
fn is_clean(node: &Node, card: &Card, before: &Snapshot) -> Result<()> {
    wait_until("an end of all claims", CLEAN_WITHIN, || claims().is_ok_and(|claims| claims == 0))?;
    wait_until("an end of all pods", CLEAN_WITHIN, || node.net.pods().is_ok_and(|pods| pods.is_empty()))?;
    ensure!(allocations()? == 0, "{} allocations of the plugin are left", allocations()?);
    ensure!(running_domains()?.is_empty() && qemus()?.is_empty(), "a machine is left");
    ensure!(!fs::exists("/dev/vfio/0")?, "a group of VFIO is left");
    before.holds(&card.snapshot()?)
}
