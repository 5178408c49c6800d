//! Volumes of pods in guests, by virtiofs and our agent.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{ContainerConfig, ContainerState, Mount, MountPropagation};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::image_server::Fault;
use tests::kubelet_volumes::PodVolumes;
use tests::libvirt::virtiofsds;
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tests::wait::{wait_for, wait_until};
use tests::world::World;

use super::shell::{answers, exec, prints};

const POD: &str = "volumes";
const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
/// Until the guest sees what has changed on the node: its kernel trusts what it knows for a second.
const SEEN: Duration = Duration::from_secs(20);
/// A user of the guest and of the node: numbers are the same on both sides.
pub(super) const OWNER: u32 = 1234;

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::volumes_are_seen_in_the_guest_as_the_pod_says", deadline: DEADLINE, run: seen },
    Case { name: "vm::volumes_outlive_a_killed_controld_and_end_with_virtiofsd", deadline: DEADLINE, run: ends },
    Case { name: "vm::volumes_that_no_guest_can_see_are_refused", deadline: DEADLINE, run: refused },
];

/// Mounts of one pod, beside others.
const MANY: usize = 32;

/// Directories and files of the node, as kubelet makes them.
struct Volumes {
    dir: PathBuf,
}

impl Volumes {
    fn new(bed: &Bed) -> Result<Self> {
        let volumes = Self { dir: bed.dir.join("volumes") };
        // A ConfigMap: names are links to a directory that is replaced as a whole.
        for (version, text) in [("..1", "first"), ("..2", "second")] {
            fs::create_dir_all(volumes.dir.join("config").join(version))?;
            fs::write(volumes.dir.join("config").join(version).join("key"), text)?;
        }
        symlink("..1", volumes.dir.join("config/..data"))?;
        symlink("..data/key", volumes.dir.join("config/key"))?;
        for name in ["data", "late/mounted", "tree/below"] {
            fs::create_dir_all(volumes.dir.join(name))?;
        }
        fs::write(volumes.dir.join("secret"), "of the pod's")?;
        fs::set_permissions(volumes.dir.join("secret"), fs::Permissions::from_mode(0o600))?;
        chown(volumes.dir.join("secret"), Some(OWNER), Some(OWNER))?;
        symlink("data", volumes.dir.join("link"))?;
        // As all of a node that systemd runs. In a case's own view nothing is shared.
        let late = volumes.dir.join("late").display().to_string();
        sh(&format!("mount --bind {late} {late}"))?;
        sh(&format!("mount --make-shared {late}"))?;
        let below = volumes.dir.join("tree/below");
        sh(&format!("mount -t tmpfs below {}", below.display()))?;
        program(&below)?;
        program(&volumes.dir.join("data"))?;
        Ok(volumes)
    }

    fn mount(&self, name: &str, path: &str, readonly: bool) -> Mount {
        let host_path = self.dir.join(name).display().to_string();
        Mount { container_path: path.into(), host_path, readonly, ..Mount::default() }
    }

    fn all(&self) -> Vec<Mount> {
        let follows = MountPropagation::PropagationHostToContainer.into();
        [
            self.mount("config", "/etc/app", true),
            self.mount("data", "/data", false),
            self.mount("secret", "/etc/app-secret", true),
            self.mount("link", "/data/inner", true),
            Mount { propagation: follows, ..self.mount("late", "/late", false) },
            self.mount("tree", "/tree", true),
            Mount { recursive_read_only: true, ..self.mount("tree", "/whole-tree", true) },
        ]
        .into_iter()
        .chain((0..MANY).map(|n| self.mount("config", &format!("/many/{n}"), true)))
        .chain([("data", "/held"), ("tree", "/held-tree")].map(|(name, path)| noexec(self.mount(name, path, false))))
        .collect()
    }
}

/// A program that tells that it runs.
pub(super) fn program(dir: &Path) -> Result<()> {
    let program = dir.join("program");
    fs::write(&program, "#!/bin/sh\necho ran\n")?;
    Ok(fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?)
}

/// The mount, on which no program starts.
pub(super) fn noexec(mount: Mount) -> Mount {
    Mount { mount_options: vec!["noexec".into()], ..mount }
}

