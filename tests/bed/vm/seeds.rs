//! What guests read of their pods at boot: sources of it, kinds of it, and what is made for a pod.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, ContainerState, Device, KeyValue, LinuxContainerResources, Mount, PodSandboxConfig};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish, sh};
use tests::cri;
use tests::data_image::data_image;
use tests::image_server::Fault;
use tests::kubelet_volumes::PodVolumes;
use tests::libvirt::{running_domains, virsh};
use tests::loop_device::LoopDevice;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node, SHUTDOWN, Vm};
use tests::wait::{wait_for, wait_guest};
use tonic::{Code, Status};

use super::image_volumes;
use super::volumes::{OWNER, noexec, program, token};

/// Half a minute alone, and ten times that on a machine that is busy with others; cloud-init goes on for as long again.
const CLOUD_DEADLINE: Duration = Duration::from_secs(600);
const SEEDS: &str = "/run/virtlet/seed";
/// Where kubelet mounts the service account's token. A guest of a distribution has a link in that path, and the token by virtiofs alone.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUm";

/// Of a guest's script: a mount and a link as another start has left them, and what there is of both.
const TWICE: &str = "ln -sfn /dev/elsewhere /dev/testpvc";
const DISKS: &str = "echo $(grep -c ' /scratch ext4 rw' /proc/mounts) scratch, $(cat /scratch/word 2>/dev/null || echo for nobody)\n\
                     echo disk $(head -n 1 /dev/testpvc)";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_seed_is_made_of_volumes_at_each_start", deadline: Duration::from_secs(480), run: sources },
    Case { name: "vm::what_a_seed_cannot_be_made_of_is_refused", deadline: Duration::from_secs(480), run: refused },
    Case {
        name: "vm::a_seed_that_finds_no_room_fails_its_start_alone",
        deadline: Duration::from_secs(480),
        run: no_room,
    },
    Case {
        name: "vm::cloud_init_writes_and_mounts_what_a_pod_has",
        deadline: Duration::from_secs(2000),
        run: cloud_init,
    },
    Case {
        name: "vm::the_firmware_shows_a_guest_without_cloud_init_its_keys",
        deadline: Duration::from_secs(900),
        run: firmware,
    },
];

fn annotations(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn nothing_is_left() -> Result<()> {
    let left: Vec<_> = fs::read_dir(SEEDS)?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    ensure!(left.is_empty(), "left on the node: {left:?}");
    Ok(())
}

/// The next attempt of the pod's container, with these annotations.
pub(super) fn again(node: &Node, vm: &Vm, container: &ContainerConfig, attempt: u32) -> Result<Vm> {
    node.cri.stop(&vm.container, SHUTDOWN)?;
    let mut container = container.clone();
    container.metadata.get_or_insert_default().attempt = attempt;
    container.log_path = format!("vm_{attempt}.log");
    let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..vm.pod.clone() };
    let id = node.cri.create(&vm.sandbox, &container, &pod).context("CreateContainer")?;
    node.cri.start(&id).context("StartContainer")?;
    let log = vm.log.with_file_name(&container.log_path);
    Ok(Vm { machine: node.cri.machine(&id)?, container: id, log, pod, ..vm.clone() })
}

/// Names of 20 characters, as many as a serial number may have, of 21 and of 40.
pub(super) const LONG: [&str; 3] =
    ["volume-of-20-letters", "volume-of-21-letters_", "volume-whose-name-has-40-characters-in-i"];

/// A block volume that begins with a line, as a device of a container.
fn block_volume(bed: &Bed) -> Result<(LoopDevice, Device)> {
    named_volume(bed, "testpvc", "of a block volume")
}

/// The same, of this name.
pub(super) fn named_volume(bed: &Bed, name: &str, line: &str) -> Result<(LoopDevice, Device)> {
    let open = LoopDevice::new(&bed.dir.join(format!("{name}.img")), 1 << 20)?;
    open.write(format!("{line}\n").as_bytes(), 0)?;
    let device = Device {
        container_path: format!("/dev/{name}"),
        host_path: open.node().display().to_string(),
        permissions: "mrw".into(),
    };
    Ok((open, device))
}

