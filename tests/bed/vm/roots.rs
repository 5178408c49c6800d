//! Root disks that outlive their pods: a block volume at `/`, and one image on it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::cri::{ContainerConfig, ContainerState, Device, PodSandboxConfig};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::image_server::Fault;
use tests::libvirt::virsh;
use tests::loop_device::LoopDevice;
use tests::node::{Node, Vm};
use tests::peers::disk::sum;
use tests::wait::{wait_for, wait_until};
use tonic::Status;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
/// Of small things that controld does.
const SOON: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
/// The tiny guest's disk has 42.
const ROOM: u64 = 48 * MIB;
const SECTOR: usize = 512;
const MAGIC: [u8; 8] = [0x26, 0x3d, 0xbe, 0x52, 0xba, 0x57, 0x67, 0x02];
const KEEPER: &str = "[handlers.keeper]\nroot_on_image_change = 'keep'\n";
/// What our stand-in for `qemu-img` leaves where a guest's disk is to be.
const HALF: [u8; 16] = *b"half of an image";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_root_disk_on_a_volume_outlives_its_pod", deadline: DEADLINE, run: outlives },
    Case { name: "vm::a_volume_with_other_data_is_no_root_disk_and_stays_as_it_is", deadline: DEADLINE, run: refused },
    Case {
        name: "vm::a_root_disk_is_copied_again_for_another_image_or_a_half_copy",
        deadline: DEADLINE,
        run: copied_again,
    },
];

/// A volume as kubelet hands it over: a link with the volume's name.
struct Volume {
    link: PathBuf,
    device: LoopDevice,
}

/// What a header of ours says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    state: u8,
    image: String,
    uuid: String,
}

impl Volume {
    fn new(bed: &Bed, name: &str, bytes: u64) -> Result<Self> {
        Self::with(bed, name, bytes, 512)
    }

    fn with(bed: &Bed, name: &str, bytes: u64, sector: u32) -> Result<Self> {
        let dir = bed.dir.join("block");
        fs::create_dir_all(&dir)?;
        let (link, device) = (dir.join(name), LoopDevice::with(&dir.join(format!("{name}.img")), bytes, sector)?);
        symlink(device.node(), &link)?;
        Ok(Self { link, device })
    }

    fn root(&self, permissions: &str) -> Device {
        let host_path = self.link.display().to_string();
        Device { container_path: "/".into(), host_path, permissions: permissions.into() }
    }

    /// `None` if there is none of version 2.
    fn header(&self) -> Result<Option<Header>> {
        let sector = self.device.read(SECTOR, 0)?;
        if sector[..10] != [&MAGIC[..], &[0, 2]].concat() {
            return Ok(None);
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Some(Header { state: sector[10], image: hex(&sector[11..43]), uuid: hex(&sector[51..67]) }))
    }

    fn ready(&self) -> Result<Header> {
        let header = self.header()?.context("no header")?;
        ensure!(header.state == 2, "not ready: {header:?}");
        Ok(header)
    }

    fn hash(&self) -> Result<String> {
        sum("sha256sum", self.device.node())
    }

    /// Whether nobody has it for themselves.
    fn is_free(&self) -> bool {
        OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(self.device.node()).is_ok()
    }
}

fn container(image: &str, root: Device) -> ContainerConfig {
    ContainerConfig { devices: vec![root], ..cri::container(image, [].into()) }
}

/// A pod that is created; its start is for the case.
fn create(node: &Node, name: &str, handler: &str, container: &ContainerConfig) -> Result<Vm> {
    let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..node.pod(name)? };
    let sandbox = node.cri.run_sandbox_for(&pod, handler)?;
    let id = node.cri.create(&sandbox, container, &pod)?;
    let ip = node.cri.sandbox(&sandbox)?.network.context("a sandbox without a network")?.ip.parse()?;
    let log = Path::new(&pod.log_directory).join(&container.log_path);
    let machine = node.cri.machine(&id)?;
    Ok(Vm { sandbox, container: id, machine, ip, log, pod })
}

/// That the guest has booted so often from its disk, as this instance.
fn ensure_guest(vm: &Vm, boots: u32, instance: &str) -> Result<()> {
    vm.wait_up()?;
    let info = vm.info()?;
    for line in [format!("boots {boots}"), format!("instance-id {instance}")] {
        ensure!(info.lines().any(|other| other == line), "no `{line}` in {info}");
    }
    Ok(())
}

