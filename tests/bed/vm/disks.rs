//! Block volumes of pods as disks of guests.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use proto::cri::{
    ContainerConfig, ContainerState, Device, LinuxContainerConfig, LinuxContainerResources,
    UpdateContainerResourcesRequest,
};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::image_server::Fault;
use tests::loop_device::LoopDevice;
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tests::wait::wait_for;
use tests::world::World;

use super::shell::{answers_within, exec, prints};

const DEADLINE: Duration = Duration::from_secs(480);
/// Of cases with guests that have many disks: their firmware and their kernels look at each, which takes minutes beside others.
const MANY_DEADLINE: Duration = Duration::from_secs(1200);
const GRACE: Duration = Duration::from_secs(30);
/// controld looks at sizes each 30 s.
const GROWN: Duration = Duration::from_secs(60);
/// And at once when the container's resources change.
const GROWN_AT_ONCE: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;
/// Of a guest with [`MANY`] disks, for which its QEMU has a thread or more each beside what any machine takes: once it was killed for memory.
const MEMORY: i64 = 448 << 20;
/// As many as a machine may have, which is more than fit into its slots one by one.
const MANY: usize = 60;
/// Devices that go before one that is to be missed. The machine has them for all cases, and gives the lowest that is free: so to other cases
/// not that one.
const SPARE: usize = 8;
/// Longer than a virtio disk shows, so it is cut.
const LONG: &str = "/dev/a-name-that-is-cut-in-guests";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::block_volumes_are_disks_by_their_names_in_any_order", deadline: MANY_DEADLINE, run: named },
    Case { name: "vm::block_volumes_on_scsi_are_found_by_the_same_names", deadline: MANY_DEADLINE, run: on_scsi },
    Case { name: "vm::devices_that_are_no_disks_are_refused", deadline: DEADLINE, run: refused },
    Case { name: "vm::a_block_volume_that_a_vm_writes_to_is_no_other_vms", deadline: DEADLINE, run: one_writer },
    Case { name: "vm::block_volumes_are_shared_where_handlers_say_so", deadline: DEADLINE, run: several_writers },
    Case { name: "vm::a_device_that_vanished_before_the_start_is_named", deadline: DEADLINE, run: vanished },
];

/// Block volumes as kubelet hands them over: links to nodes, or nodes that are bound to a file, as CSI does.
struct Volumes {
    dir: PathBuf,
    devices: Vec<LoopDevice>,
}

impl Volumes {
    fn new(bed: &Bed, count: usize) -> Result<Self> {
        let dir = bed.dir.join("block");
        fs::create_dir_all(&dir)?;
        let mut devices = Vec::new();
        for n in 0..count {
            // Whole sectors of 4 KiB on one of them.
            let sector = if n == 1 { 4096 } else { 512 };
            let device = LoopDevice::with(&dir.join(format!("{n}.img")), MIB, sector)?;
            device.write(format!("disk {n:02}\n").as_bytes(), 0)?;
            if n == 2 {
                let file = dir.join(format!("pv-{n}"));
                fs::write(&file, "")?;
                sh(&format!("mount --bind {} {}", device.node().display(), file.display()))?;
            } else {
                symlink(device.node(), dir.join(format!("pv-{n}")))?;
            }
            devices.push(device);
        }
        Ok(Self { dir, devices })
    }

    fn device(&self, n: usize, path: &str) -> Device {
        let permissions = if n == 0 { "r" } else { "mrw" };
        Device {
            container_path: path.into(),
            host_path: self.dir.join(format!("pv-{n}")).display().to_string(),
            permissions: permissions.into(),
        }
    }
}

fn path_of(n: usize) -> String {
    if n == 3 { LONG.into() } else { format!("/dev/pvc/{n}") }
}

fn start(bed: &Bed) -> Result<Node> {
    Node::configured(bed, "handlers.virtlet.guest_agent = true")
}

fn container(bed: &Bed, node: &Node, devices: Vec<Device>) -> Result<ContainerConfig> {
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let memory = LinuxContainerResources { memory_limit_in_bytes: MEMORY, ..Default::default() };
    let linux = Some(LinuxContainerConfig { resources: Some(memory), ..Default::default() });
    Ok(ContainerConfig { devices, linux, ..cri::container(&image, [].into()) })
}

fn boots(bed: &Bed, node: &Node, name: &str, container: &ContainerConfig) -> Result<Vm> {
    answers_within(bed, node.start_pod(node.pod(name)?, container)?, BOOT_DEADLINE * 2)
}

/// That each of these devices is where the pod wants it.
fn all_there(bed: &Bed, vm: &Vm, numbers: &[usize]) -> Result<()> {
    let paths: Vec<_> = numbers.iter().map(|n| path_of(*n)).collect();
    let expected: Vec<_> = numbers.iter().map(|n| format!("disk {n:02}")).collect();
    let line = format!("for disk in {}; do head -n 1 $disk; done", paths.join(" "));
    prints(bed, vm, &line, &expected.join("\n"))
}

