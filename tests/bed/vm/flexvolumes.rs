//! Flexvolumes of Virtlet: new disks, devices of the node, and images of a Ceph cluster, of which there is none: QEMU waits for it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::cri::{ContainerConfig, PodSandboxConfig};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::canary::{Canary, Search};
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish, run, sh};
use tests::cri;
use tests::flexvolumes::Flexvolumes;
use tests::image_server::Fault;
use tests::libvirt::{running_domains, virsh};
use tests::loop_device::LoopDevice;
use tests::node::{Node, SHUTDOWN};
use tests::wait::wait_until;
use tonic::{Code, Status};

use super::shell::{answers, prints};

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
/// Where the second partition begins, in bytes.
const SECOND: u64 = 2 * MIB;
/// QEMU's driver for images of Ceph clusters.
const RBD: &str = "/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so";
const KEY: Canary = Canary { secret: "key of a Ceph cluster", text: "vR7nXe4LqKz2Wt9M" };

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::flexvolumes_are_disks_of_their_pods", deadline: DEADLINE, run: disks },
    Case { name: "vm::keys_of_ceph_are_libvirts_while_a_machine_starts", deadline: DEADLINE, run: ceph },
];

fn disks(bed: &Bed) -> Result<()> {
    let node = Node::configured(
        bed,
        "raw_devices = ['loop*']\nhandlers.virtlet.guest_agent = true\nflexvolumes.enabled = true",
    )?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let pod = node.pod("flexvolumes")?;
    let volumes = Flexvolumes::of(bed, &pod)?;
    let device = partitioned(bed)?;

    let init = volumes.call(&["init"])?;
    ensure!(init["status"] == "Success" && init["capabilities"]["attach"] == false, "{init}");
    ensure!(volumes.call(&["attach", "{}", "node1"])?["status"] == "Not supported");
    let raw = |part: &str| json!({"type": "raw", "path": device.node(), "part": part, "kubernetes.io/readwrite": "rw"});
    let of_new = volumes.mount("new", &json!({"type": "qcow2", "capacity": "256MiB"}), "/mnt/new")?;
    let of_raw = volumes.mount("raw", &raw("2"), "/mnt/raw")?;
    described(&volumes)?;

    let with = |mounts| ContainerConfig { mounts, ..cri::container(&image, [].into()) };
    let sandbox = node.cri.run_sandbox(&pod)?;
    for (options, said) in [
        (json!({"type": "raw", "path": "/dev/null"}), "it is no block device"),
        (json!({"type": "raw", "path": "/dev/not-there"}), "is not there on the node"),
        (raw("0"), "volume \"other\" is mounted 2 times"),
    ] {
        let mount = volumes.mount("other", &options, "/mnt/other")?;
        let again = proto::cri::Mount { container_path: "/mnt/again".into(), ..mount.clone() };
        let Err(error) = node.cri.create(&sandbox, &with(vec![mount, again]), &pod) else {
            bail!("not refused: {said}")
        };
        ensure!(error.message().contains(said), "{error}");
        volumes.unmount("other")?;
    }

    let mut container = with(vec![of_new, of_raw]);
    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    prints(bed, &vm, "grep ' /mnt/new ' /proc/mounts | cut -d' ' -f3", "ext4")?;
    prints(
        bed,
        &vm,
        "ls -A /mnt/new; cat /mnt/raw/word; cat /sys/block/vd?/serial",
        "lost+found\nof the device\nrootseednewraw",
    )?;
    prints(bed, &vm, "echo kept | tee /mnt/new/word /mnt/raw/kept >/dev/null; sync", "")?;
    let made = run(&mut command("/bin/bash", ["-c", "ls /var/lib/virtlet/volumes/*/flexvolumes/new/disk.img"]))?;
    let found = fs::metadata(made.trim())?;
    ensure!((found.len(), found.uid(), found.mode() & 0o777) == (256 * MIB, 0, 0o600), "{found:?}");
    ensure!(found.blocks() * 512 < 64 * MIB, "not sparse: {found:?}");
    node.cri.stop(&vm.container, SHUTDOWN)?;

    // As kubelet starts it again: in the same sandbox, with the pod's volumes.
    container.metadata.as_mut().context("no metadata")?.attempt += 1;
    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    prints(bed, &vm, "cat /mnt/new/word /mnt/raw/kept", "kept\nkept")?;
    ensure!(fs::metadata(made.trim())?.ino() == found.ino(), "another file");
    node.remove_vm(&vm, GRACE)?;
    ensure!(!Path::new(made.trim()).exists(), "the disk outlives its pod");
    for name in ["new", "raw"] {
        volumes.unmount(name)?;
        let again = volumes.call(&["unmount", &volumes.dir(name).display().to_string()])?;
        ensure!(again["status"] == "Success", "{again}");
    }
    Ok(())
}

