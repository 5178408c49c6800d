//! A pod's machine from RunPodSandbox to RemovePodSandbox.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerState, LinuxContainerResources};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::sh;
use tests::cri;
use tests::emulator::{self, of_one_thread};
use tests::guest::ping;
use tests::image_server::Fault;
use tests::libvirt::only_qemu;
use tests::net_node::{QEMU, latest_record};
use tests::node::{BOOT_DEADLINE, Node, SHUTDOWN};
use tests::world::World;

use super::sockets;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_guest_boots_answers_and_leaves_nothing", deadline: DEADLINE, run: whole_life },
    Case { name: "vm::a_container_starts_again_in_its_sandbox", deadline: DEADLINE, run: starts_again },
    Case { name: "vm::a_new_emulator_is_asked_what_it_can_do", deadline: DEADLINE, run: new_emulator },
];

fn whole_life(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, &of_one_thread(bed)?)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let base = base_images()?;

    let mut container = cri::container(&image, [].into());
    let resources = LinuxContainerResources {
        memory_limit_in_bytes: 192 << 20,
        cpu_period: 100_000,
        cpu_quota: 150_000,
        ..Default::default()
    };
    container.linux.get_or_insert_default().resources = Some(resources);
    let vm = node.start_pod(node.pod("whole")?, &container)?;
    ensure!(node.cri.state(&vm.container)? == ContainerState::ContainerRunning, "not running after StartContainer");
    vm.wait_up()?;

    ping(None, vm.ip)?;
    let info = vm.info()?;
    for line in [
        "hostname whole",
        "mtu 1450",
        "seed nocloud",
        "cpus 2",
        "boots 1",
        "route default via 10.77.0.1",
        "dns nameserver 10.96.0.10",
    ] {
        ensure!(info.contains(line), "no `{line}` in what the guest says:\n{info}");
    }
    let memory: u64 =
        info.split("memkb ").nth(1).and_then(|rest| rest.split_whitespace().next()).context("no memory")?.parse()?;
    ensure!((130_000..196_608).contains(&memory), "the guest has {memory} KiB");
    vm.wait_log("tiny: ready", BOOT_DEADLINE)?;
    in_cri_format(&vm.log_text()?)?;
    qemu_is_not_root()?;
    sockets::are_roots(bed)?;
    let network = Network { masquerade: true, ..Network::BRIDGE };
    checked_by_the_plugin(&vm.sandbox, &network)?;

    node.cri.stop(&vm.container, SHUTDOWN)?;
    let status = node.cri.container(&vm.container)?;
    ensure!(status.state() == ContainerState::ContainerExited, "after StopContainer: {:?}", status.state());
    ensure!((status.exit_code, status.reason.as_str()) == (0, "Completed"), "{}: {}", status.exit_code, status.reason);
    vm.wait_log("tiny: stopping", BOOT_DEADLINE)?;
    node.remove_vm(&vm, GRACE)?;

    ensure!(base_images()? == base, "the image was changed: {base:?}, {:?}", base_images()?);
    fs::remove_dir_all(&vm.pod.log_directory)?;
    before.assert_same()?;
    ensure!(!sh("iptables-save")?.contains("MASQUERADE"), "a rule is left");
    Ok(())
}

fn starts_again(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let before = World::look()?;
    let vm = node.boot_vm(bed, "again", "")?;
    let image = node.cri.container(&vm.container)?.image.context("no image")?.image;

    let mut second = cri::container(&image, [].into());
    second.metadata.get_or_insert_default().attempt = 1;
    second.log_path = "vm_1.log".into();
    let refused = node.cri.create(&vm.sandbox, &second, &vm.pod).err().context("a second container at a time")?;
    ensure!(refused.code() == tonic::Code::FailedPrecondition, "{refused}");

    node.cri.stop(&vm.container, SHUTDOWN)?;
    // Before each start kubelet pulls what has no tag, and what it pulls may have been published anew.
    let anew = bed.dir.join("anew.qcow2");
    sh(&format!("qemu-img create -q -f qcow2 {} 64M", anew.display()))?;
    ensure!(node.images.offer("tiny.qcow2", &anew, Fault::None) == image, "another name");
    let first = node.cri.container(&vm.container)?.image_id;
    ensure!(node.cri.pull(&image)? != first, "the image is the same");
    let id = node.cri.create(&vm.sandbox, &second, &vm.pod)?;
    let stands_on = node.cri.container(&id)?.image_id;
    ensure!(stands_on == first, "a machine on {stands_on}, whose disk stands on {first}");
    node.cri.start(&id)?;
    let mut next = vm.clone();
    next.machine = node.cri.machine(&id)?;
    next.container = id;
    next.log = Path::new(&vm.pod.log_directory).join("vm_1.log");
    next.wait_up()?;
    // The disk is the pod's, not the container's.
    ensure!(next.info()?.contains("boots 2"), "another disk:\n{}", next.info()?);
    next.wait_log("tiny: ready", BOOT_DEADLINE)?;

    node.cri.remove(&vm.container)?;
    node.remove_vm(&next, GRACE)?;
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("file /var/lib/virtlet/images"))
}

