//! A guest that fills the node's disk: paused, shown, and going on when there is room.

use std::time::Duration;

use anyhow::{Result, ensure};
use proto::cri::ContainerState;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::libvirt::{running_domains, virsh};
use tests::node::{BOOT_DEADLINE, Node, Vm, user_data};
use tests::wait::wait_for;

const VOLUMES: &str = "/var/lib/virtlet/volumes";
const GRACE: Duration = Duration::from_secs(3);

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_guest_on_a_full_disk_is_paused_and_goes_on", deadline: Duration::from_secs(480), run: full }];

/// User-data of a guest that writes more than 64 MiB, and when that is done, without end. Zeros take as much room as others.
const WRITER: &str = "#!/bin/sh\n\
    dd if=/dev/zero of=/dev/vda bs=1M seek=256 count=96 conv=fsync && echo first part written >/dev/console\n\
    dd if=/dev/zero of=/dev/vda bs=1M seek=352 count=600 conv=fsync\n";

fn full(bed: &Bed) -> Result<()> {
    std::fs::create_dir_all(VOLUMES)?;
    sh(&format!("mount -t tmpfs -o size=64m,mode=755 small {VOLUMES}"))?;
    let mut node = Node::start(bed)?;
    let other = node.boot_vm(bed, "other", "")?;
    let domain = running_domains()?.concat();
    let image = node.pull(bed, "tiny.qcow2")?;
    let mut annotations = user_data(WRITER);
    annotations.insert("VirtletRootVolumeSize".into(), "1Gi".into());
    let vm = node.start_pod(node.pod("writer")?, &cri::container(&image, annotations))?;

    wait_paused(&node, &vm)?;
    let listed = node.cri.state(&vm.container)?;
    ensure!(listed == ContainerState::ContainerRunning, "a paused machine is shown as {listed:?}");
    other.info()?;
    // Somebody else's word is needed to let this one go on.
    virsh(&format!("suspend {domain}"))?;
    wait_reason(&node, &other, "Paused")?;
    node.restart_controld()?;
    wait_paused(&node, &vm)?;

    sh(&format!("mount -o remount,size=200m {VOLUMES}"))?;
    vm.wait_log("first part written", BOOT_DEADLINE)?;
    wait_paused(&node, &vm)?;
    node.remove_vm(&vm, GRACE)?;
    wait_reason(&node, &other, "Paused")?;
    virsh(&format!("resume {domain}"))?;
    wait_reason(&node, &other, "")?;
    other.info()?;
    node.remove_vm(&other, GRACE)
}

fn wait_paused(node: &Node, vm: &Vm) -> Result<()> {
    wait_reason(node, vm, "PausedDiskFull")
}

fn wait_reason(node: &Node, vm: &Vm, reason: &str) -> Result<()> {
    wait_for(&format!("reason `{reason}` of the container"), BOOT_DEADLINE, || {
        Ok((node.cri.container(&vm.container)?.reason == reason).then_some(()))
    })
}
