//! A pod whose machine is written to a directory while it runs. [`super::restore`] makes pods of that.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use proto::cri::{CheckpointPodRequest, ContainerConfig};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish, sh};
use tests::counting::{SCRIPT, complete, counts};
use tests::cri;
use tests::libvirt::{only_qemu, virsh};
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node, Vm, user_data};
use tests::wait::{wait_for, wait_until};
use tonic::Code;

use super::emptydirs::{self, emptydir};

pub(super) const GRACE: Duration = Duration::from_secs(30);
/// What there is while one is made, and what there is then.
const PARTIAL: &str = "checkpoint.partial";
const WHOLE: &str = "checkpoint";
const FILES: &[&str] = &["disk-0.raw", "manifest.json", "memory", "root.qcow2"];
/// Writes to the disk of 16 MiB, and counts then.
const WRITES: &str = "#!/bin/sh\n\
    for disk in /sys/block/vd*; do [ $(cat $disk/size) = 32768 ] && echo kept | dd of=/dev/${disk##*/} conv=fsync; done\n";

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_pod_is_checkpointed_and_runs_on", deadline: Duration::from_secs(480), run: checkpointed }];

fn checkpointed(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = boot(bed, &node)?;
    let qemu = only_qemu()?;
    refused(bed, &node, &vm)?;

    let dir = bed.dir.join("checkpoint");
    let path = dir.to_str().context("not UTF-8")?;
    let done = virtletctl(bed, &["checkpoint", "kept", path])?;
    ensure!(done.code == Some(0) && done.stdout == format!("{path}\n"), "{done:?}");
    whole(&dir, FILES)?;
    ensure!(fs::read(dir.join(WHOLE).join("disk-0.raw"))?.starts_with(b"kept\n"), "not as the guest has written it");
    let memory = virsh(&format!("save-image-dumpxml {path}/{WHOLE}/memory"))?;
    ensure!(memory.contains(&vm.domain()?), "not of this machine:\n{memory}");
    sh(&format!("qemu-img check -q {path}/{WHOLE}/root.qcow2"))?;
    goes_on(&vm)?;

    twice(bed, &node, &vm)?;
    for is_killed in [false, true] {
        broken(bed, &mut node, &vm, is_killed)?;
        goes_on(&vm)?;
    }
    ensure!(only_qemu()? == qemu, "another QEMU");
    complete(&vm.log_text()?)?;
    node.remove_vm(&vm, GRACE)
}

/// With a disk in an emptyDir.
fn boot(bed: &Bed, node: &Node) -> Result<Vm> {
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("kept")?;
    let (_, disk) = emptydir(&pod, "scratch")?;
    let mut annotations = user_data(&SCRIPT.replacen("#!/bin/sh\n", WRITES, 1));
    annotations.insert(emptydirs::ANNOTATION.into(), "scratch=16Mi,fs=none".into());
    let vm = node.start_pod(pod, &ContainerConfig { mounts: vec![disk], ..cri::container(&image, annotations) })?;
    vm.wait_up()?;
    vm.wait_log("count 1.", BOOT_DEADLINE)?;
    Ok(vm)
}

/// Of two at one directory there is one, and it is whole.
fn twice(bed: &Bed, node: &Node, vm: &Vm) -> Result<()> {
    let dir = bed.dir.join("twice");
    sh(&format!("mkdir -m 0700 {}", dir.display()))?;
    let write = || {
        let request = of(vm, &dir);
        node.cri.call(|mut client| async move { client.checkpoint_pod(request).await })
    };
    let answers = std::thread::scope(|scope| {
        let both = [scope.spawn(write), scope.spawn(write)];
        both.map(|one| one.join().map_err(|_panic| anyhow!("a call panicked")))
    });
    let [first, second] = answers;
    let (first, second) = (first?, second?);
    let refused = first.as_ref().err().or(second.as_ref().err()).context("both are done")?;
    ensure!(first.is_ok() != second.is_ok(), "neither is: {first:?}, {second:?}");
    // By the directory, or as the pod is being written.
    let is_said = [Code::FailedPrecondition, Code::Unavailable].contains(&refused.code());
    ensure!(is_said, "{refused:?}");
    whole(&dir, FILES)
}