/// The tiny guest: by either kind of disk and either bus, with a script that mounts disks and the share itself.
fn sources(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let volumes = PodVolumes::new(&bed.dir, "told");
    let script = |said: &str| {
        format!(
            "#!/bin/sh\nexec >/dev/console 2>&1\necho said {said}\n@virtlet-mount-script@\n{TWICE}\n@virtlet-mount-script@\n{DISKS}\n\
             echo for {said} >/scratch/word; sync\necho below: $(cat /scratch/below/file)\n\
             grep ' virtiofs ' /proc/mounts | grep -v nosuid,nodev || echo harmless\ncat /data/file /etc/one.conf\necho x >/data/new || echo read only\n\
             echo programs: $(/data/program || echo none) $(/scratch/below/program)\n\
             echo 1 >/proc/sys/fs/protected_symlinks; echo token $(cat /var/token/token 2>&1)\n"
        )
    };
    let (_open, volume) = block_volume(bed)?;
    fs::create_dir_all(volumes.path("empty-dir", "scratch"))?;
    let data = volumes.path("empty-dir", "data");
    fs::create_dir_all(&data)?;
    fs::write(data.join("file"), "of a directory\n")?;
    program(&data)?;
    fs::write(bed.dir.join("one"), "of a file\n")?;
    let one = Mount {
        container_path: "/etc/one.conf".into(),
        host_path: bed.dir.join("one").display().to_string(),
        ..Default::default()
    };
    let read_only = noexec(Mount { readonly: true, ..volumes.mount("empty-dir", "data", "/data") });
    let mut container = cri::container(
        &node.pull(bed, "tiny.qcow2")?,
        annotations(&[
            ("VirtletCloudInitUserDataSource", "volume/told"),
            ("VirtletCloudInitUserDataSourceKey", "script"),
            ("VirtletSSHKeySource", "volume/told/keys"),
            ("virtlet.cloud/shared-fs", "virtiofs"),
            ("virtlet.cloud/emptydir-disks", "scratch=32Mi"),
        ]),
    );
    container.devices = vec![volume];
    let told = |said: &str| {
        let files = [("script", script(said)), ("keys", format!("{KEY} of-{said}\n"))];
        let files = files.each_ref().map(|(key, text)| (*key, text.as_str()));
        volumes.fill("secret", "told", &files, "/run/virtlet/seed/told")
    };
    let scratch = volumes.mount("empty-dir", "scratch", "/scratch");
    let below = volumes.mount("empty-dir", "data", "/scratch/below");
    container.mounts = vec![told("created")?, below, read_only, one, scratch, token(&volumes, "/var/token")?];
    let pod = node.pod("told")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let with = PodSandboxConfig { annotations: container.annotations.clone(), ..pod.clone() };
    let id = node.cri.create(&sandbox, &container, &with)?;
    // What counts is what the volume has when the machine starts.
    told("started")?;
    node.cri.start(&id)?;
    let network = node.cri.sandbox(&sandbox)?.network.context("no network")?;
    let log = Path::new(&pod.log_directory).join(&container.log_path);
    let vm = Vm { machine: node.cri.machine(&id)?, sandbox, container: id, ip: network.ip.parse()?, log, pod };
    let lines = [
        "said started",
        "1 scratch, for nobody",
        "disk of a block volume",
        "below: of a directory",
        "harmless",
        "of a file",
        "read only",
        "programs: none ran",
        "token of the pod",
    ];
    for line in lines.into_iter().chain(["user-data script exit 0"]) {
        vm.wait_log(line, BOOT_DEADLINE).with_context(|| vm.log_text().unwrap_or_default())?;
    }
    nothing_is_left()?;
    ensure!(!data.join("new").exists() && !vm.log_text()?.contains("said created"));

    // The other kind of disk on another bus, and another instance, or the script would not be run.
    told("again")?;
    container.annotations.extend(annotations(&[
        ("VirtletCloudInitImageType", "configdrive"),
        ("VirtletDiskDriver", "scsi"),
        ("VirtletCloudInitMetaData", "instance-id: another"),
        ("VirtletRootVolumeSize", "1Gi"),
    ]));
    let vm = again(&node, &vm, &container, 1)?;
    wait_for("larger root disk", BOOT_DEADLINE, || {
        let said = virsh(&format!("domblkinfo {} sda", running_domains()?.concat()))?;
        let capacity = said.lines().find_map(|line| line.strip_prefix("Capacity:"));
        Ok((capacity.map(str::trim) == Some("1073741824")).then_some(()))
    })?;
    let lines =
        ["seed configdrive", "said again", "1 scratch, for started", "below: of a directory", "disk of a block volume"];
    for line in lines.into_iter().chain(["user-data script exit 0"]) {
        vm.wait_log(line, BOOT_DEADLINE).with_context(|| vm.log_text().unwrap_or_default())?;
    }
    nothing_is_left()?;
    node.remove_vm(&vm, SHUTDOWN)
}

