//! controld is killed between any two steps of the start of a machine that has a seed, a share, and block volumes: a disk and its root disk.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::cri::{ContainerConfig, ContainerState, Device, PodSandboxConfig};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::image_server::Fault;
use tests::kubelet_volumes::PodVolumes;
use tests::libvirt::running_domains;
use tests::loop_device::LoopDevice;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::pace::Deadline;
use tests::wait::{wait_for, wait_until};
use tests::world::World;

const GRACE: Duration = Duration::from_secs(30);
const SEEDS: &str = "/run/virtlet/seed";
const SHARES: &str = "/run/virtlet/share";
/// In a Secret that the seed is made of; on no record.
const SECRET: &str = "hN3vTq8LwXs5Zr2Kysteps";

pub(super) const CASES: &[Case] =
    &[Case { name: "restart::controld_at_each_step_of_a_start", deadline: Duration::from_secs(480), run }];

/// The guest's disk has 42 MiB, and the header of a root disk one.
const ROOT_BYTES: u64 = 48 << 20;

/// How far a start has come, and what shows it, or the volume that is the root disk.
type Step = (&'static str, fn(&LoopDevice) -> bool);

/// In their order.
const STEPS: &[Step] = &[
    ("no step", |_| true),
    // Or is by now: on a busy machine nobody may have looked in between.
    ("the root disk is being written", |root| state_of(root).is_some()),
    ("the root disk is written", |root| state_of(root) == Some(2)),
    ("the seed is being written", |_| holds(SEEDS, "")),
    ("volumes are described", |_| holds(SHARES, "")),
    ("the machine is defined", |_| holds("/etc/libvirt/qemu", "virtlet-")),
    ("virtiofsd is started", |_| holds("/run/libvirt/qemu", "fs0")),
    ("QEMU is started", |_| pid().is_some()),
    ("QEMU runs in the pod's cgroup", |_| {
        pid()
            .and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok())
            .is_some_and(|all| all.contains("virtlet"))
    }),
    ("the seed is removed", |_| pid().is_some() && !holds(SEEDS, "")),
];

/// What the header of a root disk says of it: half a copy is 1, a whole one is 2.
fn state_of(root: &LoopDevice) -> Option<u8> {
    root.read(11, 0).ok().filter(|header| header[0] != 0).map(|header| header[10])
}

fn holds(dir: &str, part: &str) -> bool {
    fs::read_dir(dir)
        .is_ok_and(|mut all| all.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().contains(part))))
}

/// Of the only machine.
fn pid() -> Option<u32> {
    let files = fs::read_dir("/run/libvirt/qemu").ok()?.filter_map(|file| Some(file.ok()?.path()));
    let is_pid = |path: &Path| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("virtlet-") && name.ends_with(".pid")
        })
    };
    let mut pids =
        files.filter(|path| is_pid(path)).filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    pids.next()
}

