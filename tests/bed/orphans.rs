//! Tier `restart`: records that are lost, or that cannot be read, while their machines run.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerState, StopPodSandboxRequest};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::libvirt::{only_qemu, running_domains};
use tests::node::{CRI_SOCKET, Node, Vm, user_data};
use tests::records;
use tests::wait::{wait_for, wait_until};
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
/// Exit code of a daemon whose records a newer release wrote.
const NEWER_RECORDS: i32 = 65;
/// The database and the log beside it.
const RECORDS: [&str; 2] = [records::DATABASE, "/var/lib/virtlet/meta.log"];

pub(crate) const CASES: &[Case] = &[
    Case { name: "restart::a_lost_database_costs_no_machine_and_no_disk", deadline: DEADLINE, run: lost },
    Case { name: "restart::a_database_that_comes_back_costs_nothing", deadline: DEADLINE, run: put_back },
    Case { name: "restart::a_copy_of_the_same_life_costs_no_machine_and_no_disk", deadline: DEADLINE, run: same_life },
    Case { name: "restart::a_machine_whose_pod_alone_is_on_record", deadline: DEADLINE, run: pod_alone },
    Case { name: "restart::a_machine_whose_sandbox_is_on_no_record", deadline: DEADLINE, run: sandbox_lost },
    Case { name: "restart::records_of_another_release_cost_nothing", deadline: DEADLINE, run: another_release },
];

/// The pod is made anew beside its old machine, which goes when somebody says so.
fn lost(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let old = node.boot_vm(bed, "lost", "")?;
    let (qemu, disk) = (only_qemu()?, disk(&old));
    ensure!(Path::new(&disk).exists() && node.owners_known()?, "not as expected: {disk}");

    for again in ["moved away", "started once more"] {
        node.controld.terminate()?;
        if again == "moved away" {
            move_records("", ".away")?;
        }
        node.controld.start_again()?;
        node.wait_ready()?;
        wait_until("orphans in Status", GRACE, || node.owners_known().is_ok_and(|known| !known))?;
        let listed = wait_for("a list with the machine", GRACE, || {
            let listed = orphans(bed)?;
            Ok((listed.len() >= 3 && listed.iter().any(|name| name.starts_with("machine/"))).then_some(listed))
        })?;
        ensure!(listed.contains(&format!("machine/{}", old.machine)), "{again}: {listed:?}");
        ensure!(listed.iter().any(|name| name.starts_with("disk/")), "{again}: {listed:?}");
        ensure!(only_qemu()? == qemu, "{again}: another QEMU");
        ensure!(Path::new(&disk).exists(), "{again}: the disk is gone");
        old.info().with_context(|| format!("the guest, {again}"))?;
    }

    // As kubelet does: the same pod, of the same UID.
    let anew = node.boot_vm(bed, "lost", "").context("the pod made anew")?;
    ensure!(anew.ip != old.ip && running_domains()?.len() == 2, "the old machine is not beside it");
    old.info().context("the old guest beside its pod's new one")?;

    let name = |kind: &str| -> Result<String> {
        let listed = orphans(bed)?;
        listed.iter().find(|name| name.starts_with(kind)).cloned().with_context(|| format!("no {kind} in {listed:?}"))
    };
    let refused = virtletctl(bed, &["forget", &name("disk/")?])?;
    ensure!(refused.code != Some(0) && refused.stderr.contains("in use by a machine"), "{}", refused.stderr);
    let machine = name("machine/")?;
    forget(bed, &machine)?;
    ensure!(running_domains()?.len() == 1, "the machine still runs");
    anew.info().context("the new guest")?;
    while let Some(next) = orphans(bed)?.first() {
        forget(bed, next)?;
    }
    ensure!(node.owners_known()?, "Status still has orphans");
    ensure!(!Path::new(&disk).exists(), "the disk is still there");
    anew.info().context("the new guest")?;
    node.remove_vm(&anew, GRACE)?;
    for file in RECORDS {
        // Not all of them have to exist.
        let _ = fs::remove_file(format!("{file}.away"));
    }
    fs::remove_dir_all(&anew.pod.log_directory)?;
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

/// Moved away, noticed, and put back: the pod is what it was.
fn put_back(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "back", "")?;
    let (qemu, known) = (only_qemu()?, (node.cri.container(&vm.container)?, node.cri.sandbox(&vm.sandbox)?));
    node.controld.terminate()?;
    move_records("", ".away")?;
    node.controld.start_again()?;
    node.wait_ready()?;
    ensure!(!node.owners_known()?, "nothing is missed");
    ensure!(node.cri.container(&vm.container).is_err(), "the record is not lost");

    node.controld.terminate()?;
    move_records(".away", "")?;
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_until("known owners", GRACE, || node.owners_known().is_ok_and(|known| known))?;
    ensure!(orphans(bed)?.is_empty(), "left: {:?}", orphans(bed)?);
    let now = (node.cri.container(&vm.container)?, node.cri.sandbox(&vm.sandbox)?);
    ensure!(now == known, "known before: {known:?}\nknown now: {now:?}");
    ensure!(only_qemu()? == qemu, "another QEMU");
    node.remove_vm(&vm, GRACE)?;
    ensure!(!Path::new(&disk(&vm)).exists(), "the disk outlives its pod");
    Ok(())
}

