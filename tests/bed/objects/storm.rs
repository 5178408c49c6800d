//! VMs of every strategy while people ask for anything, pods end in every way, calls are lost and the operator is killed: there is never
//! more than one pod of a VM, and what is wanted comes about once all of that is over.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, finish};
use tests::controllers::Controllers;
use tests::daemon::Daemon;
use tests::dice::Dice;
use tests::faulty_api::FaultyApi;
use tests::sham_kubelet::{Mood, ShamKubelet};
use tests::wait::wait_for;

use super::World;

/// A control plane starts, and a minute of events and what they come to follow.
const DEADLINE: Duration = Duration::from_secs(600);
/// Until all is as it is wanted: a start that failed is tried again after five minutes at the latest, but each VM has a new strategy.
const SETTLE_DEADLINE: Duration = Duration::from_secs(120);
const VMS: usize = 10;
const SETS: usize = 2;
const EVENTS: usize = 120;
/// So many calls are lost or sent twice meanwhile, at least: a fourth of what are.
const FAULTS: usize = 10;
/// After so many the operator is killed.
const KILL_EACH: usize = 12;
const STRATEGIES: [&str; 5] = ["Always", "RerunOnFailure", "Manual", "Once", "Halted"];
const SEED: u64 = 34;
const ALL: &str = "virtualmachines,virtualmachineinstances,virtualmachineinstancereplicasets,pods,secrets";

