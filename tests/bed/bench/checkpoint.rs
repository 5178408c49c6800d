//! CheckpointPod beside `virsh save` of the same machine, and a guest that goes on from a checkpoint beside one that boots.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{
    CheckpointPodRequest, ContainerConfig, LinuxContainerConfig, LinuxContainerResources, RestorePodRequest,
};
use serde_json::json;
use tests::case::Bed;
use tests::cni::{self, Network};
use tests::cri;
use tests::libvirt::{running_domains, virsh};
use tests::node::{BOOT_DEADLINE, Node, Vm, user_data};
use tests::pace::Deadline;
use tests::wait::wait_until;

use super::peer::{NAME, Peer};
use super::report::{Pair, Row};
use super::start::{remove, start};
use super::timed;

const PAIRS: usize = 5;
/// Of the guest.
const MEMORY: i64 = 512 << 20;
/// How long one try to connect may take: a guest that boots says nothing.
const TRY: Duration = Duration::from_millis(20);
/// And between two, where one is refused at once.
const PAUSE: Duration = Duration::from_millis(5);
/// Asks for its addresses anew each time that the NIC's carrier was away, as other guests' network services do, and counts then.
const ASKS: &str = "#!/bin/sh\n\
    c=/sys/class/net/eth0; read -r n <$c/carrier_down_count\n\
    (while :; do read -r m <$c/carrier_down_count; [ $m = $n ] || { n=$m; until read -r u <$c/carrier && [ $u = 1 ]; do usleep 20000; done; \
    nic down eth0; nic up eth0; }; usleep 50000; done) >/dev/null 2>&1 &\n";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let image = node.pull(bed, "tiny.qcow2")?;
    let resources = LinuxContainerResources { memory_limit_in_bytes: MEMORY, ..Default::default() };
    let linux = LinuxContainerConfig { resources: Some(resources), ..Default::default() };
    let large = ContainerConfig { linux: Some(linux), ..cri::container(&image, [].into()) };
    let (whole, still) = saves(bed, node, &large)?;
    // The guest's NICs keep their addresses, and it asks for its own anew.
    let mut network = Network::BRIDGE.conflist();
    network["plugins"][0]["capabilities"] = json!({"mac": true});
    cni::install(&network.to_string())?;
    let wakes = wakes(bed, node, &cri::container(&image, user_data(ASKS)));
    cni::install(&Network::BRIDGE.conflist().to_string())?;
    let wakes = wakes?;
    Ok(vec![
        Row { name: "CheckpointPod of 512 MiB / virsh save", unit: "ms", target: Some(1.15), pairs: whole },
        Row { name: "guest stands still for a checkpoint / virsh save", unit: "ms", target: Some(1.1), pairs: still },
        Row { name: "StartContainer to HTTP, woken / booted", unit: "ms", target: Some(0.2), pairs: wakes },
    ])
}

/// All of the call, and how long the guest stands still for it.
fn saves(bed: &Bed, node: &Node, container: &ContainerConfig) -> Result<(Vec<Pair>, Vec<Pair>)> {
    let (_, vm) = start(node, container)?;
    vm.wait_up()?;
    let peer = Peer::of(bed, &virsh(&format!("dumpxml --inactive {}", running_domains()?.concat()))?)?;
    let (_, running) = peer.create()?;
    // What ours has said by then, but for its address.
    wait_until("a guest of libvirt's own", BOOT_DEADLINE, || {
        fs::read_to_string(peer.console()).is_ok_and(|said| said.contains("ready: boot number"))
    })?;
    let (mut whole, mut still) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let dir = bed.dir.join(format!("save-{pair}"));
        let ours = written(node, &vm, &dir)?;
        let file = dir.join("of-virsh");
        let (saved, _said) = timed(|| virsh(&format!("save {NAME} {}", file.display())))?;
        virsh(&format!("restore {}", file.display()))?;
        whole.push(Pair { ours: ours / 1000.0, baseline: saved / 1000.0 });
        still.push(Pair { ours: paused(node)?, baseline: saved / 1000.0 });
        fs::remove_dir_all(&dir)?;
    }
    running.remove()?;
    remove(node, &vm)?;
    Ok((whole, still))
}

/// Microseconds of the call that writes a pod to a new directory.
fn written(node: &Node, vm: &Vm, dir: &Path) -> Result<f64> {
    fs::create_dir(dir)?;
    let request = CheckpointPodRequest {
        pod_sandbox_id: vm.sandbox.clone(),
        output_path: dir.display().to_string(),
        ..Default::default()
    };
    let (micros, _answer) = timed(|| node.cri.call(|mut client| async move { client.checkpoint_pod(request).await }))?;
    Ok(micros)
}

/// Milliseconds that the last guest stood still, as controld says.
fn paused(node: &Node) -> Result<f64> {
    let log = node.controld.log()?;
    let said = log.rsplit_once("paused_ms=").context("controld says no `paused_ms`")?.1;
    let digits: String = said.chars().take_while(char::is_ascii_digit).collect();
    // It may be none.
    Ok(digits.parse::<f64>()?.max(1.0))
}

/// From the start of a container to the first answer of its guest.
fn wakes(bed: &Bed, node: &Node, container: &ContainerConfig) -> Result<Vec<Pair>> {
    let (_, vm) = start(node, container)?;
    vm.wait_up()?;
    let dir = bed.dir.join("wake");
    written(node, &vm, &dir)?;
    remove(node, &vm)?;
    let mut pairs = Vec::new();
    for _pair in 0..PAIRS {
        let ours = to_answer(node, woken(node, container, &dir)?)?;
        let baseline = to_answer(node, start(node, container)?)?;
        pairs.push(Pair { ours: ours / 1000.0, baseline: baseline / 1000.0 });
    }
    fs::remove_dir_all(&dir)?;
    Ok(pairs)
}

/// Microseconds of StartContainer, and a guest that goes on.
fn woken(node: &Node, container: &ContainerConfig, dir: &Path) -> Result<(f64, Vm)> {
    let mut pod = node.pod("start")?;
    pod.annotations.extend(container.annotations.clone());
    let request = RestorePodRequest {
        checkpoint_path: dir.display().to_string(),
        config: Some(pod.clone()),
        container_configs: vec![container.clone()],
        ..Default::default()
    };
    let made = node.cri.call(|mut client| async move { client.restore_pod(request).await })?;
    let container = made.restored_containers.into_iter().next().context("no container")?.container_id;
    let (micros, ()) = timed(|| node.cri.start(&container))?;
    let ip = node.cri.sandbox(&made.pod_sandbox_id)?.network.context("no network")?.ip.parse()?;
    let machine = node.cri.machine(&container)?;
    let log = PathBuf::from(&pod.log_directory).join("vm_0.log");
    Ok((micros, Vm { sandbox: made.pod_sandbox_id, container, machine, ip, log, pod }))
}

/// Microseconds of a start, and until its guest answers then. It is removed.
pub(super) fn to_answer(node: &Node, (started, vm): (f64, Vm)) -> Result<f64> {
    let (until, ()) = timed(|| {
        let deadline = Deadline::within(BOOT_DEADLINE);
        // Not `wait_for`, which looks too seldom.
        while TcpStream::connect_timeout(&SocketAddr::new(vm.ip, 80), TRY).is_err() {
            ensure!(!deadline.has_passed(), "no answer of {}", vm.ip);
            thread::park_timeout(PAUSE);
        }
        vm.info().map(drop)
    })?;
    remove(node, &vm)?;
    Ok(started + until)
}
