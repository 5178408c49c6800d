//! A libvirt whose run directory controld does not see, as that of another mount namespace: which process a machine is, tapmanager tells.

use anyhow::{Context as _, Result, ensure};
use proto::cri::ListContainerStatsRequest;
use tests::case::Bed;
use tests::daemon::Daemon;
use tests::node::{Node, SHUTDOWN};

use super::{machine_in, pod, start};

const PARENT: &str = "/kubepods/burstable/pod-elsewhere";

pub(super) fn counts(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    node.controld.terminate()?;
    let program = bed.program("controld");
    let script = format!(
        "mount -t tmpfs none /run/libvirt/qemu && exec {} run --config /etc/virtlet/controld.toml",
        program.display()
    );
    let words = ["--mount", "--propagation", "slave", "/bin/sh", "-c", &script];
    node.controld = Daemon::start("controld", "unshare", words, bed.logs().join("controld-elsewhere.log"))?;
    node.wait_ready()?;
    let vm = start(bed, &node, pod(&node, "elsewhere", PARENT)?, &[])?;
    machine_in(PARENT)?;
    ensure!(memory(&node)? > 0, "nothing is counted of the machine");
    vm.wait_up()?;
    // Neither daemon remembers, but the record does.
    node.controld.kill9()?;
    node.net.tapmanager.kill9()?;
    node.net.tapmanager.start_again()?;
    node.controld.start_again()?;
    node.wait_ready()?;
    ensure!(memory(&node)? > 0, "nothing is counted of the machine after restarts");
    node.remove_vm(&vm, SHUTDOWN)
}

/// What the one machine has in memory, by what controld counts of its process.
fn memory(node: &Node) -> Result<u64> {
    let all = ListContainerStatsRequest::default();
    let listed = node.cri.call(|mut client| async move { client.list_container_stats(all).await })?;
    let stats = listed.stats.first().context("no figures of the machine")?;
    let memory = stats.memory.as_ref().and_then(|memory| memory.working_set_bytes.as_ref());
    Ok(memory.map_or(0, |bytes| bytes.value))
}
