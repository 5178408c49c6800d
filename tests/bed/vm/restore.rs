//! A pod that is made of a checkpoint: as a clone beside the first, when that is gone, when there is no room, and though controld is killed at any
//! step.

mod clones;
mod moved;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use proto::cri::{
    ContainerConfig, ContainerState, LinuxContainerConfig, LinuxContainerResources, ListPodSandboxRequest,
    PodSandboxConfig, RestorePodRequest, RestorePodResponse,
};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::sh;
use tests::counting::{SCRIPT, counts};
use tests::cri::{self, Cri};
use tests::image_server::Fault;
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, Node, Vm, user_data};
use tests::pace::Deadline;
use tests::wait::wait_for;
use tonic::{Code, Status};

use super::checkpoint::{GRACE, goes_on, of};
use super::emptydirs::{self, emptydir};
use super::seeds;

const VOLUMES: &str = "/var/lib/virtlet/volumes";
/// For disks, and not for a memory; as mount(8) has it.
const TOO_LITTLE: &str = "24m";
/// How the name of a memory ends that a guest is to go on from.
const MEMORY: &str = ".memory";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_pod_is_made_of_a_checkpoint", deadline: Duration::from_secs(600), run: restored },
    Case { name: "vm::a_pod_goes_on_on_another_node", deadline: Duration::from_secs(480), run: moved::moves },
    Case {
        name: "vm::twenty_clones_are_machines_of_their_own",
        deadline: Duration::from_secs(1200),
        run: clones::apart,
    },
];

/// What pods of other names go on from.
#[derive(Clone, Copy)]
struct Origin<'a> {
    image: &'a str,
    dir: &'a Path,
    /// The number that the guest had come to just after the checkpoint.
    last: usize,
}