fn named(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let volumes = Volumes::new(bed, MANY)?;
    let before = World::look()?;
    let all: Vec<_> = (0..MANY).collect();
    let devices = |numbers: &[usize]| numbers.iter().map(|n| volumes.device(*n, &path_of(*n))).collect();
    let vm = boots(bed, &node, "block", &container(bed, &node, devices(&all))?)?;
    all_there(bed, &vm, &all)?;

    // The serial alone tells a guest which disk it is, without udev.
    prints(bed, &vm, "cat /sys/block/$(basename $(readlink /dev/pvc/7))/serial", "pvc_7")?;
    let cut = exec(bed, &vm, &format!("cat /sys/block/$(basename $(readlink {LONG}))/serial"))?.stdout;
    ensure!(cut.starts_with("a-name-that-") && cut.trim_end().len() == 20, "{cut}");
    prints(bed, &vm, "cat /sys/block/$(basename $(readlink /dev/pvc/1))/queue/logical_block_size", "4096")?;

    let ended = exec(bed, &vm, "echo x | dd of=/dev/pvc/0 conv=fsync")?;
    ensure!(ended.code != Some(0), "a volume that is read-only was written: {ended:?}");
    prints(bed, &vm, "printf 'of the guest' | dd of=/dev/pvc/5 bs=1 seek=512 conv=fsync,notrunc 2>/dev/null", "")?;
    ensure!(volumes.devices[5].read(12, 512)? == b"of the guest", "not written");
    ensure!(volumes.devices[0].read(8, 0)? == b"disk 00\n", "written");

    // What the guest gives up is room of the device's again.
    let file = volumes.dir.join("6.img");
    let taken = || Ok::<_, anyhow::Error>(fs::metadata(&file)?.blocks());
    prints(bed, &vm, "dd if=/dev/urandom of=/dev/pvc/6 bs=64k count=8 conv=fsync,notrunc 2>/dev/null", "")?;
    let full = taken()?;
    prints(bed, &vm, "blkdiscard /dev/pvc/6", "")?;
    ensure!(full >= 1024 && taken()? < full / 2, "{full} sectors of the device's file, and {} after discard", taken()?);

    volumes.devices[4].grow(3 * MIB)?;
    grown(bed, &vm, 4, GROWN)?;
    node.remove_vm(&vm, GRACE)?;

    // Others before and behind them, and in another order.
    let some: Vec<_> = [9, 3, 0, 7, 2].into();
    let vm = boots(bed, &node, "block-again", &container(bed, &node, devices(&some))?)?;
    all_there(bed, &vm, &some)?;
    volumes.devices[9].grow(3 * MIB)?;
    let update = UpdateContainerResourcesRequest {
        container_id: vm.container.clone(),
        linux: Some(LinuxContainerResources { cpu_shares: 600, ..LinuxContainerResources::default() }),
        ..UpdateContainerResourcesRequest::default()
    };
    node.cri.call(|mut client| async move { client.update_container_resources(update).await })?;
    grown(bed, &vm, 9, GROWN_AT_ONCE)?;
    node.remove_vm(&vm, GRACE)?;
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("file /var/lib/virtlet/images"))
}

/// That the guest sees three MiB of this device in time.
fn grown(bed: &Bed, vm: &Vm, n: usize, deadline: Duration) -> Result<()> {
    wait_for("growth in the guest", deadline, || {
        let size = exec(bed, vm, &format!("cat /sys/block/$(basename $(readlink /dev/pvc/{n}))/size"))?;
        Ok((size.stdout.trim() == "6144").then_some(()))
    })
}

fn on_scsi(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let volumes = Volumes::new(bed, 4)?;
    let numbers = [2, 0, 3, 1];
    let devices = numbers.iter().map(|n| volumes.device(*n, &path_of(*n))).collect();
    let mut container = container(bed, &node, devices)?;
    container.annotations.insert("VirtletDiskDriver".into(), "scsi".into());
    let vm = boots(bed, &node, "scsi", &container)?;
    all_there(bed, &vm, &numbers)?;
    let ended = exec(bed, &vm, "echo x | dd of=/dev/pvc/0 conv=fsync")?;
    ensure!(ended.code != Some(0), "a volume that is read-only was written: {ended:?}");
    node.remove_vm(&vm, GRACE)
}

fn refused(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let volumes = Volumes::new(bed, 1)?;
    let file = |name: &str| -> Result<Device> {
        fs::write(volumes.dir.join(name), "")?;
        Ok(at(&volumes.dir.join(name), "/dev/x"))
    };
    let many: Vec<_> = (0..61).map(|n| volumes.device(0, &format!("/dev/disk{n}"))).collect();
    let pod = node.pod("refused")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let before = World::look()?;
    for (devices, why) in [
        (vec![file("file")?], "is no block device"),
        (vec![at(Path::new("/dev/null"), "/dev/x")], "is no block device"),
        (vec![at(&volumes.dir.join("gone"), "/dev/x")], "is not there on the node"),
        (vec![volumes.device(0, "/proc/x")], "`/proc` is the guest's own"),
        (vec![volumes.device(0, "/dev/a/b"), volumes.device(0, "/a/b")], "the same serial, `a_b`"),
        (many, "61 block volumes, and a VM has at most 60"),
    ] {
        let container = container(bed, &node, devices)?;
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { bail!("not refused: {why}") };
        ensure!(error.message().contains(why), "{error}");
    }
    before.assert_same_but(|thing| thing.starts_with("file /var/lib/virtlet/images"))?;

    node.cri.remove_sandbox(&sandbox)?;
    Ok(())
}