/// libvirt sees vmwrapper only: that QEMU behind it is another one, controld has to tell it.
fn new_emulator(bed: &Bed) -> Result<()> {
    let asked = bed.dir.join("asked");
    let probed = || fs::read_to_string(&asked).is_ok_and(|words| words.contains("-machine none"));
    // Reads standard input and writes as QEMU's user, to a file that is there.
    fs::write(&asked, "")?;
    fs::set_permissions(&asked, fs::Permissions::from_mode(0o666))?;
    let write_emulator = |release: &str| {
        let script = format!(
            "#!/bin/sh\n# {release}\necho \"$*\" >>{}\nexec /usr/bin/qemu-system-x86_64 \"$@\"\n",
            asked.display()
        );
        emulator::put(bed, &script)
    };
    let mut node = Node::configured(bed, &write_emulator("1")?)?;
    let vm = node.start_vm(bed, "first", "")?;
    ensure!(probed(), "libvirt asked another emulator than the node's");
    node.remove_vm(&vm, Duration::ZERO)?;

    for (release, again) in [("1", false), ("2", true)] {
        if again {
            write_emulator(release)?;
        }
        node.controld.terminate()?;
        node.libvirt.libvirtd.kill9()?;
        fs::write(&asked, "")?;
        node.libvirt.libvirtd.start_again()?;
        node.libvirt.wait_ready()?;
        node.controld.start_again()?;
        node.wait_ready()?;
        let vm = node.start_vm(bed, "next", "")?;
        ensure!(probed() == again, "release {release}: {}", fs::read_to_string(&asked)?);
        node.remove_vm(&vm, Duration::ZERO)?;
    }

    // Replaced under daemons that run.
    write_emulator("3.0")?;
    fs::write(&asked, "")?;
    let vm = node.start_vm(bed, "swapped", "")?;
    ensure!(probed(), "libvirt takes the new emulator for the old one");
    node.remove_vm(&vm, Duration::ZERO)
}

/// Path, owner, mode and hash of all that the image store holds.
fn base_images() -> Result<Vec<(PathBuf, u32, u32, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/var/lib/virtlet/images/data")? {
        let path = entry?.path();
        if path.is_file() {
            let meta = fs::metadata(&path)?;
            let hash = sh(&format!("sha256sum {}", path.display()))?;
            found.push((path, meta.uid(), meta.mode(), hash));
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "no image in the store");
    ensure!(found.iter().all(|(_, uid, mode, _)| *uid == 0 && mode & 0o022 == 0), "others may write: {found:?}");
    Ok(found)
}

fn in_cri_format(log: &str) -> Result<()> {
    for line in log.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let sound = words.len() >= 3
            && words[0].contains('T')
            && (words[0].ends_with('Z') || words[0].contains('+'))
            && ["stdout", "stderr"].contains(&words[1])
            && ["F", "P"].contains(&words[2]);
        ensure!(sound, "not a line of a CRI log: {line}");
    }
    Ok(())
}

fn qemu_is_not_root() -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{}/status", only_qemu()?))?;
    let uids = status.lines().find(|line| line.starts_with("Uid:")).context("no uid")?;
    ensure!(uids.split_whitespace().skip(1).all(|uid| uid == QEMU.uid.to_string()), "QEMU is {uids}");
    Ok(())
}

fn checked_by_the_plugin(sandbox: &str, network: &Network) -> Result<()> {
    let record = latest_record(sandbox)?;
    let netns = PathBuf::from(record["netns"].as_str().context("no namespace on record")?);
    cni::check(&cni::debian_plugins(), network, sandbox, &netns, &record["attachments"][0]["result"])
}
