//! A pod whose machine is written to a directory while it runs.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{CheckpointPodRequest, RestorePodRequest};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish, sh};
use tests::counting::{SCRIPT, complete, counts};
use tests::libvirt::{only_qemu, virsh};
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node, Vm};
use tests::wait::{wait_for, wait_until};
use tonic::Code;

const GRACE: Duration = Duration::from_secs(30);
const MARK: &str = "checkpoint.partial";

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_pod_is_checkpointed_and_runs_on", deadline: Duration::from_secs(480), run: checkpointed }];

fn checkpointed(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "kept", SCRIPT)?;
    let qemu = only_qemu()?;
    refused(bed, &node, &vm)?;

    let dir = bed.dir.join("checkpoint");
    let path = dir.to_str().context("not UTF-8")?;
    let done = virtletctl(bed, &["checkpoint", "kept", path])?;
    ensure!(done.code == Some(0) && done.stdout == format!("{path}\n"), "{done:?}");
    whole(&dir)?;
    let memory = virsh(&format!("save-image-dumpxml {path}/memory"))?;
    ensure!(memory.contains(&vm.domain()?), "not of this machine:\n{memory}");
    sh(&format!("qemu-img check -q {path}/root.qcow2"))?;
    goes_on(&vm)?;
    let restore =
        RestorePodRequest { checkpoint_path: path.into(), config: Some(vm.pod.clone()), ..Default::default() };
    let refused = node.cri.call(|mut client| async move { client.restore_pod(restore).await });
    ensure!(refused.as_ref().is_err_and(|status| status.code() == Code::Unimplemented), "{refused:?}");

    let broken = bed.dir.join("broken");
    sh(&format!("mkdir -m 0700 {}", broken.display()))?;
    let request = of(&vm, &broken);
    let Node { cri, controld, .. } = &mut node;
    std::thread::scope(|scope| {
        let write = scope.spawn(|| cri.call(|mut client| async move { client.checkpoint_pod(request).await }));
        wait_until("a checkpoint that is begun", GRACE, || broken.join(MARK).exists() || write.is_finished())?;
        controld.kill9()?;
        // Killed before the answer, as a rule.
        drop(write.join());
        anyhow::Ok(())
    })?;
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_for("a guest that runs, and nothing that is not whole", BOOT_DEADLINE, || {
        let is_over = virsh(&format!("domstate {}", vm.domain()?))?.trim() == "running" && !broken.join(MARK).exists();
        Ok(is_over.then_some(()))
    })?;
    if fs::read_dir(&broken)?.next().is_some() {
        whole(&broken)?;
    }
    goes_on(&vm)?;
    ensure!(only_qemu()? == qemu, "another QEMU");
    complete(&vm.log_text()?)?;
    node.remove_vm(&vm, GRACE)
}

/// What is no order for a checkpoint says so, and the guest is not stopped.
fn refused(bed: &Bed, node: &Node, vm: &Vm) -> Result<()> {
    let full = bed.dir.join("full");
    sh(&format!("mkdir -m 0700 {0} && touch {0}/x", full.display()))?;
    let good = of(vm, &bed.dir.join("absent"));
    let options = [("tcp-established".to_owned(), "true".to_owned())].into();
    for (request, code, said) in [
        (good.clone(), Code::FailedPrecondition, "it is not there"),
        (of(vm, &full), Code::FailedPrecondition, "not empty"),
        (of(vm, Path::new("relative")), Code::InvalidArgument, "absolute path"),
        (of(vm, Path::new("/var/lib/virtlet/volumes")), Code::InvalidArgument, "its own files"),
        (CheckpointPodRequest { options, ..good.clone() }, Code::InvalidArgument, "`tcp-established` is not known"),
        (CheckpointPodRequest { pod_sandbox_id: "none".into(), ..good }, Code::NotFound, "none"),
    ] {
        let answer = node.cri.call(|mut client| async move { client.checkpoint_pod(request).await });
        let status = answer.err().context("not refused")?;
        ensure!(status.code() == code && status.message().contains(said), "{said}: {status}");
    }
    ensure!(virsh(&format!("domstate {}", vm.domain()?))?.trim() == "running", "it stands still");
    Ok(())
}

fn of(vm: &Vm, dir: &Path) -> CheckpointPodRequest {
    CheckpointPodRequest {
        pod_sandbox_id: vm.sandbox.clone(),
        output_path: dir.display().to_string(),
        ..Default::default()
    }
}

/// All files are root's alone, and as the manifest says.
fn whole(dir: &Path) -> Result<()> {
    let manifest: Value = serde_json::from_slice(&fs::read(dir.join("checkpoint.json"))?)?;
    let mut named = vec!["checkpoint.json"];
    for file in manifest["files"].as_array().context("no files")? {
        let name = file["name"].as_str().context("no name")?;
        let sum = sh(&format!("sha256sum {}", dir.join(name).display()))?;
        ensure!(file["sha256"].as_str().is_some_and(|sha256| sum.starts_with(sha256)), "{file}: {sum}");
        ensure!(file["bytes"] == fs::metadata(dir.join(name))?.len(), "{file}");
        named.push(name);
    }
    named.sort_unstable();
    let mut there = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (name, found) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?);
        ensure!(found.uid() == 0 && found.permissions().mode() & 0o777 == 0o600, "{name}: {found:?}");
        there.push(name);
    }
    there.sort();
    ensure!(there == named && named == ["checkpoint.json", "memory", "root.qcow2"], "{there:?}, {named:?}");
    Ok(())
}

/// The guest counts on from the number that it had come to, and answers.
fn goes_on(vm: &Vm) -> Result<()> {
    let last = counts(&vm.log_text()?).len();
    wait_until("a guest that counts on", BOOT_DEADLINE, || {
        vm.log_text().is_ok_and(|log| counts(&log).len() > last + 20)
    })?;
    vm.info().map(drop)
}

fn virtletctl(bed: &Bed, args: &[&str]) -> Result<Ended> {
    finish(command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]).args(args), TOOL_DEADLINE)
}
