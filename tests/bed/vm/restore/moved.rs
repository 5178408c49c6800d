//! A pod whose checkpoint is taken to another node: its guest goes on there, with the file that it holds open.

use anyhow::{Context as _, Result, ensure};
use tests::agent_image::tiny_with_agent;
use tests::case::Bed;
use tests::cni;
use tests::command::sh;
use tests::counting::complete;
use tests::cri;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, Node, Vm, user_data};
use tests::wait::wait_for;

use super::super::checkpoint::{GRACE, of};
use super::{described, network_with_macs, request_of, restore};

/// Counts into a file on its disk that is never closed.
const HOLDS: &str = "#!/bin/sh\n\
    (exec 3>/data/held; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo \"count $i.\" >&3; usleep 50000; done) >/dev/null 2>&1 &\n";
/// All that a node keeps.
const STATE: &str = "/var/lib/virtlet /run/virtlet /etc/libvirt/qemu";
/// Numbers that are in the file before the checkpoint.
const SOME: usize = 20;

pub(super) fn moves(bed: &Bed) -> Result<()> {
    let mut node = Node::on(bed, &network_with_macs(), &cni::debian_plugins(), "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let container = cri::container(&image, user_data(HOLDS));
    let vm = node.start_pod(node.pod("moved")?, &container)?;
    vm.wait_up()?;
    let before = held(&node, &vm, SOME)?;
    let dir = bed.dir.join("moved");
    sh(&format!("mkdir -m 0700 {}", dir.display()))?;
    let request = of(&vm, &dir);
    node.cri.call(|mut client| async move { client.checkpoint_pod(request).await })?;
    node.remove_vm(&vm, GRACE)?;
    another(&mut node)?;
    node.cri.pull(&image)?;

    let request = request_of(&node, "moved", &container, &dir)?;
    let made = restore(&node.cri, &request).context("RestorePod")?;
    let moved = described(&node, &request, &made)?;
    node.cri.start(&moved.container).context("StartContainer")?;
    moved.wait_up()?;
    ensure!(moved.info()?.contains("boots 1"), "it has booted: {}", moved.info()?);
    held(&node, &moved, before + SOME)?;
    node.remove_vm(&moved, GRACE)
}

/// Makes it another node: its daemons start where nothing is of what the first ones have kept.
fn another(node: &mut Node) -> Result<()> {
    node.controld.terminate()?;
    node.net.tapmanager.terminate()?;
    node.libvirt.libvirtd.terminate()?;
    sh(&format!("find {STATE} -xdev -mindepth 1 -delete"))?;
    sh("ip link delete cni0")?;
    node.libvirt.libvirtd.start_again()?;
    node.libvirt.wait_ready()?;
    node.net.tapmanager.start_again()?;
    node.controld.start_again()?;
    node.wait_ready()
}

/// How far the count has come in the file, once that is `least`; none is missing.
fn held(node: &Node, vm: &Vm, least: usize) -> Result<usize> {
    wait_for(&format!("number {least} in the file"), BOOT_DEADLINE, || {
        let read = node.crictl(&["exec", &vm.container, "cat", "/data/held"])?;
        if read.code != Some(0) {
            return Ok(None);
        }
        // The last line may be half written.
        let whole = read.stdout.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(Some(complete(whole)?).filter(|count| *count >= least))
    })
}