fn restored(bed: &Bed) -> Result<()> {
    let mut node = Node::on(bed, &network_with_macs(), &cni::debian_plugins(), "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let (pod, container) = said(&node, "kept", &image)?;
    let vm = node.start_pod(pod, &container)?;
    vm.wait_up()?;
    vm.wait_log("count 1.", BOOT_DEADLINE)?;
    let dir = bed.dir.join("kept-1");
    sh(&format!("mkdir -m 0700 {}", dir.display()))?;
    let request = of(&vm, &dir);
    node.cri.call(|mut client| async move { client.checkpoint_pod(request).await })?;
    let from = Origin { image: &image, dir: &dir, last: counts(&vm.log_text()?).len() };
    no_room_for_a_checkpoint(bed, &node, &vm)?;

    let clone = made(&node, "clone", from)?;
    // By its agent, which is told beside the start.
    wait_for("a clone with its own name", BOOT_DEADLINE, || {
        Ok(told(&clone, "hostname").is_ok_and(|name| name.contains("clone")).then_some(()))
    })?;
    ensure!(told(&clone, "nic")? != told(&vm, "nic")?, "two guests with one address");
    goes_on(&vm)?;
    node.remove_vm(&clone, GRACE)?;
    node.remove_vm(&vm, GRACE)?;

    refused(bed, &node, from)?;
    no_room_for_a_pod(&node, from)?;
    let copy = made(&node, "woken", from)?;
    // It runs on as any other.
    node.restart_controld()?;
    goes_on(&copy)?;
    node.remove_vm(&copy, GRACE)?;

    for (nth, (step, shows)) in AMID_RESTORE.iter().enumerate() {
        let killed = killed_amid_restore(&mut node, &format!("restore{nth}"), from, *shows);
        killed.with_context(|| format!("controld was killed when {step}"))?;
    }
    for (nth, (step, shows)) in AMID_START.iter().enumerate() {
        // From the last two steps on it runs.
        let may_end = nth + 2 < AMID_START.len();
        let killed = killed_amid_start(&mut node, (&format!("start{nth}"), may_end), from, *shows);
        killed.with_context(|| format!("controld was killed when {step}"))?;
    }
    Ok(())
}

/// A bridge that gives a guest the MAC address that it knows.
fn network_with_macs() -> Value {
    let mut network = Network { masquerade: true, ..Network::BRIDGE }.conflist();
    network["plugins"][0]["capabilities"] = json!({"mac": true});
    network
}

/// With a disk in an emptyDir.
fn said(node: &Node, name: &str, image: &str) -> Result<(PodSandboxConfig, ContainerConfig)> {
    let pod = node.pod(name)?;
    let (_, disk) = emptydir(&pod, "scratch")?;
    let mut annotations = user_data(SCRIPT);
    annotations.insert(emptydirs::ANNOTATION.into(), "scratch=16Mi,fs=none".into());
    Ok((pod, ContainerConfig { mounts: vec![disk], ..cri::container(image, annotations) }))
}

fn asked(node: &Node, name: &str, from: Origin<'_>) -> Result<RestorePodRequest> {
    let (_, container) = said(node, name, from.image)?;
    request_of(node, name, &container, from.dir)
}

/// What is asked for to make a pod with this container of a checkpoint.
fn request_of(node: &Node, name: &str, container: &ContainerConfig, dir: &Path) -> Result<RestorePodRequest> {
    let mut pod = node.pod(name)?;
    pod.annotations.extend(container.annotations.clone());
    Ok(RestorePodRequest {
        checkpoint_path: dir.display().to_string(),
        config: Some(pod),
        container_configs: vec![container.clone()],
        ..Default::default()
    })
}

fn restore(cri: &Cri, request: &RestorePodRequest) -> Result<RestorePodResponse, Status> {
    let request = request.clone();
    cri.call(|mut client| async move { client.restore_pod(request).await })
}

/// A pod of a checkpoint, whose guest counts on and answers at its new address.
fn made(node: &Node, name: &str, from: Origin<'_>) -> Result<Vm> {
    let request = asked(node, name, from)?;
    let made = restore(&node.cri, &request).context("RestorePod")?;
    ensure!(restore(&node.cri, &request)? == made, "another answer to the same call");
    let copy = described(node, &request, &made)?;
    ensure!(node.cri.state(&copy.container)? == ContainerState::ContainerCreated, "not created");
    node.cri.start(&copy.container).context("StartContainer")?;
    counts_on(&copy, from)?;
    Ok(copy)
}

fn described(node: &Node, request: &RestorePodRequest, made: &RestorePodResponse) -> Result<Vm> {
    let [restored] = &*made.restored_containers else { return Err(anyhow!("{made:?}")) };
    let network = node.cri.sandbox(&made.pod_sandbox_id)?.network.context("a sandbox without a network")?;
    let pod = request.config.clone().context("no pod")?;
    Ok(Vm {
        machine: node.cri.machine(&restored.container_id)?,
        log: Path::new(&pod.log_directory).join("vm_0.log"),
        sandbox: made.pod_sandbox_id.clone(),
        container: restored.container_id.clone(),
        ip: network.ip.parse()?,
        pod,
    })
}

/// From where the checkpoint was made, and not from the beginning.
fn counts_on(copy: &Vm, from: Origin<'_>) -> Result<()> {
    copy.wait_up()?;
    goes_on(copy)?;
    let log = copy.log_text()?;
    let counted = counts(&log);
    let (first, last) = (*counted.first().context("no count")?, from.last);
    ensure!((2..=last).contains(&first), "it begins with {first}, and the first had come to {last}");
    ensure!(counted.iter().zip(first..).all(|(count, nth)| *count == nth), "a count is lost:\n{log}");
    ensure!(memories().is_empty(), "the memory stays: {:?}", memories());
    Ok(())
}

/// What a guest says of this.
fn told(vm: &Vm, what: &str) -> Result<String> {
    let info = vm.info()?;
    Ok(info.lines().filter(|line| line.starts_with(what)).collect())
}

/// What cannot go on as the pod that is asked for, or is none, says so, and nothing is made.
fn refused(bed: &Bed, node: &Node, from: Origin<'_>) -> Result<()> {
    let good = asked(node, "refused", from)?;
    let mut larger = good.clone();
    for container in &mut larger.container_configs {
        let resources = LinuxContainerResources { memory_limit_in_bytes: 1 << 30, ..Default::default() };
        container.linux = Some(LinuxContainerConfig { resources: Some(resources), ..Default::default() });
    }
    let copy = |name: &str| -> Result<(PathBuf, RestorePodRequest)> {
        let dir = bed.dir.join(name);
        sh(&format!("cp -a {} {}", from.dir.display(), dir.display()))?;
        let request = RestorePodRequest { checkpoint_path: dir.display().to_string(), ..good.clone() };
        Ok((dir, request))
    };
    let (dir, changed) = copy("changed")?;
    let disk = dir.join("checkpoint/disk-0.raw");
    let mut bytes = fs::read(&disk)?;
    *bytes.last_mut().context("an empty disk")? ^= 1;
    fs::write(&disk, bytes)?;
    let (dir, cut) = copy("cut")?;
    fs::File::options().write(true).open(dir.join("checkpoint/memory"))?.set_len(4096)?;
    let (dir, open) = copy("open")?;
    sh(&format!("chmod 0777 {}", dir.display()))?;
    let (dir, partial) = copy("partial")?;
    fs::rename(dir.join("checkpoint"), dir.join("checkpoint.partial"))?;
    let two = RestorePodRequest {
        container_configs: [good.container_configs.clone(), good.container_configs.clone()].concat(),
        ..good.clone()
    };
    for (request, code, said) in [
        (larger, Code::FailedPrecondition, "memory in bytes was"),
        (changed, Code::DataLoss, "`disk-0.raw` is not what was written"),
        (cut, Code::DataLoss, "`memory` has 4096 bytes"),
        (open, Code::FailedPrecondition, "others than root may write to it"),
        (partial, Code::FailedPrecondition, "none that is whole"),
        (two, Code::InvalidArgument, "has one container"),
    ] {
        let status = restore(&node.cri, &request).err().context("not refused")?;
        ensure!(status.code() == code && status.message().contains(said), "{said}: {status}");
        nothing(node).with_context(|| said.to_owned())?;
    }
    Ok(())
}

/// The guest runs on, and nothing is left.
fn no_room_for_a_checkpoint(bed: &Bed, node: &Node, vm: &Vm) -> Result<()> {
    let dir = bed.dir.join("small");
    let shown = dir.display();
    fs::create_dir(&dir)?;
    sh(&format!("mount -t tmpfs -o size={TOO_LITTLE},mode=700 small {shown}"))?;
    let request = of(vm, &dir);
    let written = node.cri.call(|mut client| async move { client.checkpoint_pod(request).await });
    let status = written.err().context("a checkpoint that has no room")?;
    ensure!(status.code() == Code::ResourceExhausted, "{status}");
    ensure!(fs::read_dir(&dir)?.next().is_none(), "something is left");
    goes_on(vm)?;
    sh(&format!("umount {shown}")).map(drop)
}

/// Nothing is left, and with room it is made; by the case's next step.
fn no_room_for_a_pod(node: &Node, from: Origin<'_>) -> Result<()> {
    sh(&format!("mount -t tmpfs -o size={TOO_LITTLE},mode=711 small {VOLUMES}"))?;
    let status = restore(&node.cri, &asked(node, "woken", from)?).err().context("a pod that has no room")?;
    ensure!(status.code() == Code::ResourceExhausted, "{status}");
    nothing(node)?;
    sh(&format!("umount {VOLUMES}")).map(drop)
}

/// No pod, no machine and no memory.
fn nothing(node: &Node) -> Result<()> {
    let list = ListPodSandboxRequest::default();
    let left = node.cri.call(|mut client| async move { client.list_pod_sandbox(list).await })?;
    ensure!(left.items.is_empty(), "a pod is left: {left:?}");
    ensure!(running_domains()?.is_empty(), "{:?}", running_domains()?);
    ensure!(memories().is_empty(), "{:?}", memories());
    Ok(())
}

/// What shows how far controld has come.
type Step = (&'static str, fn() -> bool);

const AMID_RESTORE: &[Step] = &[
    ("nothing is made", || true),
    ("the pod has a network", || holds("/run/netns", "")),
    ("the root disk is being copied", || !files("root").is_empty()),
    ("the memory is being copied", || !memories().is_empty()),
];

const AMID_START: &[Step] = &[
    ("nothing is done", || true),
    ("the machine is defined", || holds("/etc/libvirt/qemu", "virtlet-")),
    ("QEMU is started", || holds("/run/libvirt/qemu", "-vm.pid")),
    ("the guest may run", || {
        memories().iter().all(|memory| fs::metadata(memory).is_ok_and(|memory| memory.len() == 0))
    }),
    ("the guest runs", || memories().is_empty()),
];

/// The files in pods' folders with this in their names.
fn files(part: &str) -> Vec<PathBuf> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = entries(Path::new(VOLUMES));
    let has_part = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part));
    folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>()).filter(has_part).collect()
}