/// As kubelet makes it in memory for a pod that has a user: since Kubernetes 1.36 the links are that user's, too.
pub(super) fn token(volumes: &PodVolumes, path: &str) -> Result<Mount> {
    let mount = volumes.fill("projected", "token", &[("token", "of the pod\n")], path)?;
    let dir = volumes.path("projected", "token");
    lchown(dir.join("token"), Some(OWNER), Some(OWNER))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o1777))?;
    Ok(mount)
}

fn container(bed: &Bed, node: &Node, mounts: Vec<Mount>) -> Result<ContainerConfig> {
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    Ok(ContainerConfig { mounts, ..cri::container(&image, [].into()) })
}

fn start(bed: &Bed) -> Result<Node> {
    // `handlers` alone says that images have the agent; seeds carry it for others.
    Node::configured(bed, "handlers.virtlet.guest_agent = true")
}

fn is_refused(bed: &Bed, vm: &Vm, line: &str, why: &str) -> Result<()> {
    let ended = exec(bed, vm, line)?;
    ensure!(ended.code != Some(0) && ended.stderr.contains(why), "{line}: {ended:?}");
    Ok(())
}

fn boots(bed: &Bed, node: &Node, mounts: Vec<Mount>) -> Result<Vm> {
    answers(bed, node.start_pod(node.pod(POD)?, &container(bed, node, mounts)?)?)
}

fn seen(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let volumes = Volumes::new(bed)?;
    let mounts = [volumes.all(), vec![token(&PodVolumes::new(&bed.dir, POD), "/var/token")?]].concat();
    let before = World::look()?;
    let vm = boots(bed, &node, mounts)?;

    prints(bed, &vm, "cat /etc/app/key", "first")?;
    // As distributions set it. Whoever asks here is root.
    prints(
        bed,
        &vm,
        "echo 1 >/proc/sys/fs/protected_symlinks; cat /var/token/token; stat -c %a /var/token",
        "of the pod\n777",
    )?;
    is_refused(bed, &vm, "echo x >/etc/app/new", "Read-only file system")?;
    prints(
        bed,
        &vm,
        "stat -c '%u %g %a' /etc/app-secret; cat /etc/app-secret",
        &format!("{OWNER} {OWNER} 600\nof the pod's"),
    )?;
    is_refused(bed, &vm, "echo x >/etc/app-secret", "Read-only file system")?;
    // As many as a pod of a chart of many may have.
    let all = (0..MANY).map(|n| format!("[ -e /many/{n}/key ] && echo {n}")).collect::<Vec<_>>().join("; ");
    prints(bed, &vm, &all, &(0..MANY).map(|n| n.to_string()).collect::<Vec<_>>().join("\n"))?;
    // Past what the agent has made of it: entries 5 and 6 are what the node gives.
    prints(bed, &vm, "echo below >/run/virtlet/share/5/below/new && cat /tree/below/new", "below")?;
    is_refused(bed, &vm, "echo x >/run/virtlet/share/5/new", "Read-only file system")?;
    is_refused(bed, &vm, "echo x >/run/virtlet/share/6/below/new", "Read-only file system")?;
    prints(bed, &vm, "cat /whole-tree/below/new", "below")?;
    // Deeper mounts lie on what is above them.
    is_refused(bed, &vm, "echo x >/data/inner/new", "Read-only file system")?;

    prints(
        bed,
        &vm,
        &format!("echo from the guest >/data/made && chown {OWNER} /data/made && cat /data/inner/made"),
        "from the guest",
    )?;
    let made = volumes.dir.join("data/made");
    ensure!(fs::read_to_string(&made)? == "from the guest\n" && fs::metadata(&made)?.uid() == OWNER);
    is_refused(bed, &vm, "mknod /data/disk b 8 0", "Operation not permitted")?;
    // Of one directory at two paths, and of what the node has mounted below one.
    let programs = |vm: &Vm| {
        prints(bed, vm, "/data/program; /tree/below/program", "ran\nran")?;
        is_refused(bed, vm, "/held/program", "Permission denied")?;
        is_refused(bed, vm, "/held-tree/below/program", "Permission denied")
    };
    programs(&vm)?;

    // kubelet replaces a ConfigMap by renaming a link.
    symlink("..2", volumes.dir.join("config/..data_tmp"))?;
    fs::rename(volumes.dir.join("config/..data_tmp"), volumes.dir.join("config/..data"))?;
    wait_for("the other ConfigMap", SEEN, || {
        Ok((exec(bed, &vm, "cat /etc/app/key")?.stdout == "second").then_some(()))
    })?;
    let late = volumes.dir.join("late/mounted");
    sh(&format!("mount -t tmpfs late {}", late.display()))?;
    fs::write(late.join("file"), "late")?;
    wait_for("what is mounted later", SEEN, || {
        Ok((exec(bed, &vm, "cat /late/mounted/file")?.stdout.trim_end() == "late").then_some(()))
    })?;
    // virtiofsd has it open, as a process of a container might.
    sh(&format!("umount --lazy {}", late.display()))?;

    // Another boot of the same machine has them again.
    let first = exec(bed, &vm, "cat /proc/sys/kernel/random/boot_id")?.stdout;
    exec(bed, &vm, "reboot")?;
    wait_for("another boot", BOOT_DEADLINE, || {
        let ended = exec(bed, &vm, "cat /proc/sys/kernel/random/boot_id")?;
        Ok((ended.code == Some(0) && ended.stdout != first).then_some(()))
    })?;
    prints(bed, &vm, "cat /etc/app/key", "second")?;
    programs(&vm)?;

    node.remove_vm(&vm, GRACE)?;
    ensure!(virtiofsds()?.is_empty(), "virtiofsd outlives its VM");
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("file /var/lib/virtlet/images"))
}