fn refused(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let volumes = PodVolumes::new(&bed.dir, "refused");
    let image = node.pull(bed, "tiny.qcow2")?;
    let sandbox = node.cri.run_sandbox(&node.pod("refused")?)?;
    let source = ("VirtletCloudInitUserDataSource", "volume/v");
    let large = "#".repeat((2 << 20) + 1);
    for (files, pairs, why) in [
        (None, &[source][..], "no volume \"v\" is mounted in this container"),
        (
            Some(("a", "x")),
            &[source, ("VirtletCloudInitUserDataSourceKey", "b")],
            "key \"b\" not in volume/v; it has a",
        ),
        (Some(("a", "x: [")), &[source], "not valid YAML: line 1"),
        (Some(("a", &large)), &[source], "longer than 2097152 bytes"),
        (Some(("a", "x")), &[("VirtletFilesFromDataSource", "volume/v")], "key a has no a_path"),
        (
            Some(("authorized_keys", KEY)),
            &[("VirtletSSHKeySource", "volume/v"), ("VirtletCloudInitImageType", "none")],
            "needs cloud-init: SSH keys",
        ),
    ] {
        let _ = fs::remove_dir_all(volumes.path("configmap", "v"));
        let mut container = cri::container(&image, annotations(pairs));
        if let Some(file) = files {
            container.mounts = vec![volumes.fill("configmap", "v", &[file], "/run/virtlet/seed/v")?];
        }
        let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..node.pod("refused")? };
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { anyhow::bail!("not refused: {why}") };
        ensure!(error.code() == Code::InvalidArgument && error.message().contains(why), "{error}, not {why}");
    }
    let refusal = |pairs: &[(&str, &str)], mounts: Vec<Mount>| -> Result<Status> {
        let container = ContainerConfig { mounts, ..cri::container(&image, annotations(pairs)) };
        let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..node.pod("refused")? };
        node.cri.create(&sandbox, &container, &pod).err().context("not refused")
    };
    let error = refusal(&[("VirtletSSHKeySource", "secret/v")], Vec::new())?;
    ensure!(error.code() == Code::PermissionDenied && error.message().contains("API sources are off"), "{error}");
    // Each file, and all of them, are short enough for a volume.
    let content = "#".repeat((1 << 20) - 1);
    let files: Vec<_> = (0..13)
        .flat_map(|n| {
            let file = [("", content.clone()), ("_path", format!("/srv/{n}")), ("_encoding", "plain".to_owned())];
            file.map(|(what, text)| (format!("f{n}{what}"), text))
        })
        .collect();
    let files: Vec<_> = files.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    let mounts = vec![volumes.fill("configmap", "large", &files, "/run/virtlet/seed/large")?];
    let error = refusal(&[("VirtletFilesFromDataSource", "volume/large")], mounts)?;
    let said = error.message().contains("cloud-init seed is 17.4 MiB, limit 16 MiB; use a volume");
    ensure!(error.code() == Code::InvalidArgument && said, "{error}");
    nothing_is_left()?;
    node.cri.remove_sandbox(&sandbox)?;
    Ok(())
}

/// No room for the seed: the start fails and leaves nothing, and another one goes well when there is room again.
fn no_room(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let container = cri::container(&node.pull(bed, "tiny.qcow2")?, annotations(&[("VirtletSSHKeys", KEY)]));
    let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..node.pod("full")? };
    let sandbox = node.cri.run_sandbox(&pod)?;
    let id = node.cri.create(&sandbox, &container, &pod)?;
    sh(&format!("mount -t tmpfs -o size=64k full {SEEDS}"))?;
    let error = node.cri.start(&id).err().context("a seed without room for it")?;
    ensure!(error.code() == Code::ResourceExhausted && error.message().contains("seed not written"), "{error}");
    nothing_is_left()?;
    ensure!(running_domains()?.is_empty(), "a machine without its seed");
    sh(&format!("umount {SEEDS}"))?;
    let mut next = container;
    next.metadata.get_or_insert_default().attempt = 1;
    let vm = node.start_in(&sandbox, &next, &pod)?;
    vm.wait_up()?;
    node.remove_vm(&vm, SHUTDOWN)
}

