//! Pods that begin with a checkpoint of their image's boot, which an earlier pod has left: what is in it, whose they are, and that a pod boots where
//! there is none, or none that is whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, LinuxContainerConfig, LinuxContainerResources};
use tests::agent_image::{BOOTS, debian_with_gate, tiny_with_agent, tiny_without_gate};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::controld_metrics::{self, ADDRESS};
use tests::cri;
use tests::guest::ping;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, Node, Vm, user_data};

use tests::wait::wait_for;
use tonic::Code;

use super::checkpoint::{GRACE, of};
use super::seeds::QUICK_CPU;

const WARM: &str = "/var/lib/virtlet/warm";
const SEEDS: &str = "/run/virtlet/seed";
/// And every one whose boot has waited for us.
const PASSED: &str = "gate passed";
/// Half a minute alone, and ten times that on a machine that is busy with others.
const CLOUD: Duration = Duration::from_secs(500);

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_pod_begins_with_its_images_boot", deadline: Duration::from_secs(480), run: begins },
    Case { name: "vm::a_cloud_image_begins_with_its_boot", deadline: Duration::from_secs(1800), run: cloud },
];

fn begins(bed: &Bed) -> Result<()> {
    let more = format!("handlers.virtlet = {{ guest_agent = true, warm = true }}\nmetrics.address = '{ADDRESS}'\n");
    let mut node = Node::configured(bed, &more)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;

    let leaves = started(&node, "leaves", &image, 160)?;
    // Its boot takes longer to the gate than a call.
    let early = of(&leaves, &bed.dir);
    let early = node.cri.call(|mut client| async move { client.checkpoint_pod(early).await });
    let early = early.err().context("a checkpoint of a guest that has no seed")?;
    ensure!(early.code() == Code::Unavailable && early.message().contains("gate of warm starts"), "{early}");
    boots(&leaves)?;
    let [of_size] = &*left() else { anyhow::bail!("not one checkpoint: {:?}", left()) };
    has_nothing_of(&leaves, of_size)?;
    ensure!(fs::read_dir(SEEDS)?.next().is_none(), "a seed stays");

    let warm = started(&node, "warm", &image, 160)?;
    goes_on(&warm)?;
    let info = warm.info()?;
    ensure!(info != leaves.info()? && told(&info, "nic") != told(&leaves.info()?, "nic"), "two alike: {info}");
    // Both as their own pods.
    ensure!(is_own(&leaves)? && is_own(&warm)?, "whose are they?");
    // The reboot of one is a boot of its own, and has its seed.
    let boots_before = warm.log_text()?.matches(BOOTS).count();
    node.crictl(&["exec", &warm.container, "reboot"])?;
    wait_for("a guest that has booted again", BOOT_DEADLINE, || {
        Ok((warm.log_text()?.matches(BOOTS).count() > boots_before).then_some(()))
    })?;
    wait_for("a gate that is passed again", BOOT_DEADLINE, || {
        Ok((warm.log_text()?.matches(PASSED).count() > 1).then_some(()))
    })?;
    warm.wait_up()?;
    ensure!(is_own(&warm)?, "it has lost its pod");
    node.remove_vm(&leaves, GRACE)?;
    node.remove_vm(&warm, GRACE)?;

    killed(&mut node, &image)?;
    damaged(&node, &image, of_size)?;
    refused(&node, &image, of_size)?;
    counted()?;
    goes_with_its_image(&node, &image)?;
    without_gate(bed, &node)
}