/// A copy that the same controld has gone on from knows nothing of the pods since, and looks like the database of the last life.
fn same_life(bed: &Bed) -> Result<()> {
    let copy = format!("{}.copy", records::DATABASE);
    let mut node = Node::start(bed)?;
    let early = node.boot_vm(bed, "early", "")?;
    // Its end of the start is on record before the copy is made.
    node.wait_state(&early, ContainerState::ContainerRunning, GRACE)?;
    fs::copy(records::DATABASE, &copy)?;
    let late = node.boot_vm(bed, "late", "")?;

    node.controld.terminate()?;
    fs::rename(&copy, records::DATABASE)?;
    node.controld.start_again()?;
    node.wait_ready()?;
    let wanted =
        [format!("machine/{}", late.machine), format!("disk/{}", uid(&late)), format!("network/{}", late.sandbox)];
    wait_for("the late pod's things in the list", GRACE, || {
        let listed = orphans(bed)?;
        Ok(wanted.iter().all(|wanted| listed.contains(wanted)).then_some(()))
    })?;
    ensure!(running_domains()?.len() == 2, "a machine is gone");
    ensure!(Path::new(&disk(&late)).exists(), "the disk is gone");
    late.info().context("the guest that is on no record")?;
    early.info().context("the guest that is on record")?;
    node.remove_vm(&early, GRACE)?;
    late.info().context("the guest that is on no record, beside one that goes")?;
    for name in &wanted {
        forget(bed, name)?;
    }
    ensure!(!Path::new(&disk(&late)).exists() && running_domains()?.is_empty(), "not forgotten");
    Ok(())
}

/// The container's record cannot be read, but the pod's can. The machine keeps its disk and its network, until
/// kubelet stops its sandbox.
fn pod_alone(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let vm = node.boot_vm(bed, "half", "")?;
    let qemu = only_qemu()?;
    node.controld.terminate()?;
    ensure!(records::make_unreadable(&["containers"])? == 1, "not one container");
    node.controld.start_again()?;
    node.wait_ready()?;

    // kubelet sees no container in the sandbox, and makes the next one.
    let mut next = cri::container(&image, user_data(""));
    next.metadata.get_or_insert_default().attempt = 1;
    let refused = node.cri.create(&vm.sandbox, &next, &vm.pod);
    let said = refused.err().context("a second machine in the sandbox")?.message().to_owned();
    ensure!(said.contains(&format!("forget machine/{}", vm.machine)), "{said}");
    ensure!(only_qemu()? == qemu && Path::new(&disk(&vm)).exists(), "the machine or its disk is gone");

    // Nor does the pod get another sandbox before this one is stopped.
    let mut pod = vm.pod.clone();
    pod.metadata.get_or_insert_default().attempt = 1;
    let refused = node.cri.run_sandbox(&pod).err().context("a second sandbox of the pod")?;
    ensure!(refused.code() == tonic::Code::AlreadyExists, "{refused}");
    vm.info().context("the guest whose pod got no other sandbox")?;
    let stop = StopPodSandboxRequest { pod_sandbox_id: vm.sandbox.clone() };
    node.cri.call(|mut client| async move { client.stop_pod_sandbox(stop).await })?;
    ensure!(running_domains()?.is_empty(), "the sandbox is stopped, and its machine runs");

    // Disks are the pod's: they go with its last sandbox, and with no other.
    let second = node.start_pod(pod, &next)?;
    second.wait_up()?;
    node.remove_vm(&second, GRACE)?;
    ensure!(Path::new(&disk(&vm)).exists(), "the disk went with another");

    node.cri.remove_sandbox(&vm.sandbox)?;
    ensure!(!Path::new(&disk(&vm)).exists(), "the disk outlives its pod's last sandbox");
    forget(bed, &format!("record/containers/{}", vm.container))
}