/// A device with two partitions, of which the second has a file system.
fn partitioned(bed: &Bed) -> Result<LoopDevice> {
    let file = bed.dir.join("partitioned.img");
    let files = bed.dir.join("files");
    fs::create_dir_all(&files)?;
    fs::write(files.join("word"), "of the device\n")?;
    let (image, files) = (file.display(), files.display());
    let kib = (32 * MIB - SECOND) / 1024;
    // In the file, before it is a device: of a device mkfs discards all.
    let script = format!(
        "set -e; truncate -s 32M {image}; printf 'label: dos\\n2048 2048 L\\n4096 - L\\n' | sfdisk --quiet {image}\n\
         mkfs.ext4 -q -F -E offset={SECOND},root_owner=0:0 -d {files} {image} {kib}k"
    );
    run(&mut command("/bin/bash", ["-c", &script]))?;
    LoopDevice::new(&file, 32 * MIB)
}

/// What the driver keeps of a volume is in memory, root's alone, and nobody's to change.
fn described(volumes: &Flexvolumes) -> Result<()> {
    let dir = volumes.dir("new");
    let file = dir.join("virtlet-flexvolume.json");
    let kept: Value = serde_json::from_slice(&fs::read(&file)?)?;
    ensure!(kept == json!({"type": "qcow2", "capacity": "256MiB"}), "{kept}");
    let modes = [&dir, &file].map(|path| fs::metadata(path).map(|found| found.permissions().mode() & 0o777));
    ensure!(matches!(modes, [Ok(0o700), Ok(0o400)]), "{modes:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let of_dir: Vec<_> = mounts.lines().filter(|line| line.contains(&*dir.to_string_lossy())).collect();
    ensure!(of_dir.len() == 1 && of_dir[0].contains(" - tmpfs "), "{of_dir:?}");
    ensure!(fs::create_dir(dir.join("sub")).is_err(), "a directory was made in it");
    // Again is fine, and is one mount.
    volumes.mount("new", &kept, "/mnt/new")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(mounts.lines().filter(|line| line.contains(&*dir.to_string_lossy())).count() == 1, "{mounts}");
    for (path, options, said) in [
        (dir.as_path(), r#"{"type": "nfs"}"#, "option `type`"),
        (Path::new("/etc"), r#"{"type": "qcow2"}"#, "is no directory"),
    ] {
        let answer = volumes.call(&["mount", &path.display().to_string(), options])?;
        ensure!(answer["message"].as_str().is_some_and(|message| message.contains(said)), "{answer}");
    }
    Ok(())
}

/// Seconds of a start that hangs. What asks libvirt for the same machine meanwhile waits for 30 s, and fails then.
const BEFORE_LIBVIRT: u64 = 25;

fn ceph(bed: &Bed) -> Result<()> {
    let mut node =
        Node::configured(bed, &format!("flexvolumes.enabled = true\nmachine.start_deadline_s = {BEFORE_LIBVIRT}"))?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pod = node.pod("ceph")?;
    let volumes = Flexvolumes::of(bed, &pod)?;
    // Of a net for documents, where nobody answers.
    let options = json!({
        "type": "ceph", "monitor": "192.0.2.1:6789,[2001:db8::1]:3300", "pool": "rbd", "volume": "web", "user": "admin",
        "kubernetes.io/secret/secret": STANDARD.encode(key()),
    });
    let mount = volumes.mount("data", &options, "/mnt/data")?;
    let mut container = ContainerConfig { mounts: vec![mount], ..cri::container(&image, [].into()) };
    let sandbox = node.cri.run_sandbox(&pod)?;
    let mut search = Search::new(&[KEY]);

    // As on a node without the package of QEMU's driver.
    sh(&format!("mount --bind /dev/null {RBD}"))?;
    let error = fails(&node, &sandbox, &container, &pod)?;
    ensure!(error.message().contains("`qemu-block-extra`"), "{error}");
    sh(&format!("umount {RBD}"))?;
    ensure!(!has_secret()?, "{}", virsh("secret-list")?);

    container.metadata.as_mut().context("no metadata")?.attempt += 1;
    let id = node.cri.create(&sandbox, &container, &pod)?;
    let error = std::thread::scope(|scope| {
        let start = scope.spawn(|| node.cri.start(&id));
        wait_until("key at libvirt", GRACE, || has_secret().unwrap_or_default())?;
        let secret = virsh("secret-list")?;
        let uuid = secret
            .lines()
            .find(|line| line.contains("virtlet-rs:"))
            .and_then(|line| line.split_whitespace().next())
            .context("no secret")?;
        let xml = virsh(&format!("secret-dumpxml {uuid}"))?;
        ensure!(xml.contains("ephemeral='yes' private='yes'"), "{xml}");
        ensure!(virsh(&format!("secret-get-value {uuid}")).is_err(), "libvirt tells the key");
        wait_until("QEMU", GRACE, || running_domains().is_ok_and(|all| !all.is_empty()))?;
        // However long the look takes, nobody ends the start meanwhile.
        let held = node.controld.hold()?;
        look(bed, &mut search)?;
        drop(held);
        start.join().ok().context("panicked")?.err().context("it starts without a cluster")
    })?;
    ensure!(error.code() == Code::DeadlineExceeded, "{error}");
    let said = "`rbd/web` of 192.0.2.1:6789, [2001:db8::1]:3300";
    ensure!(error.message().contains(said), "{error}");
    ensure!(!has_secret()?, "{}", virsh("secret-list")?);
    search.said("the error of the start", &format!("{error:?}"));

    // A key of somebody else's, whom controld leaves alone.
    let other = bed.dir.join("other.xml");
    fs::write(&other, "<secret ephemeral='yes'><usage type='ceph'><name>other</name></usage></secret>")?;
    virsh(&format!("secret-define {}", other.display()))?;
    container.metadata.as_mut().context("no metadata")?.attempt += 1;
    let id = node.cri.create(&sandbox, &container, &pod)?;
    let Node { cri, controld, .. } = &mut node;
    std::thread::scope(|scope| {
        let start = scope.spawn(|| cri.start(&id));
        wait_until("key at libvirt", GRACE, || has_secret().unwrap_or_default())?;
        controld.kill9()?;
        drop(start.join());
        ensure!(has_secret()?, "who has taken it?");
        Ok(())
    })?;
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_until("end of the key", GRACE, || has_secret().is_ok_and(|has| !has))?;
    ensure!(virsh("secret-list")?.contains("other"), "somebody else's key is gone");
    node.cri.stop(&id, Duration::ZERO)?;
    node.cri.remove_sandbox(&sandbox)?;
    ensure!(running_domains()?.is_empty(), "{:?}", running_domains()?);
    look(bed, &mut search)?;
    ensure!(search.found().is_empty(), "the key is where it must not be: {:#?}", search.found());
    volumes.unmount("data")
}

/// A key as Ceph encodes it: its kind (AES), when it was made, and its length before it.
fn key() -> String {
    let before = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0];
    STANDARD.encode([&before, KEY.text.as_bytes()].concat())
}

fn fails(node: &Node, sandbox: &str, container: &ContainerConfig, pod: &PodSandboxConfig) -> Result<Status> {
    let id = node.cri.create(sandbox, container, pod)?;
    node.cri.start(&id).err().context("it starts")
}

/// Whether libvirt has a key of ours.
fn has_secret() -> Result<bool> {
    Ok(virsh("secret-list")?.contains("virtlet-rs:"))
}

/// Everywhere but in kubelet's directory, where the driver has it in memory. libvirt itself is not asked for what the machine is: it would answer
/// once the start is over. Its files have that.
fn look(bed: &Bed, search: &mut Search) -> Result<()> {
    search.processes()?;
    let journal = finish(&mut command(bed.program("controld"), ["check-config"]), TOOL_DEADLINE)?;
    search.said("controld check-config", &format!("{journal:?}"));
    let dirs = ["/var/lib/virtlet", "/run/virtlet", "/run/libvirt", "/etc/libvirt", "/var/log", "/var/lib/libvirt"];
    let logs = [bed.logs(), bed.dir.join("podlogs")];
    dirs.map(Path::new).into_iter().chain(logs.iter().map(AsRef::as_ref)).try_for_each(|dir| search.files(dir))
}
