//! EmptyDirs of pods that are disks of guests.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{ContainerConfig, ContainerState, Mount, PodSandboxConfig};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish, sh};
use tests::cri;
use tests::image_server::Fault;
use tests::libvirt::only_qemu;
use tests::node::{Node, SHUTDOWN};

use super::shell::{answers, prints};
use super::volumes::noexec;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
pub(super) const ANNOTATION: &str = "virtlet.cloud/emptydir-disks";
const MIB: u64 = 1 << 20;

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::emptydirs_are_disks_that_outlive_a_container", deadline: DEADLINE, run: disks }];

/// An emptyDir as kubelet makes it, in directories that QEMU's user does not get into.
pub(super) fn emptydir(pod: &PodSandboxConfig, name: &str) -> Result<(PathBuf, Mount)> {
    let pods = Path::new("/var/lib/kubelet/pods");
    let uid = &pod.metadata.as_ref().context("no metadata")?.uid;
    let dir = pods.join(uid).join("volumes/kubernetes.io~empty-dir").join(name);
    fs::create_dir_all(&dir)?;
    fs::set_permissions(pods, fs::Permissions::from_mode(0o700))?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
    let host_path = dir.display().to_string();
    Ok((dir, Mount { container_path: format!("/mnt/{name}"), host_path, ..Mount::default() }))
}

fn disks(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let mut pod = node.pod("emptydirs")?;
    let (scratch, of_scratch) = emptydir(&pod, "scratch")?;
    let (raw, of_raw) = emptydir(&pod, "raw")?;
    let (shared, of_shared) = emptydir(&pod, "shared")?;
    fs::write(shared.join("word"), "shared\n")?;
    let (below, of_below) = emptydir(&pod, "below")?;
    let of_below = Mount { container_path: "/mnt/scratch/below".into(), ..of_below };
    fs::write(below.join("word"), "below\n")?;
    // `medium: Memory`.
    sh(&format!("mount -t tmpfs -o size=64m tmpfs {}", raw.display()))?;
    let mounts = vec![of_below, noexec(of_scratch), of_raw, of_shared];
    let mut container = ContainerConfig { mounts, ..cri::container(&image, [].into()) };

    let sandbox = node.cri.run_sandbox(&pod)?;
    for (disks, said) in [
        ("scratch=1Ki", "1Ki for `scratch` is not within 16Mi to 16Ti"),
        ("absent=1Gi", "volume \"absent\" is not an emptyDir of this container"),
        ("scratch=1Gi,fs=ntfs", "\"ntfs\" is not one of ext4, xfs, none"),
    ] {
        let asks = PodSandboxConfig { annotations: [(ANNOTATION.into(), disks.into())].into(), ..pod.clone() };
        let Err(error) = node.cri.create(&sandbox, &container, &asks) else { bail!("not refused: {disks}") };
        ensure!(error.message().contains(said), "{error}");
    }
    ensure!(!scratch.join("disk.img").exists(), "a disk of a container that was refused");

    pod.annotations.insert(ANNOTATION.into(), "scratch=256Mi; raw=16Mi,fs=none".into());
    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    prints(bed, &vm, "grep ' /mnt/scratch ' /proc/mounts | cut -d' ' -f3", "ext4")?;
    let program = "printf '#!/bin/sh\\necho ran\\n' >/tmp/program; chmod +x /tmp/program; cp /tmp/program /mnt/scratch; \
                   for at in /tmp /mnt/scratch; do $at/program 2>&1; done | sed 's/.*ermission denied/no/'";
    prints(bed, &vm, program, "ran\nno")?;
    prints(bed, &vm, "cat /sys/block/$(basename $(readlink /mnt/raw))/size", &(16 * MIB / 512).to_string())?;
    prints(bed, &vm, "cat /mnt/shared/word; ls -A /mnt/shared; cat /mnt/scratch/below/word", "shared\nword\nbelow")?;
    prints(bed, &vm, "echo kept >/mnt/scratch/word; printf kept | dd of=/mnt/raw conv=fsync 2>/dev/null; sync", "")?;
    let made = fs::metadata(scratch.join("disk.img"))?;
    ensure!((made.len(), made.uid()) == (256 * MIB, 0) && made.blocks() * 512 < 64 * MIB, "{made:?}");
    ensure!(fs::read(raw.join("disk.img"))?.starts_with(b"kept"), "not written");
    node.cri.stop(&vm.container, SHUTDOWN)?;

    // As kubelet starts it again: in the same sandbox, with the pod's volumes.
    container.metadata.as_mut().context("no metadata")?.attempt += 1;
    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    prints(bed, &vm, "cat /mnt/scratch/below/word /mnt/scratch/word; head -c 4 /mnt/raw", "below\nkept\nkept")?;
    ensure!(fs::metadata(scratch.join("disk.img"))?.ino() == made.ino(), "another file");

    // libvirt has the file open, too: it is free for the next QEMU when one is killed, and its room is when the pod is gone.
    kill(Pid::from_raw(only_qemu()?), Signal::SIGKILL)?;
    node.wait_state(&vm, ContainerState::ContainerExited, GRACE)?;
    container.metadata.as_mut().context("no metadata")?.attempt += 1;
    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    prints(bed, &vm, "cat /mnt/scratch/word", "kept")?;
    node.remove_vm(&vm, GRACE)?;
    // It fails at processes that end meanwhile.
    let held = finish(&mut command("find", ["/proc", "-maxdepth", "3", "-lname", "*/disk.img*"]), TOOL_DEADLINE)?;
    ensure!(held.stdout.is_empty(), "open after the pod: {held:?}");
    without_mkfs(bed, &node, &image)
}

/// A node that cannot make a disk says what it lacks, and makes it when it has that.
fn without_mkfs(bed: &Bed, node: &Node, image: &str) -> Result<()> {
    let mut pod = node.pod("xfs")?;
    let (dir, mount) = emptydir(&pod, "scratch")?;
    let container = ContainerConfig { mounts: vec![mount], ..cri::container(image, [].into()) };
    pod.annotations.insert(ANNOTATION.into(), "scratch=512Mi,fs=xfs".into());
    let sandbox = node.cri.run_sandbox(&pod)?;
    let (upper, work) = (bed.dir.join("sbin"), bed.dir.join("sbin.work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let over = format!("lowerdir=/usr/sbin,upperdir={},workdir={}", upper.display(), work.display());
    sh(&format!("mount -t overlay -o {over} sbin /usr/sbin"))?;
    fs::remove_file("/usr/sbin/mkfs.xfs")?;
    let Err(error) = node.cri.create(&sandbox, &container, &pod) else { bail!("a disk without mkfs.xfs") };
    ensure!(
        error.message().contains("no mkfs.xfs") && error.message().contains("install package `xfsprogs`"),
        "{error}"
    );
    ensure!(fs::read_dir(&dir)?.next().is_none(), "half a disk");
    sh("umount /usr/sbin")?;
    let vm = node.start_in(&sandbox, &container, &pod)?;
    ensure!(fs::metadata(dir.join("disk.img"))?.len() == 512 * MIB, "another size");
    node.remove_vm(&vm, Duration::ZERO)
}