/// systemd, cloud-init and SSH: the boot waits before cloud-init looks for its seed, and that is each pod's own.
fn cloud(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet = { guest_agent = true, warm = true }\n")?;
    let image = node.images.offer("debian-gate.qcow2", &debian_with_gate(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let (mut before, mut boots) = (Vec::new(), Vec::new());
    for (name, is_warm) in [("cold", false), ("warm", true), ("warm-too", true)] {
        let script = format!("#!/bin/sh\necho \"user-data of {name}.\" >/dev/console\n");
        let data = [user_data(&script), [QUICK_CPU.map(str::to_owned).into()].into()].into_iter().flatten().collect();
        let resources = LinuxContainerResources { memory_limit_in_bytes: 768 << 20, ..Default::default() };
        let linux = LinuxContainerConfig { resources: Some(resources), ..Default::default() };
        let container = ContainerConfig { linux: Some(linux), ..cri::container(&image, data) };
        let vm = node.start_pod(node.pod(name)?, &container).with_context(|| name.to_owned())?;
        vm.wait_log(&format!("user-data of {name}."), CLOUD)?;
        let log = vm.log_text()?;
        ensure!(log.matches("user-data of ").count() == 1, "{name}:\n{log}");
        ensure!(left().len() == 1, "{name}: {:?}", left());
        let asked = "cat /etc/machine-id; ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub; cat /sys/class/net/*0/address; \
                     cat /run/cloud-init/instance-data.json | sha256sum";
        let words = ["exec", &vm.container, "sh", "-c", asked];
        let said = node.crictl(&words)?.stdout;
        let marks: Vec<String> = said.lines().map(str::to_owned).collect();
        ensure!(marks.len() == 4 && marks.iter().all(|mark| !before.contains(mark)), "{name}: {said}; {before:?}");
        before.extend(marks);
        // All that go on from one boot know it by one name.
        let boot = node.crictl(&["exec", &vm.container, "cat", "/proc/sys/kernel/random/boot_id"])?.stdout;
        ensure!(boots.last() == Some(&boot) || !is_warm, "{name} has booted");
        ensure!(!boots.contains(&boot) || is_warm, "{name} has not booted");
        boots.push(boot);
        let host = node.crictl(&["exec", &vm.container, "hostname"])?.stdout;
        ensure!(host.trim() == name, "{name} is called {host}");
        ping(None, vm.ip)?;
        node.remove_vm(&vm, Duration::ZERO)?;
    }
    Ok(())
}

/// A pod whose user-data is its own, with so many MiB.
fn started(node: &Node, name: &str, image: &str, memory: i64) -> Result<Vm> {
    let script = format!("#!/bin/sh\necho \"user-data of {name}.\" >/dev/console\n");
    let resources = LinuxContainerResources { memory_limit_in_bytes: memory << 20, ..Default::default() };
    let linux = LinuxContainerConfig { resources: Some(resources), ..Default::default() };
    let container = ContainerConfig { linux: Some(linux), ..cri::container(image, user_data(&script)) };
    let vm = node.start_pod(node.pod(name)?, &container).with_context(|| name.to_owned())?;
    Ok(vm)
}

/// It was told all that its pod wants of it, and nothing of another.
fn is_own(vm: &Vm) -> Result<bool> {
    let name = &vm.pod.metadata.as_ref().context("no name")?.name;
    vm.wait_log(&format!("user-data of {name}."), BOOT_DEADLINE)?;
    let others = vm.log_text()?.matches("user-data of ").count()
        - vm.log_text()?.matches(&format!("user-data of {name}.")).count();
    Ok(others == 0 && told(&vm.info()?, "hostname") == format!("hostname {name}"))
}

fn boots(vm: &Vm) -> Result<()> {
    vm.wait_up()?;
    let log = vm.log_text()?;
    ensure!(log.contains(BOOTS) && log.contains(PASSED), "it did not boot, or not by the gate:\n{log}");
    ensure!(is_own(vm)?, "it is not its pod's: {}", vm.info()?);
    Ok(())
}

fn goes_on(vm: &Vm) -> Result<()> {
    vm.wait_up()?;
    let log = vm.log_text()?;
    ensure!(!log.contains(BOOTS) && log.contains(PASSED), "it has booted:\n{log}");
    ensure!(is_own(vm)?, "it is not its pod's: {}", vm.info()?);
    Ok(())
}

/// Checkpoints that are whole.
fn left() -> Vec<PathBuf> {
    let all = fs::read_dir(WARM).into_iter().flatten().flatten().map(|entry| entry.path().join("checkpoint"));
    all.filter(|dir| dir.join("manifest.json").is_file()).collect()
}

/// What a pod wants kept is not in what it leaves to others.
fn has_nothing_of(vm: &Vm, checkpoint: &Path) -> Result<()> {
    let name = &vm.pod.metadata.as_ref().context("no name")?.name;
    let has = |file: &Path, text: &str| -> Result<bool> {
        Ok(fs::read(file)?.windows(text.len()).any(|found| found == text.as_bytes()))
    };
    for file in fs::read_dir(checkpoint)? {
        let file = file?.path();
        ensure!(!has(&file, &format!("user-data of {name}."))?, "{} has it", file.display());
    }
    // What is looked for would be found: as the serial number of the VM this is there.
    let uid = &vm.pod.metadata.as_ref().context("no name")?.uid;
    ensure!(has(&checkpoint.join("memory"), uid)?, "no UID, so nothing can be found");
    let all = sh(&format!("find {WARM} -perm /077 -o ! -user root"))?;
    ensure!(all.is_empty(), "others may read it: {all}");
    Ok(())
}

/// controld is killed while a guest waits at the gate: the next one has it leave its checkpoint, and go on with its seed.
fn killed(node: &mut Node, image: &str) -> Result<()> {
    let before = left().len();
    let vm = started(node, "orphan", image, 176)?;
    let aside = sh(&format!("find {SEEDS} -name *.aside"))?;
    ensure!(!aside.is_empty(), "its seed is not put aside");
    node.controld.kill9()?;
    ensure!(!vm.log_text()?.contains(PASSED), "it has passed the gate by now");
    // libvirt's virtlogd writes it.
    let console = Path::new("/var/lib/virtlet/console").join(&vm.machine).join("serial.log");
    wait_for("a guest at the gate", BOOT_DEADLINE, || {
        Ok(fs::read_to_string(&console).unwrap_or_default().contains("gate: ").then_some(()))
    })?;
    node.controld.start_again()?;
    node.wait_ready()?;
    boots(&vm)?;
    ensure!(left().len() == before + 1, "it has left none: {:?}", left());
    node.remove_vm(&vm, GRACE)
}

/// What is not as it was written no pod begins with, and the next one leaves another.
fn damaged(node: &Node, image: &str, checkpoint: &Path) -> Result<()> {
    let memory = checkpoint.join("memory");
    let mut bytes = fs::read(&memory)?;
    *bytes.last_mut().context("an empty file")? ^= 1;
    fs::write(&memory, bytes)?;
    let boots_again = started(node, "again", image, 160)?;
    boots(&boots_again)?;
    node.remove_vm(&boots_again, GRACE)?;
    let warm = started(node, "warm-again", image, 160)?;
    goes_on(&warm)?;
    node.remove_vm(&warm, GRACE)
}

/// A pod whose QEMU does not take the memory boots in the same start.
fn refused(node: &Node, image: &str, checkpoint: &Path) -> Result<()> {
    let memory = checkpoint.join("memory");
    let manifest = checkpoint.join("manifest.json");
    // By its digest it is whole, and ends too early for QEMU.
    let half = fs::metadata(&memory)?.len() / 2;
    fs::File::options().write(true).open(&memory)?.set_len(half)?;
    let digest = sh(&format!("sha256sum {}", memory.display()))?;
    let mut said: serde_json::Value = serde_json::from_slice(&fs::read(&manifest)?)?;
    let files = said["files"].as_array_mut().context("no files")?;
    let of_memory = files.iter_mut().find(|file| file["name"] == "memory").context("no memory")?;
    of_memory["bytes"] = half.into();
    of_memory["sha256"] = digest.split_whitespace().next().context("no digest")?.into();
    fs::write(&manifest, serde_json::to_vec(&said)?)?;
    let before = left().len();
    let vm = started(node, "refused", image, 160)?;
    boots(&vm)?;
    ensure!(left().len() < before && !memory.exists(), "what QEMU refuses stays: {:?}", left());
    node.remove_vm(&vm, GRACE)
}

/// What was started since controld was.
fn counted() -> Result<()> {
    let page = controld_metrics::page()?;
    for how in ["begun", "failed", "booted"] {
        let line = format!("virtlet_warm_starts_total{{outcome=\"{how}\"}} 1\n");
        ensure!(page.contains(&line), "no {line}in {page}");
    }
    Ok(())
}

/// Nobody begins with the checkpoints of an image that is not here any more.
fn goes_with_its_image(node: &Node, image: &str) -> Result<()> {
    ensure!(!left().is_empty(), "none is left");
    node.cri.remove_image(image)?;
    wait_for("an end of its checkpoints", GRACE, || Ok(left().is_empty().then_some(())))
}

/// A guest that does not wait though it was to boots anew with its seed, and later pods of its image boot.
fn without_gate(bed: &Bed, node: &Node) -> Result<()> {
    let image = node.images.offer("no-gate.qcow2", &tiny_without_gate(bed)?, Fault::None);
    node.cri.pull(&image)?;
    for (name, most) in [("no-gate", 2), ("no-gate-again", 1)] {
        let vm = started(node, name, &image, 160)?;
        vm.wait_log(&format!("user-data of {name}."), BOOT_DEADLINE)?;
        vm.wait_up()?;
        ensure!(is_own(&vm)?, "it is not its pod's: {}", vm.info()?);
        let boots = vm.log_text()?.matches(BOOTS).count();
        ensure!(boots <= most, "{name} has booted {boots} times");
        node.remove_vm(&vm, GRACE)?;
    }
    ensure!(fs::read_dir(SEEDS)?.next().is_none(), "a seed stays");
    Ok(())
}

/// What a guest says of this.
fn told<'a>(info: &'a str, what: &str) -> &'a str {
    info.lines().find(|line| line.starts_with(what)).unwrap_or_default()
}