pub(super) const CASES: &[Case] =
    &[Case { name: "objects::a_storm_ends_with_what_is_wanted", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let mut world = World::start(bed)?;
    let api = FaultyApi::start(&world.cluster, &bed.dir, SEED)?;
    let kubelet = ShamKubelet::start(&world.cluster, SEED)?;
    let mut operator = world.serve(&api.kubeconfig)?;
    let plane = &mut world.controllers;
    plane.apply(&[crate::kubelet::whole::runtime_class()])?;

    storm(plane, &kubelet, &mut operator)?;
    ensure!(api.faults() >= FAULTS, "only {} calls were lost or sent twice", api.faults());
    api.calm();
    kubelet.set(Mood::Fair);

    // Their new strategy would go with them.
    settles("end of VMs that were deleted", &kubelet, &mut operator, || {
        let going = "jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}";
        let going = plane.kubectl(&["get", "vm", "-o", going])?;
        Ok((!going.is_empty()).then_some(going))
    })?;
    // A new strategy forgets what failed before.
    for (strategy, printed, phase) in [("Halted", "Stopped", ""), ("Always", "Running", "Running")] {
        for vm in names("vm", VMS) {
            plane.apply(&[vm_of(&vm, strategy)])?;
        }
        settles(&format!("VMs of strategy {strategy}"), &kubelet, &mut operator, || {
            for vm in names("vm", VMS) {
                let status = path(plane, &["vm", &vm], ".status.printableStatus")?;
                let now = if phase.is_empty() { String::new() } else { path(plane, &["vmi", &vm], ".status.phase")? };
                if (status.as_str(), now.as_str()) != (printed, phase) {
                    return Ok(Some(format!("{vm} is {status}, its instance {now}")));
                }
            }
            Ok(None)
        })?;
    }
    for set in names("set", SETS) {
        plane.kubectl(&["scale", "vmirs", &set, "--replicas=3"])?;
    }
    settles("sets of three", &kubelet, &mut operator, || {
        for set in names("set", SETS) {
            let ready = path(plane, &["vmirs", &set], ".status.readyReplicas")?;
            let there = plane.kubectl(&["get", "vmi", "-l", &format!("set={set}"), "-o", "name"])?.lines().count();
            if ready != "3" || there != 3 {
                return Ok(Some(format!("{set} has {there}, {ready} of them ready")));
            }
        }
        Ok(None)
    })?;

    plane.kubectl(&["delete", "vm,vmirs,vmi", "--all", "--wait=false"])?;
    settles("end of all", &kubelet, &mut operator, || {
        let left = plane.kubectl(&["get", ALL, "-o", "name"])?;
        Ok((!left.is_empty()).then_some(left))
    })?;
    let log = operator.log()?;
    ensure!(!log.contains("panicked"), "the operator panicked: {log}");
    Ok(())
}

/// Events, one with each look at the pods, and the operator is killed among them.
fn storm(plane: &mut Controllers, kubelet: &ShamKubelet, operator: &mut Daemon) -> Result<()> {
    let dice = Dice::new(SEED);
    for vm in names("vm", VMS) {
        plane.apply(&[vm_of(&vm, dice.one_of::<&str>(&STRATEGIES))])?;
    }
    for set in names("set", SETS) {
        plane.apply(&[set_of(&set, 2)])?;
    }
    for nth in 0..EVENTS {
        event(plane, &dice, nth)?;
        kubelet.check()?;
        if nth % KILL_EACH == KILL_EACH - 1 {
            operator.kill9()?;
            operator.start_again()?;
        }
        runs_on(operator)?;
    }
    Ok(())
}

/// An operator whose calls were lost for as long as its lease lasts has ended, and is started again, as kubelet would.
fn runs_on(operator: &mut Daemon) -> Result<()> {
    let ended = match operator.still_runs() {
        Ok(()) => return Ok(()),
        Err(ended) => ended,
    };
    let is_lost = operator
        .log()?
        .trim_end()
        .lines()
        .last()
        .is_some_and(|last| last.contains("the lease") && last.contains("was lost"));
    if !is_lost {
        return Err(ended);
    }
    operator.kill9()?;
    operator.start_again()
}

/// Applies a VM. One that goes between kubectl's look and its patch is none any more: then it is made.
fn applied(plane: &mut Controllers, vm: Value) -> Result<()> {
    match plane.apply(std::slice::from_ref(&vm)) {
        Err(error) if format!("{error:#}").contains("(NotFound)") => plane.apply(&[vm]),
        applied => applied,
    }
}

/// What somebody does. It may be refused: the object may be gone, or not be as it was.
fn event(plane: &mut Controllers, dice: &Dice, nth: usize) -> Result<()> {
    let vm = dice.one_of(&names("vm", VMS)).clone();
    let set = dice.one_of(&names("set", SETS)).clone();
    let request = json!({"id": nth.to_string(), "action": dice.one_of(&["Start", "Stop", "Restart"]), "gracePeriodSeconds": dice.below(3)});
    let annotation = format!("virtlet.k8s/power-request={request}");
    let replicas = format!("--replicas={}", dice.below(5));
    let words: Vec<&str> = match dice.below(7) {
        0 | 1 => return applied(plane, vm_of(&vm, dice.one_of::<&str>(&STRATEGIES))),
        2 => vec!["annotate", "--overwrite", "vm", &vm, &annotation],
        3 => vec!["delete", "vmi", &vm, "--wait=false"],
        4 => vec![
            "delete",
            "pod",
            "-l",
            "vm.kubevirt.io/name",
            "--field-selector",
            "status.phase=Running",
            "--wait=false",
        ],
        5 => vec!["delete", "vm", &vm, "--wait=false"],
        _ => vec!["scale", "vmirs", &set, &replicas],
    };
    finish(&mut plane.command(&words), TOOL_DEADLINE).map(drop)
}

/// Waits until nothing is said to be missing any more.
fn settles(
    what: &str,
    kubelet: &ShamKubelet,
    operator: &mut Daemon,
    mut missing: impl FnMut() -> Result<Option<String>>,
) -> Result<()> {
    let mut last = None;
    let settled = wait_for(what, SETTLE_DEADLINE, || {
        kubelet.check()?;
        runs_on(operator)?;
        last = missing()?;
        Ok(last.is_none().then_some(()))
    });
    settled.with_context(|| format!("at last: {}", last.unwrap_or_default()))
}

/// What is at a path of an object; empty if there is no such object, or nothing there.
fn path(plane: &mut Controllers, object: &[&str], path: &str) -> Result<String> {
    let output = format!("jsonpath={{{path}}}");
    plane.kubectl(&[&["get", "--ignore-not-found", "-o", &output][..], object].concat())
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("{prefix}{nth}")).collect()
}

fn spec() -> Value {
    json!({
        "domain": {"memory": {"guest": "128Mi"}, "devices": {}}, "terminationGracePeriodSeconds": 5,
        "volumes": [
            {"name": "root", "containerDisk": {"image": "example.com/tiny"}},
            {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
        ],
    })
}

fn vm_of(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {"spec": spec()}},
    })
}

fn set_of(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"set": name}},
            "template": {"metadata": {"labels": {"set": name}}, "spec": spec()},
        },
    })
}