/// A controld that goes down amid a checkpoint has the guest go on before; of one that is killed the next one does. Nothing is left that is not
/// whole.
fn broken(bed: &Bed, node: &mut Node, vm: &Vm, is_killed: bool) -> Result<()> {
    let dir = bed.dir.join(format!("broken-{is_killed}"));
    sh(&format!("mkdir -m 0700 {}", dir.display()))?;
    let request = of(vm, &dir);
    let Node { cri, controld, .. } = &mut *node;
    std::thread::scope(|scope| {
        let write = scope.spawn(|| cri.call(|mut client| async move { client.checkpoint_pod(request).await }));
        let is_amid = || fs::metadata(dir.join(PARTIAL).join("memory")).is_ok_and(|memory| memory.len() > 0);
        wait_until("a guest that is paused for it", GRACE, || is_amid() || write.is_finished())?;
        if is_killed {
            controld.kill9()?;
        } else {
            controld.terminate()?;
        }
        // As a rule there was no time for another answer than an error.
        drop(write.join());
        anyhow::Ok(())
    })?;
    let is_over = || {
        let state = virsh(&format!("domstate {}", vm.domain()?))?;
        anyhow::Ok(state.trim() == "running" && !dir.join(PARTIAL).exists())
    };
    if !is_killed {
        ensure!(is_over()?, "controld has left the guest paused, or files of a checkpoint");
    }
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_for("a guest that runs, and nothing that is not whole", BOOT_DEADLINE, || Ok(is_over()?.then_some(())))?;
    if fs::read_dir(&dir)?.next().is_some() {
        whole(&dir, FILES)?;
    }
    Ok(())
}

/// What is no order for a checkpoint says so, and the guest is not stopped.
fn refused(bed: &Bed, node: &Node, vm: &Vm) -> Result<()> {
    let full = bed.dir.join("full");
    sh(&format!("mkdir -m 0700 {}", full.display()))?;
    fs::write(full.join("x"), "")?;
    let good = of(vm, &bed.dir.join("absent"));
    let options = [("tcp-established".to_owned(), "true".to_owned())].into();
    for (request, code, said) in [
        (good.clone(), Code::FailedPrecondition, "it is not there"),
        (of(vm, &full), Code::FailedPrecondition, "not empty: there is `x`"),
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

pub(super) fn of(vm: &Vm, dir: &Path) -> CheckpointPodRequest {
    CheckpointPodRequest {
        pod_sandbox_id: vm.sandbox.clone(),
        output_path: dir.display().to_string(),
        ..Default::default()
    }
}

/// A pod's checkpoint is made, and has these files.
pub(super) fn is_made(bed: &Bed, node: &Node, vm: &Vm, files: &[&str]) -> Result<()> {
    let dir = bed.dir.join("checkpoint");
    sh(&format!("mkdir -m 0700 {}", dir.display()))?;
    let request = of(vm, &dir);
    node.cri.call(|mut client| async move { client.checkpoint_pod(request).await })?;
    whole(&dir, files)
}

/// A pod has none, for this reason.
pub(super) fn is_refused(bed: &Bed, node: &Node, vm: &Vm, why: &str) -> Result<()> {
    let request = of(vm, &bed.dir);
    let answer = node.cri.call(|mut client| async move { client.checkpoint_pod(request).await });
    let status = answer.err().context("not refused")?;
    ensure!(status.code() == Code::FailedPrecondition && status.message().contains(why), "{why}: {status}");
    Ok(())
}

/// A directory has a checkpoint and nothing else; all files are root's alone, and as the manifest says, which names no path.
fn whole(dir: &Path, files: &[&str]) -> Result<()> {
    let there: Vec<_> = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    ensure!(there == [WHOLE], "{there:?}");
    let dir = &dir.join(WHOLE);
    let mode = fs::metadata(dir)?.permissions().mode() & 0o777;
    ensure!(mode == 0o700, "{mode:o}");
    let text = fs::read_to_string(dir.join("manifest.json"))?;
    ensure!(!text.contains('/'), "{text}");
    let manifest: Value = serde_json::from_str(&text)?;
    let mut named = vec!["manifest.json"];
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
    ensure!(there == named && named == files, "{there:?}, {named:?}");
    Ok(())
}

/// The guest counts on from the number that it had come to, and answers.
pub(super) fn goes_on(vm: &Vm) -> Result<()> {
    let last = counts(&vm.log_text()?).len();
    wait_until("a guest that counts on", BOOT_DEADLINE, || {
        vm.log_text().is_ok_and(|log| counts(&log).len() > last + 20)
    })?;
    vm.info().map(drop)
}

fn virtletctl(bed: &Bed, args: &[&str]) -> Result<Ended> {
    finish(command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]).args(args), TOOL_DEADLINE)
}