fn xml(vm: &Vm) -> Result<String> {
    virsh(&format!("dumpxml {}", vm.domain()?))
}

fn hyphened(uuid: &str) -> String {
    [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].map(|(from, to)| &uuid[from..to]).join("-")
}

fn outlives(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let file = bed.config.guest("tiny.qcow2")?;
    let volume = Volume::new(bed, "pvc-root", ROOM)?;
    // What an earlier disk has left at the end, which nobody looks for.
    volume.device.write(&[0xee; 64], ROOM - 2 * MIB)?;
    volume.device.write(&[0xee; 64], ROOM - MIB / 2)?;

    let vm = node.start_pod(node.pod("first")?, &container(&image, volume.root("mrw")))?;
    let header = volume.ready()?;
    ensure!(header.image == sum("sha256sum", &file)?, "another image: {header:?}");
    let uuid = hyphened(&header.uuid);
    ensure_guest(&vm, 1, &uuid)?;
    let said = xml(&vm)?;
    ensure!(said.contains(&format!("uuid={uuid}")), "not the firmware's UUID: {said}");
    ensure!(said.contains(&format!("size='{}'", ROOM - MIB)), "not all of the device: {said}");
    ensure!(volume.device.read(64, ROOM - MIB / 2)? == [0; 64], "the end of an earlier disk is there");
    let disks = Path::new("/var/lib/virtlet/volumes").join(&vm.pod.metadata.as_ref().context("no pod")?.uid);
    ensure!(disks.is_dir() && !disks.join("root.qcow2").exists(), "an overlay was made");

    // Another VM does not get it meanwhile.
    let second = create(&node, "second", "", &container(&image, volume.root("mrw")))?;
    let error = node.cri.start(&second.container).err().context("two VMs of one root disk")?;
    ensure!(error.message().contains("is in use by the VM of pod `default/first`"), "{error}");
    node.remove_vm(&second, GRACE)?;
    node.remove_vm(&vm, GRACE)?;

    // What the guest has written is there for the next pod, which is the same machine with more room.
    volume.device.grow(2 * ROOM)?;
    let vm = node.start_pod(node.pod("next")?, &container(&image, volume.root("mrw")))?;
    ensure_guest(&vm, 2, &uuid)?;
    ensure!(volume.ready()? == header, "another header");
    let said = xml(&vm)?;
    ensure!(said.contains(&format!("size='{}'", 2 * ROOM - MIB)), "has not grown: {said}");
    node.remove_vm(&vm, GRACE)?;

    // Virtlet's, which begins in the second sector.
    let old = Volume::new(bed, "pvc-of-virtlet", ROOM)?;
    let hash = hex_bytes(&header.image)?;
    let first = [&MAGIC[..], &[0, 1], &hash, &[0; SECTOR - 42]].concat();
    let raw = bed.dir.join("tiny.raw");
    sh(&format!("qemu-img convert -O raw {} {}", file.display(), raw.display()))?;
    old.device.write(&[first.clone(), fs::read(&raw)?].concat(), 0)?;
    let vm = node.start_pod(node.pod("virtlets")?, &container(&image, old.root("mrw")))?;
    vm.wait_up()?;
    ensure!(vm.info()?.lines().any(|line| line == "boots 1"), "{}", vm.info()?);
    ensure!(xml(&vm)?.contains("<slice type='storage' offset='512'"), "{}", xml(&vm)?);
    ensure!(old.device.read(SECTOR, 0)? == first, "its header is another one");
    node.remove_vm(&vm, GRACE)?;

    // A disk as it is, of which the guest has all.
    old.device.write(&fs::read(&raw)?, 0)?;
    let mut as_is = container(&image, old.root("mrw"));
    let error = node.start_pod(node.pod("not-as-is")?, &as_is).err().context("data were taken for a place")?;
    ensure!(format!("{error:#}").contains("holds data (an MBR"), "{error:#}");
    as_is.annotations = [("virtlet.cloud/root-device".to_owned(), "as-is".to_owned())].into();
    let vm = node.start_pod(node.pod("as-is")?, &as_is)?;
    vm.wait_up()?;
    ensure!(!xml(&vm)?.contains("<slice") && old.device.read(SECTOR, 0)? == fs::read(&raw)?[..SECTOR], "not as it was");
    node.remove_vm(&vm, GRACE)
}