fn run(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let volumes = PodVolumes::new(&bed.dir, "steps");
    let disk = LoopDevice::new(&bed.dir.join("disk.img"), 1 << 20)?;
    disk.write(b"of the disk\n", 0)?;
    let annotations = [
        ("VirtletCloudInitUserDataSource", "volume/told"),
        ("VirtletCloudInitUserDataSourceKey", "user-data"),
        ("virtlet.cloud/shared-fs", "virtiofs"),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut container = cri::container(&image, annotations.into());
    let script = format!("#!/bin/sh\n# {SECRET}\necho scripted >/dev/console\n");
    container.mounts = vec![
        volumes.fill("secret", "told", &[("user-data", &script)], "/run/virtlet/seed/told")?,
        volumes.fill("configmap", "site", &[("key", "of a ConfigMap\n")], "/etc/site")?,
    ];
    let root = LoopDevice::new(&bed.dir.join("root.img"), ROOT_BYTES)?;
    let device = |container_path: &str, device: &LoopDevice| Device {
        container_path: container_path.into(),
        host_path: device.node().display().to_string(),
        permissions: "mrw".into(),
    };
    container.devices = vec![device("/dev/disk-of-pod", &disk), device("/", &root)];
    // A first pod has the node make what stays.
    node.cri.remove_sandbox(&node.cri.run_sandbox(&node.pod("first")?)?)?;
    let before = World::settled()?;
    let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..node.pod("steps")? };
    let sandbox = node.cri.run_sandbox(&pod)?;

    for (attempt, (step, shows)) in (0..).zip(STEPS) {
        let id = create(&node, &sandbox, &mut container, &pod, attempt)?;
        killed(&mut node, &id, || shows(&root)).with_context(|| format!("killed when {step}"))?;
        removed(&node, &id, &root).with_context(|| format!("after controld was killed when {step}"))?;
    }

    let id = create(&node, &sandbox, &mut container, &pod, STEPS.len())?;
    node.cri.start(&id).context("after all kills")?;
    let line = "cat /etc/site/key; head -n 1 /dev/disk-of-pod";
    let said = wait_for("volumes in the guest", BOOT_DEADLINE, || {
        let words = ["--socket", CRI_SOCKET, "exec", &id, "--", "sh", "-c", line];
        let ended = finish(&mut command(bed.program("virtletctl"), words), TOOL_DEADLINE)?;
        Ok((ended.code == Some(0)).then_some(ended.stdout))
    })?;
    ensure!(said == "of a ConfigMap\nof the disk\n", "{said:?}");
    ensure!(state_of(&root) == Some(2), "{:?}", state_of(&root));
    removed(&node, &id, &root)?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

fn create(
    node: &Node,
    sandbox: &str,
    container: &mut ContainerConfig,
    pod: &PodSandboxConfig,
    attempt: usize,
) -> Result<String> {
    container.metadata.get_or_insert_default().attempt = attempt.try_into()?;
    container.log_path = format!("vm_{attempt}.log");
    node.cri.create(sandbox, container, pod).context("CreateContainer")
}

/// Starts the machine, kills controld when the step shows, and starts it again.
fn killed(node: &mut Node, id: &str, shows: impl Fn() -> bool) -> Result<()> {
    let Node { cri, controld, .. } = node;
    std::thread::scope(|scope| {
        let start = scope.spawn(|| cri.start(id));
        // Not `wait_for`, which looks too seldom.
        let deadline = Deadline::within(GRACE);
        while !shows() {
            if deadline.has_passed() {
                bail!("it never shows: {:?}", start.join());
            }
            std::thread::yield_now();
        }
        controld.kill9()?;
        // Killed before the answer, as a rule.
        drop(start.join());
        Ok(())
    })?;
    node.controld.start_again()?;
    node.wait_ready()
}

/// kubelet stops and removes what it does not know to run; nothing of it is left.
fn removed(node: &Node, id: &str, root: &LoopDevice) -> Result<()> {
    let state = node.cri.state(id)?;
    ensure!(state != ContainerState::ContainerUnknown, "{state:?}");
    node.cri.stop(id, Duration::ZERO).context("StopContainer")?;
    node.cri.remove(id).context("RemoveContainer")?;
    ensure!(running_domains()?.is_empty(), "{:?}", running_domains()?);
    ensure!(!holds(SEEDS, "") && !holds(SHARES, ""), "a seed or a share is left");
    ensure!(!holds("/etc/libvirt/qemu", "virtlet-"), "a definition is left");
    for process in ["virtiofsd", "fswrapper", "qemu-system"] {
        wait_until(&format!("end of all {process}"), GRACE, || {
            finish(&mut command("pgrep", [process]), TOOL_DEADLINE).is_ok_and(|found| found.code == Some(1))
        })?;
    }
    // Nobody has it for themselves.
    let exclusive = || File::options().read(true).custom_flags(nix::libc::O_EXCL).open(root.node()).is_ok();
    wait_until("end of all who had the root disk", GRACE, exclusive)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.lines().any(|line| line.contains(SHARES)), "mounts: {mounts}");
    let dirs = ["/run/virtlet", "/run/libvirt", "/etc/libvirt", "/var/lib/virtlet", "/var/log"];
    let found = finish(&mut command("grep", [&["-r", "-l", "-a", SECRET], &dirs[..]].concat()), TOOL_DEADLINE)?;
    ensure!(found.stdout.is_empty(), "the Secret is in {}", found.stdout);
    Ok(())
}