fn memories() -> Vec<PathBuf> {
    files(MEMORY)
}

fn holds(dir: &str, part: &str) -> bool {
    fs::read_dir(dir)
        .is_ok_and(|mut all| all.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().contains(part))))
}

/// The same call makes the pod.
fn killed_amid_restore(node: &mut Node, name: &str, from: Origin<'_>, shows: fn() -> bool) -> Result<()> {
    let request = asked(node, name, from)?;
    killed(node, shows, |cri| restore(cri, &request).map(drop))?;
    let copy = made(node, name, from)?;
    node.remove_vm(&copy, GRACE)?;
    nothing(node)
}

/// The guest goes on by itself, or has not run: then its container is started again, or the next one goes on.
fn killed_amid_start(
    node: &mut Node,
    (name, may_end): (&str, bool),
    from: Origin<'_>,
    shows: fn() -> bool,
) -> Result<()> {
    let request = asked(node, name, from)?;
    let made = restore(&node.cri, &request).context("RestorePod")?;
    let copy = described(node, &request, &made)?;
    killed(node, shows, |cri| cri.start(&copy.container))?;
    let state = wait_for("a container that is settled", BOOT_DEADLINE, || {
        let state = node.cri.state(&copy.container)?;
        Ok((state != ContainerState::ContainerUnknown).then_some(state))
    })?;
    if state == ContainerState::ContainerCreated {
        node.cri.start(&copy.container).context("StartContainer")?;
    }
    if state == ContainerState::ContainerExited {
        ensure!(may_end, "a guest that ran has ended");
        let config = request.container_configs.first().context("no container")?;
        counts_on(&seeds::again(node, &copy, config, 1)?, from)?;
    } else {
        counts_on(&copy, from)?;
    }
    node.remove_vm(&copy, GRACE)?;
    nothing(node)
}

/// Kills controld amid a call, when that has come so far, and starts it again.
fn killed(node: &mut Node, shows: fn() -> bool, call: impl Fn(&Cri) -> Result<(), Status> + Sync) -> Result<()> {
    let Node { cri, controld, .. } = &mut *node;
    thread::scope(|scope| {
        let calling = scope.spawn(|| call(cri));
        // Not `wait_for`, which looks too seldom.
        let deadline = Deadline::within(GRACE);
        while !shows() && !calling.is_finished() {
            if deadline.has_passed() {
                bail!("it never shows: {:?}", calling.join());
            }
            thread::yield_now();
        }
        controld.kill9()?;
        // Killed before the answer, as a rule.
        drop(calling.join());
        Ok(())
    })?;
    node.controld.start_again()?;
    node.wait_ready()
}