fn hex_bytes(hex: &str) -> Result<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&hex[at..at + 2], 16)?)).collect()
}

fn refused(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("refused")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let create = |container: &ContainerConfig| -> Result<Status> {
        node.cri.create(&sandbox, container, &pod).err().context("not refused")
    };
    type Spoil = fn(&Volume) -> Result<()>;
    let spoils: [(&str, u64, Spoil, &str); 7] = [
        (
            "ext4",
            ROOM,
            |volume| sh(&format!("mkfs.ext4 -q {}", volume.device.node().display())).map(drop),
            "holds data (ext4)",
        ),
        ("luks", ROOM, |volume| volume.device.write(b"LUKS\xba\xbe", 0), "holds data (LUKS)"),
        ("data", ROOM, |volume| volume.device.write(b"mine", MIB - 4), "holds data (data)"),
        ("small", 43 * MIB - 512, |_| Ok(()), "the image needs 45088768 there"),
        ("newer", ROOM, |volume| volume.device.write(&[&MAGIC[..], &[0, 3]].concat(), 0), "of version 3"),
        ("torn", ROOM, |volume| volume.device.write(&[&MAGIC[..], &[0, 2, 2]].concat(), 0), "its checksum is wrong"),
        ("tiny", MIB / 2, |_| Ok(()), "take a larger volume"),
    ];
    for (name, bytes, spoil, why) in spoils {
        let volume = Volume::new(bed, name, bytes)?;
        spoil(&volume)?;
        let before = volume.hash()?;
        let error = create(&container(&image, volume.root("mrw")))?;
        ensure!(error.message().contains(why), "{name}: {error}");
        ensure!(volume.hash()? == before, "{name}: the device was written to");
    }

    let volume = Volume::new(bed, "pvc-free", ROOM)?;
    let sized = [("VirtletRootVolumeSize".to_owned(), "1Gi".to_owned())].into();
    let mut with_size = container(&image, volume.root("mrw"));
    with_size.annotations = sized;
    let other_pod = PodSandboxConfig { annotations: with_size.annotations.clone(), ..pod.clone() };
    let error = node.cri.create(&sandbox, &with_size, &other_pod).err().context("not refused")?;
    ensure!(error.message().contains("the root disk is a persistent volume"), "{error}");
    let error = create(&container(&image, volume.root("r")))?;
    ensure!(error.message().contains("device at `/` is read-only"), "{error}");

    // A file system of the node's begins blank to nobody, and is nobody's but the node's while it is mounted.
    let id = node.cri.create(&sandbox, &container(&image, volume.root("mrw")), &pod)?;
    let held = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(volume.device.node())?;
    let before = volume.hash()?;
    let error = node.cri.start(&id).err().context("a device in use was taken")?;
    ensure!(error.message().contains("is in use on this node"), "{error}");
    drop(held);
    ensure!(volume.hash()? == before, "the device was written to");
    Ok(node.cri.remove_sandbox(&sandbox)?)
}

