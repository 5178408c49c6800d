//! controld is killed fifty times, at any moment, while pods of both kinds come and go; two that stay are none the wiser. kubelet is killed
//! twice meanwhile, once alone and once with controld.
//!
//! Moments are counted in answers of controld and not in time, by numbers of a seed that is drawn for each run. A failure names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::cni::Network;
use tests::kubelet::Kubelet;
use tests::libvirt::domains;
use tests::node::BOOT_DEADLINE;
use tests::numbers::Numbers;
use tests::wait::{wait_for, wait_until};
use tests::world::World;

use super::{Both, DEADLINE, POD_DEADLINE, container, idle_machine, of_the_node, times_new, wait_runs};

/// Each begins with a machine and a container that are made, so that there is always something to be disturbed.
const ROUNDS: usize = 5;
const KILLS_OF_ROUND: usize = 10;
/// Pods of a round that come and go: even ones are machines.
const SLOTS: usize = 6;
/// In this round kubelet is killed while the first pods are made, and in that one with controld, at this kill.
const KUBELET_ALONE: usize = 1;
const KUBELET_TOO: (usize, usize) = (3, 5);
/// What a controld answers before it is killed, at most. None: it is killed in its start.
const ANSWERS: usize = 40;

pub(super) const CASES: &[Case] =
    &[Case { name: "proxy::controld_that_is_killed_restarts_no_pod", deadline: DEADLINE, run: killed }];

fn killed(bed: &Bed) -> Result<()> {
    let seed = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() & u128::from(u64::MAX))?;
    killed_by(bed, Numbers::of(seed)).with_context(|| format!("with seed {seed:#x}"))
}

fn killed_by(bed: &Bed, mut numbers: Numbers) -> Result<()> {
    // Without rules of a firewall: of a sandbox whose client goes while it is made, containerd 2.4 leaves them.
    let mut both = Both::on(bed, &Network::BRIDGE.conflist(), "")?;
    let image = both.node.offer_no_system(bed)?;
    let mut kubelet = Kubelet::start(bed)?;
    // A kubelet that begins takes its pods by name: were there no room for all, one that runs could be the one that it ends.
    kubelet.apply("vm", &idle_machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "vm", BOOT_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let before = both.ids()?;
    let new = [times_new(&kubelet, "vm")?, times_new(&kubelet, "c")?];
    let (world, mounts) = (World::look()?, mounts()?);

    let mut there = BTreeSet::new();
    for round in 0..ROUNDS {
        let pods: Vec<_> = (0..SLOTS).map(|slot| churned(round, slot, &image)).collect();
        let earlier = both.ids()?;
        toggle(&kubelet, &pods, 0, &mut there)?;
        toggle(&kubelet, &pods, 1, &mut there)?;
        wait_until("a machine's and a container's new pods", POD_DEADLINE, || {
            both.ids().is_ok_and(|ids| [true, false].into_iter().all(|kind| has_new(&ids, &earlier, kind)))
        })?;
        if round == KUBELET_ALONE {
            kubelet.again()?;
        }
        for kill in 0..KILLS_OF_ROUND {
            let answers = numbers.below(ANSWERS + 1);
            see(&both, &before, answers).with_context(|| format!("before kill {kill} of round {round}"))?;
            both.node.controld.still_runs()?;
            both.node.controld.kill9()?;
            if (round, kill) == KUBELET_TOO {
                kubelet.daemon.kill9()?;
            }
            both.node.controld.start_again()?;
            if (round, kill) == KUBELET_TOO {
                // kubelet ends where no runtime answers it. systemd would start it until one does.
                see(&both, &before, 1)?;
                kubelet.restart()?;
            }
            toggle(&kubelet, &pods, numbers.below(pods.len()), &mut there)?;
        }
        both.node.wait_ready()?;
        for name in std::mem::take(&mut there) {
            kubelet.delete(&name)?;
        }
    }

    wait_for("both pods that stay, and no others", POD_DEADLINE, || {
        Ok(both.ids().is_ok_and(|ids| ids == before).then_some(()))
    })
    .with_context(|| format!("{:?}", both.ids()))?;
    // These say that neither was restarted, or taken for gone.
    wait_runs(&kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    ensure!(new == [times_new(&kubelet, "vm")?, times_new(&kubelet, "c")?], "kubelet has taken a pod for gone");
    ensure!(domains()?.len() == 1, "{:?}", domains()?);
    world.assert_same_but(of_the_node)?;
    wait_until("end of what containers had mounted", POD_DEADLINE, || self::mounts().is_ok_and(|now| now == mounts))?;

    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}

/// Name and manifest of a pod that comes and goes.
fn churned(round: usize, slot: usize, image: &str) -> (String, Value) {
    let name = format!("churned{round}{slot}");
    let pod = if slot.is_multiple_of(2) { idle_machine(&name, image) } else { container(&name) };
    (name, pod)
}

/// Has kubelet make a pod, or end it if it was told to make it.
fn toggle(kubelet: &Kubelet, pods: &[(String, Value)], slot: usize, there: &mut BTreeSet<String>) -> Result<()> {
    let (name, pod) = pods.get(slot).context("no such pod")?;
    if there.remove(name) {
        return kubelet.delete(name);
    }
    there.insert(name.clone());
    kubelet.apply(name, pod)
}

/// Whether there is one of this kind that was not there before.
fn has_new(ids: &BTreeMap<String, i32>, earlier: &BTreeMap<String, i32>, of_machine: bool) -> bool {
    ids.keys().any(|id| id.starts_with("vm") == of_machine && !earlier.contains_key(id))
}

/// Takes so many lists, of which none may lack what stays.
fn see(both: &Both, stays: &BTreeMap<String, i32>, lists: usize) -> Result<()> {
    let mut taken = 0;
    wait_for(&format!("{lists} lists"), POD_DEADLINE, || {
        if taken == lists {
            return Ok(Some(()));
        }
        // It has just been started: an error is no list, and nothing is said to be gone.
        let Ok(ids) = both.ids() else { return Ok(None) };
        ensure!(stays.iter().all(|(id, state)| ids.get(id) == Some(state)), "{stays:?} stay, and there are {ids:?}");
        taken += 1;
        Ok(None)
    })
}

fn mounts() -> Result<usize> {
    Ok(fs::read_to_string("/proc/mounts")?.lines().count())
}