/// That a container is not started, with these words.
fn not_started(node: &Node, id: &str, words: &[&str]) -> Result<()> {
    let Err(error) = node.cri.start(id) else { bail!("started") };
    for word in words {
        ensure!(error.message().contains(word), "`{word}` is not in: {error}");
    }
    ensure!(node.cri.container(id)?.state() == ContainerState::ContainerExited, "it is not over");
    Ok(())
}

fn one_writer(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let volumes = Volumes::new(bed, 2)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    // As two pods of a rolling update have it: by paths of their own, which lead to one device.
    let writes = ContainerConfig { devices: vec![volumes.device(1, "/dev/data")], ..cri::container(&image, [].into()) };
    let reads = Device { permissions: "r".into(), ..volumes.device(1, "/dev/other") };
    let reads = ContainerConfig { devices: vec![reads], ..writes.clone() };
    let first = node.start_pod(node.pod("first")?, &writes)?;

    let pod = node.pod("second")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let device = volumes.devices[1].node().display().to_string();
    let words = [&*format!("block device `{device}`"), "/first`", "a disk that a VM writes to is one VM's at a time"];
    for (attempt, container) in [&writes, &reads].into_iter().enumerate() {
        let id = node.cri.create(&sandbox, &of_attempt(container, attempt)?, &pod)?;
        not_started(&node, &id, &words)?;
    }
    // It is free with the end of the first one, which is still there.
    node.cri.stop(&first.container, Duration::ZERO)?;
    let second = node.start_in(&sandbox, &of_attempt(&writes, 2)?, &pod)?;
    node.remove_vm(&second, GRACE)?;
    node.remove_vm(&first, GRACE)?;

    // Those that only read it may have it together.
    let first = node.start_pod(node.pod("first")?, &reads)?;
    let second = node.start_pod(node.pod("second")?, &reads)?;
    node.remove_vm(&second, GRACE)?;
    node.remove_vm(&first, GRACE)
}

/// kubelet's next container for one that did not start.
fn of_attempt(container: &ContainerConfig, attempt: usize) -> Result<ContainerConfig> {
    let mut container = container.clone();
    container.metadata.get_or_insert_default().attempt = attempt.try_into()?;
    Ok(container)
}

fn several_writers(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet.guest_agent = true\nhandlers.virtlet.shared_disks = true")?;
    let volumes = Volumes::new(bed, 2)?;
    let container = container(bed, &node, vec![volumes.device(1, "/dev/pvc/1")])?;
    let first = boots(bed, &node, "first", &container)?;
    let second = boots(bed, &node, "second", &container)?;
    for (offset, vm) in [(1, &first), (2, &second)] {
        let line = format!(
            "head -c 4096 /dev/zero | tr '\\0' {offset} | dd of=/dev/pvc/1 bs=4096 seek={offset} conv=fsync,notrunc 2>/dev/null"
        );
        prints(bed, vm, &line, "")?;
    }
    for (offset, byte) in [(1_u64, b'1'), (2, b'2')] {
        ensure!(volumes.devices[1].read(4096, offset * 4096)? == [byte; 4096], "{offset} was not written");
    }
    node.remove_vm(&second, GRACE)?;
    node.remove_vm(&first, GRACE)
}

fn vanished(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let mut volumes = Volumes::new(bed, SPARE + 1)?;
    let container = container(bed, &node, vec![volumes.device(SPARE, "/dev/data")])?;
    let pod = node.pod("vanished")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let before = World::look()?;
    let id = node.cri.create(&sandbox, &container, &pod)?;
    let device = volumes.devices.remove(SPARE);
    let path = device.node().to_owned();
    volumes.devices.clear();
    drop(device);
    wait_for("the end of the loop device", GRACE, || Ok(is_detached(&path).then_some(())))?;
    not_started(&node, &id, &["device at `/dev/data`", &*format!("`{}`", path.display())])?;
    node.cri.remove(&id)?;
    before.assert_same_but(|thing| {
        // The pod keeps its root disk; the device itself is gone.
        thing.starts_with("file /var/lib/virtlet/volumes") || thing.starts_with("file /var/lib/virtlet/images")
    })?;
    node.cri.remove_sandbox(&sandbox)?;
    Ok(())
}

/// Whether a loop device has no file any more.
fn is_detached(node: &Path) -> bool {
    let name = node.file_name().unwrap_or_default();
    !Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

fn at(path: &Path, container_path: &str) -> Device {
    Device { container_path: container_path.into(), host_path: path.display().to_string(), permissions: "mrw".into() }
}