/// The pod's record cannot be read and is given up; the container's can. The network stays while the machine runs.
fn sandbox_lost(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "roofless", "")?;
    node.controld.terminate()?;
    ensure!(records::make_unreadable(&["sandboxes"])? == 1, "not one pod");
    node.controld.start_again()?;
    node.wait_ready()?;
    let network = format!("network/{}", vm.sandbox);
    let is_listed = || -> Result<Option<()>> { Ok(orphans(bed)?.contains(&network).then_some(())) };
    wait_for("the network in the list", GRACE, is_listed)?;
    forget(bed, &format!("record/sandboxes/{}", vm.sandbox))?;

    // The next comparison with tapmanager knows of no record that is missing.
    node.controld.terminate()?;
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_for("the network in the list again", GRACE, is_listed)?;
    vm.info().context("the guest whose pod is on no record")?;
    let refused = virtletctl(bed, &["forget", &network])?;
    ensure!(refused.code != Some(0) && refused.stderr.contains("in use by container"), "{}", refused.stderr);
    vm.info().context("the guest whose network somebody wanted to forget")?;

    node.cri.stop(&vm.container, GRACE)?;
    node.cri.remove(&vm.container)?;
    while let Some(next) = orphans(bed)?.first() {
        forget(bed, next)?;
    }
    ensure!(node.owners_known()?, "Status still has orphans");
    Ok(())
}

/// An older release does not start on the records, and leaves all as it is; the one that can read them goes on.
fn another_release(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "newer", "")?;
    let qemu = only_qemu()?;
    node.controld.terminate()?;
    ensure!(records::make_newer(&records::VERSIONED)? == 2, "not one pod and one container");
    for _twice in 0..2 {
        node.controld.start_again()?;
        let code = node.controld.ended(GRACE)?;
        ensure!(code == Some(NEWER_RECORDS), "it ended with {code:?}");
        let log = node.controld.log()?;
        ensure!(log.contains("has records of a newer release; install that release again"), "{log}");
        ensure!(only_qemu()? == qemu && Path::new(&disk(&vm)).exists(), "the machine or its disk is gone");
        vm.info().context("the guest")?;
    }
    records::make_known(&records::VERSIONED)?;
    node.controld.start_again()?;
    node.wait_ready()?;
    ensure!(orphans(bed)?.is_empty(), "left: {:?}", orphans(bed)?);
    ensure!(only_qemu()? == qemu, "another QEMU");
    node.remove_vm(&vm, GRACE)
}

/// The root disk of a pod's first container.
fn disk(vm: &Vm) -> String {
    format!("/var/lib/virtlet/volumes/{}/root.qcow2", uid(vm))
}

fn uid(vm: &Vm) -> String {
    vm.pod.metadata.as_ref().map(|metadata| metadata.uid.clone()).unwrap_or_default()
}

fn move_records(from: &str, to: &str) -> Result<()> {
    for file in RECORDS {
        if Path::new(&format!("{file}{from}")).exists() {
            fs::rename(format!("{file}{from}"), format!("{file}{to}"))?;
        }
    }
    Ok(())
}

/// `KIND/ID` of each.
fn orphans(bed: &Bed) -> Result<Vec<String>> {
    let listed = virtletctl(bed, &["orphans", "--json"])?;
    ensure!(listed.code == Some(0), "{}", listed.stderr);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout)?;
    let name = |orphan: &Value| Some(format!("{}/{}", orphan["kind"].as_str()?, orphan["id"].as_str()?));
    Ok(listed.iter().filter_map(name).collect())
}

fn forget(bed: &Bed, name: &str) -> Result<()> {
    let ended = virtletctl(bed, &["forget", name])?;
    ensure!(ended.code == Some(0), "{name}: {}", ended.stderr);
    Ok(())
}

fn virtletctl(bed: &Bed, args: &[&str]) -> Result<tests::command::Ended> {
    finish(command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]).args(args), TOOL_DEADLINE)
}