fn copied_again(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, KEEPER)?;
    let first = node.pull(bed, "tiny.qcow2")?;
    let other_file = bed.dir.join("other.qcow2");
    sh(&format!(
        "qemu-img convert -O qcow2 -c {} {}",
        bed.config.guest("tiny.qcow2")?.display(),
        other_file.display()
    ))?;
    let other = node.images.offer("other.qcow2", &other_file, Fault::None);
    node.cri.pull(&other)?;
    let volume = Volume::new(bed, "pvc-root", ROOM)?;
    let starts_on = |volume: &Volume, node: &Node, name: &str, handler: &str, image: &str| -> Result<Header> {
        let vm = create(node, name, handler, &container(image, volume.root("mrw")))?;
        node.cri.start(&vm.container)?;
        let header = volume.ready()?;
        node.remove_vm(&vm, Duration::ZERO)?;
        Ok(header)
    };
    let starts = |node: &Node, name: &str, handler: &str, image: &str| starts_on(&volume, node, name, handler, image);
    let begun = starts(&node, "begun", "", &first)?;
    ensure!(starts(&node, "kept", "keeper", &other)? == begun, "the handler was to keep it");
    let changed = starts(&node, "changed", "", &other)?;
    ensure!(changed.image != begun.image && changed.uuid != begun.uuid, "not copied: {changed:?}");

    // Sectors of 4 KiB, and the copy is the image.
    let large = Volume::with(bed, "pvc-4k", ROOM, 4096)?;
    starts_on(&large, &node, "large", "", &first)?;
    let raw = bed.dir.join("tiny.raw");
    sh(&format!("qemu-img convert -O raw {} {}", bed.config.guest("tiny.qcow2")?.display(), raw.display()))?;
    let raw = fs::read(&raw)?;
    ensure!(large.device.read(raw.len(), MIB)? == raw, "another disk than the image's");
    // Its guest finds its partitions, which are told in the image's sectors.
    let vm = node.start_pod(node.pod("large-up")?, &container(&first, large.root("mrw")))?;
    vm.wait_up()?;
    let said = xml(&vm)?;
    ensure!(said.contains("logical_block_size='512' physical_block_size='4096'"), "not the image's sectors: {said}");
    node.remove_vm(&vm, GRACE)?;

    // A copy that does not come to its end.
    let stand_in = format!("mount --bind {} /usr/bin/qemu-img", bed.itself().display());
    sh(&stand_in)?;
    let vm = create(&node, "stopped", "", &container(&first, volume.root("mrw")))?;
    std::thread::scope(|scope| {
        let start = scope.spawn(|| node.cri.start(&vm.container));
        let half = wait_half(&volume);
        let state = node.cri.state(&vm.container);
        node.cri.stop(&vm.container, GRACE)?;
        half?;
        ensure!(state? == ContainerState::ContainerCreated, "not being started");
        let Ok(Err(error)) = start.join() else { bail!("the machine started") };
        ensure!(error.message().contains("stopped while its root disk was being written"), "{error}");
        ensure!(volume.is_free(), "a copy goes on behind the stop");
        Ok(())
    })?;
    node.remove_vm(&vm, GRACE)?;

    // Nor does this one: controld is killed.
    let vm = create(&node, "killed", "", &container(&first, volume.root("mrw")))?;
    let Node { cri, controld, .. } = &mut node;
    std::thread::scope(|scope| {
        let start = scope.spawn(|| cri.start(&vm.container));
        let half = wait_half(&volume);
        controld.kill9()?;
        drop(start.join());
        half?;
        wait_until("the end of a copy", SOON, || volume.is_free())
    })?;
    ensure!(volume.header()?.is_some_and(|header| header.state == 1), "not half a copy");
    sh("umount /usr/bin/qemu-img")?;
    node.controld.start_again()?;
    node.wait_ready()?;
    // As kubelet does with one that was being started.
    node.cri.stop(&vm.container, GRACE)?;
    let mut again = container(&first, volume.root("mrw"));
    again.metadata.as_mut().context("no name")?.attempt = 1;
    let id = node.cri.create(&vm.sandbox, &again, &vm.pod)?;
    node.cri.start(&id)?;
    let header = volume.ready()?;
    ensure!(header.image == begun.image && header.uuid != begun.uuid, "{header:?}");
    let vm = Vm { machine: node.cri.machine(&id)?, container: id, ..vm };
    ensure_guest(&vm, 1, &hyphened(&header.uuid))?;
    node.remove_vm(&vm, GRACE)
}

/// Waits until a copy has begun that our stand-in never ends.
fn wait_half(volume: &Volume) -> Result<()> {
    wait_for("half a copy", SOON, || {
        let header = volume.header()?;
        let half = volume.device.read(HALF.len(), MIB)?;
        Ok((header.is_some_and(|header| header.state == 1) && half == HALF).then_some(()))
    })
}

/// Stands where `qemu-img` would: begins to write the guest's disk, and does not end.
pub(crate) fn half_a_copy() -> Result<()> {
    let device = File::options().write(true).open("/proc/self/fd/1")?;
    device.write_all_at(&HALF, MIB)?;
    device.sync_all()?;
    loop {
        std::thread::park();
    }
}