/// Runs a line of a shell in the guest, by QEMU's agent.
fn exec(bed: &Bed, vm: &Vm, line: &str) -> Result<Ended> {
    let words = ["--socket", CRI_SOCKET, "exec", &vm.container, "--", "sh", "-c", line];
    // It waits for an agent while the guest boots.
    finish(&mut command(bed.program("virtletctl"), words), CLOUD_DEADLINE)
}

/// Fails with all lines that print something else.
fn prints(bed: &Bed, vm: &Vm, all: &[(&str, &str)]) -> Result<()> {
    let mut wrong = Vec::new();
    for (line, stdout) in all {
        let ended = exec(bed, vm, line)?;
        if ended.stdout.trim_end() != stdout.trim_end() {
            wrong.push(format!("{line}: `{}` `{}`, not `{stdout}`", ended.stdout, ended.stderr));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{}\n{}",
        wrong.join("\n"),
        exec(bed, vm, "grep -i warn /var/log/cloud-init.log; cat /etc/fstab; journalctl -b -p notice -o short-monotonic | tail -n 60")?.stdout
    );
    Ok(())
}

/// Emulating it costs Debian's boot a sixth less than all that TCG has.
pub(super) const QUICK_CPU: [&str; 2] = ["VirtletCPUModel", "Nehalem"];

/// The cloud image, as it takes little of a busy machine.
fn cloud(bed: &Bed, node: &Node, pairs: &[(&str, &str)]) -> Result<ContainerConfig> {
    let pairs = [pairs, &[QUICK_CPU.into()]].concat();
    let mut container = cri::container(&node.pull(bed, "debian.qcow2")?, annotations(&pairs));
    let memory = LinuxContainerResources { memory_limit_in_bytes: 768 << 20, ..Default::default() };
    container.linux.get_or_insert_default().resources = Some(memory);
    Ok(container)
}

/// Its files are looked at: to ask itself starts Python in a guest that is emulated, which then boots all the slower.
fn wait_cloud_init(bed: &Bed, vm: &Vm) -> Result<()> {
    wait_guest("cloud-init's result", CLOUD_DEADLINE, || {
        Ok((exec(bed, vm, "ls /run/cloud-init/result.json")?.code == Some(0)).then_some(()))
    })
    .with_context(|| vm.log_text().unwrap_or_default())?;
    let said = exec(bed, vm, "cat /run/cloud-init/result.json")?.stdout;
    let result: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    ensure!(result["v1"]["errors"] == json!([]), "cloud-init has failed: {said}");
    // What is `nofail` may come after all else of a boot.
    wait_guest("end of the guest's boot", CLOUD_DEADLINE, || {
        let state = exec(bed, vm, "systemctl is-system-running")?.stdout;
        Ok(["running", "degraded"].contains(&state.trim_end()).then_some(()))
    })
}

/// A guest without our agent, with all that there is.
fn cloud_init(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let volumes = PodVolumes::new(&bed.dir, "whole");
    let users = "#cloud-config\r\n# kept as it is\r\nruncmd:\r\n- [touch, /run/of-the-user]\r\n";
    let mut container = cloud(
        bed,
        &node,
        &[
            ("VirtletCloudInitUserDataSource", "volume/told"),
            ("VirtletCloudInitUserDataSourceKey", "user-data"),
            ("VirtletSSHKeySource", "volume/told/keys"),
            ("VirtletFilesFromDataSource", "volume/files"),
            ("virtlet.cloud/shared-fs", "virtiofs"),
            ("virtlet.cloud/config-delivery", "seed"),
            ("virtlet.cloud/emptydir-disks", "scratch=32Mi"),
            ("VirtletDiskDriver", "scsi"),
        ],
    )?;
    let of_image = |name: &str, partitioned: bool| {
        let file = data_image(&bed.dir, name, name, partitioned)?;
        let offered = node.images.offer(&format!("{name}.qcow2"), &file, Fault::None);
        Ok::<_, anyhow::Error>(node.cri.pull(&offered)?)
    };
    let (_open, volume) = block_volume(bed)?;
    let long: Vec<_> = LONG.iter().map(|name| named_volume(bed, name, name)).collect::<Result<_>>()?;
    let (_open_too, long): (Vec<_>, Vec<_>) = long.into_iter().unzip();
    container.devices = [vec![volume], long].concat();
    fs::create_dir_all(volumes.path("empty-dir", "scratch"))?;
    let env = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
    container.envs = vec![env("KUBERNETES_SERVICE_HOST", "10.96.0.1"), env("QUOTED", "a \"b\" $c `d` \\")];
    let data = volumes.path("empty-dir", "data");
    fs::create_dir_all(data.join("inner"))?;
    fs::write(data.join("file"), "of a directory")?;
    program(&data)?;
    program(&data.join("inner"))?;
    let below = volumes.mount("empty-dir", "below", "/scratch/below");
    fs::create_dir_all(&below.host_path)?;
    fs::write(Path::new(&below.host_path).join("file"), "below a disk")?;
    program(Path::new(&below.host_path))?;
    fs::write(bed.dir.join("one"), "of a file")?;
    let one = Mount {
        container_path: "/etc/one.conf".into(),
        host_path: bed.dir.join("one").display().to_string(),
        readonly: true,
        ..Default::default()
    };
    let inner = Mount {
        host_path: data.join("inner").display().to_string(),
        readonly: true,
        ..volumes.mount("empty-dir", "data", "/data/inner")
    };
    container.mounts = vec![
        volumes.fill(
            "secret",
            "told",
            &[("user-data", users), ("keys", &format!("{KEY} me\n"))],
            "/run/virtlet/seed/told",
        )?,
        volumes.fill("configmap", "files", &[("f", "aGVsbG8="), ("f_path", "/srv/f")], "/run/virtlet/seed/files")?,
        volumes.fill("configmap", "site", &[("key", "of a ConfigMap")], "/etc/site")?,
        // Both below a disk that is empty, which the first one is written to.
        volumes.fill("configmap", "copied", &[("key", "late")], "/scratch/copied")?,
        below,
        noexec(inner),
        volumes.mount("empty-dir", "data", "/data"),
        noexec(volumes.mount("empty-dir", "scratch", "/scratch")),
        noexec(one),
        noexec(image_volumes::mount(&of_image("models", false)?, "/srv/models")),
        image_volumes::mount(&of_image("parted", true)?, "/srv/parted"),
        token(&volumes, TOKEN)?,
    ];
    let vm = node.start_pod(node.pod("whole")?, &container)?;
    wait_cloud_init(bed, &vm)?;
    nothing_is_left()?;
    let environment = "KUBERNETES_SERVICE_HOST=10.96.0.1\nQUOTED=\"a \\\"b\\\" \\$c \\`d\\` \\\\\"";
    let programs = "cp /data/program /scratch/program; \
                    for dir in /data /data/inner /scratch/below /scratch /run/virtlet/share/2; do $dir/program 2>/dev/null || echo no; done";
    // The distribution has protected links; whoever asks here is root, or is none of the guest's users.
    let by_each = format!(
        "cat /proc/sys/fs/protected_symlinks; stat -c %u {TOKEN}/token; cat {TOKEN}/token; \
         for user in {OWNER} 4321; do setpriv --reuid $user --clear-groups cat {TOKEN}/token; done"
    );
    let token_of_each = format!("1\n{OWNER}\nof the pod\nof the pod\nof the pod");
    let made = [
        (&*by_each, &*token_of_each),
        ("cat /etc/cloud/environment", environment),
        (". /etc/cloud/environment; printf %s \"$QUOTED\"", "a \"b\" $c `d` \\"),
        ("stat -c '%a %U' /etc/cloud/environment", "600 root"),
        ("cat /etc/site/key; ls -A /etc/site", "of a ConfigMapkey"),
        ("stat -c '%a %U' /etc/site/key /srv/f", "644 root\n644 root"),
        ("cat /srv/f", "hello"),
        ("cat /data/file", "of a directory"),
        ("cat /etc/one.conf", "of a file"),
        ("cat /scratch/below/file; findmnt -no FSTYPE /scratch/below", "below a diskvirtiofs"),
        ("cat /scratch/copied/key; findmnt -no FSTYPE -T /scratch/copied/key", "lateext4"),
        ("echo x >/data/inner/new || echo refused", "refused"),
        ("cat /srv/models/word /srv/parted/word", "models\nparted"),
        ("echo x >/srv/models/new || echo refused", "refused"),
        ("ls /run/virtlet", "share"),
        // By the table, the script, and past both.
        (programs, "ran\nno\nran\nno\nno"),
        (
            "for at in /etc/one.conf /srv/models /srv/parted; do findmnt -no OPTIONS $at | grep -c noexec; done",
            "1\n1\n0",
        ),
        ("findmnt -no FSTYPE /scratch; grep -c HARDDISK_scratch /etc/fstab", "ext4\n1"),
        (
            "readlink /dev/testpvc; head -n 1 /dev/testpvc",
            "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_testpvc\nof a block volume",
        ),
        ("ip -o -4 addr show eth0 | grep -c dynamic", "1"),
        ("ip -o -6 addr show eth0 scope global | grep -c ' fd00:77:'", "1"),
    ];
    prints(bed, &vm, &made)?;
    for name in LONG {
        let line = format!("readlink /dev/{name} | cut -d_ -f-3; head -n 1 /dev/{name}");
        prints(bed, &vm, &[(&line, &format!("/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK\n{name}"))])?;
    }
    prints(
        bed,
        &vm,
        &[
            ("cat /run/cloud-init/cloud-id", "nocloud"),
            ("ls /run/of-the-user", "/run/of-the-user"),
            ("grep ' virtiofs ' /proc/mounts | grep -v nosuid,nodev", ""),
            ("base64 -w0 /var/lib/cloud/instance/user-data.txt", &base64(users)),
            ("tail -n1 /home/debian/.ssh/authorized_keys", &format!("{KEY} me")),
            (
                "touch /data/of-the-guest; findmnt -no FSTYPE,OPTIONS /data/inner | grep -o 'virtiofs *ro,nosuid,nodev'",
                "virtiofs ro,nosuid,nodev",
            ),
        ],
    )?;
    ensure!(data.join("of-the-guest").exists(), "the guest's file is not on the node");
    // Its own reboot reads a seed that is on the node no more, and mounts all again.
    exec(bed, &vm, "rm -f /run/of-the-user; touch /run/before; systemctl reboot")?;
    wait_for("another boot", CLOUD_DEADLINE, || Ok((exec(bed, &vm, "ls /run/before")?.code == Some(2)).then_some(())))?;
    wait_cloud_init(bed, &vm)?;
    prints(bed, &vm, &made)?;
    prints(
        bed,
        &vm,
        &[("cat /run/cloud-init/cloud-id", "nocloud"), ("ls /run/of-the-user 2>/dev/null || echo once", "once")],
    )?;

    // Its kernel has a driver for the panic device. The line answers before the guest is gone.
    exec(bed, &vm, "(sleep 1; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &")?;
    node.wait_state(&vm, ContainerState::ContainerExited, CLOUD_DEADLINE)?;
    let status = node.cri.container(&vm.container)?;
    ensure!((status.exit_code, &*status.reason) == (134, "GuestPanicked"), "{status:?}");
    ensure!(status.message.contains("Kernel panic - not syncing: sysrq triggered crash"), "{status:?}");
    ensure!(status.message.len() < 1200, "{} bytes", status.message.len());
    node.remove_vm(&vm, SHUTDOWN)
}

/// Keys of root's and Ignition's configuration, by a guest that has no disk for cloud-init.
fn firmware(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet.credentials = true")?;
    let config = r#"{"ignition": {"version": "3.4.0"}}"#;
    let container = cloud(
        bed,
        &node,
        &[
            ("VirtletCloudInitImageType", "ignition"),
            ("VirtletCloudInitUserData", config),
            ("VirtletSSHKeys", &format!("{KEY} me")),
        ],
    )?;
    let vm = node.start_pod(node.pod("firm")?, &container)?;
    nothing_is_left()?;
    let shown = finish(&mut command("sh", ["-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]), TOOL_DEADLINE)?;
    let arguments = shown.stdout;
    ensure!(arguments.contains("opt/com.coreos/config") && !arguments.contains("AAAAC3"), "keys in arguments");
    wait_for("the guest", CLOUD_DEADLINE, || Ok((exec(bed, &vm, "true")?.code == Some(0)).then_some(())))
        .with_context(|| vm.log_text().unwrap_or_default())?;
    let shown = "/sys/firmware/qemu_fw_cfg/by_name/opt";
    prints(
        bed,
        &vm,
        &[
            (&format!("modprobe qemu_fw_cfg; cat {shown}/com.coreos/config/raw"), config),
            ("cat /run/credentials/@system/ssh.authorized_keys.root", &format!("{KEY} me")),
            ("cat /root/.ssh/authorized_keys", &format!("{KEY} me")),
            ("lsblk -no LABEL | grep -ciE 'cidata|config-2'", "0"),
        ],
    )?;
    node.remove_vm(&vm, SHUTDOWN)
}

pub(super) fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