fn ends(bed: &Bed) -> Result<()> {
    let mut node = start(bed)?;
    let volumes = Volumes::new(bed)?;
    let vm = boots(bed, &node, volumes.all())?;
    node.restart_controld()?;
    prints(bed, &vm, "cat /etc/app/key", "first")?;

    let pid = virtiofsds()?.into_iter().min().context("no virtiofsd runs")?;
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    node.wait_state(&vm, ContainerState::ContainerExited, SEEN)?;
    let status = node.cri.container(&vm.container)?;
    ensure!(
        status.exit_code == 133 && status.message.contains("file sharing daemon"),
        "{} `{}`",
        status.exit_code,
        status.message
    );
    node.remove_vm(&vm, GRACE)?;
    wait_until("end of virtiofsd", GRACE, || virtiofsds().is_ok_and(|pids| pids.is_empty()))
}

fn refused(bed: &Bed) -> Result<()> {
    let node = start(bed)?;
    let volumes = Volumes::new(bed)?;
    // Not below the bed's directory: that is in `/tmp`, of which controld's unit has one of its own.
    symlink("/run/pool", "/run/loop")?;
    symlink("/run/loop", "/run/pool")?;
    let _socket = UnixListener::bind(volumes.dir.join("socket"))?;
    let pod = node.pod("refused")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let both = MountPropagation::PropagationBidirectional.into();
    for (mounts, why) in [
        (vec![volumes.mount("socket", "/s", true)], "is a socket, which a guest cannot see"),
        (vec![Mount { host_path: "/srv/gone".into(), ..volumes.mount("", "/g", true) }], "is not there on the node"),
        (
            vec![Mount { host_path: "/run/loop".into(), ..volumes.mount("", "/l", true) }],
            "Too many levels of symbolic links",
        ),
        (vec![volumes.mount("data", "/proc/x", true)], "`/proc` is the guest's own"),
        (vec![volumes.mount("data", "/a", true), volumes.mount("late", "/a", true)], "two volume mounts at `/a`"),
        (vec![Mount { propagation: both, ..volumes.mount("data", "/a", false) }], "`Bidirectional`"),
        (vec![noexec(volumes.mount("data", "/dev/shm", false))], "has the option `noexec`"),
    ] {
        let container = container(bed, &node, mounts)?;
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { anyhow::bail!("not refused: {why}") };
        ensure!(error.message().contains(why), "{error}");
    }
    ensure!(fs::read_dir("/run/virtlet/share")?.next().is_none(), "something was made ready");
    node.cri.remove_sandbox(&sandbox)?;
    Ok(())
}
