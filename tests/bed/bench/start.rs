//! StartContainer beside `virsh create` of the same machine with the plain emulator.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use proto::cri::ContainerConfig;
use tests::case::Bed;
use tests::cri;
use tests::libvirt::{running_domains, virsh};
use tests::node::{Node, Vm};

use super::peer::Peer;
use super::report::{Pair, Row};
use super::{p50, timed};

const PAIRS: usize = 11;
const CONNECTS: usize = 5;

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let container = cri::container(&node.pull(bed, "tiny.qcow2")?, [].into());
    let pairs = pairs(bed, node, &container)?;
    Ok(vec![Row { name: "StartContainer / virsh create, less its connect", unit: "ms", target: Some(1.05), pairs }])
}

/// StartContainer of this container, beside the creation of the same machine.
pub(super) fn pairs(bed: &Bed, node: &Node, container: &ContainerConfig) -> Result<Vec<Pair>> {
    // Not measured: libvirt asks each emulator for its capabilities once.
    let (_, vm) = start(node, container)?;
    let peer = Peer::of(bed, &virsh(&format!("dumpxml --inactive {}", running_domains()?.concat()))?)?;
    remove(node, &vm)?;
    peer.create()?.1.remove()?;

    let mut pairs = Vec::new();
    for _pair in 0..PAIRS {
        let (ours, vm) = start(node, container)?;
        remove(node, &vm)?;
        let (created, running) = peer.create()?;
        running.remove()?;
        let connects = (0..CONNECTS).map(|_| Ok(timed(|| virsh("uri"))?.0)).collect::<Result<Vec<f64>>>()?;
        pairs.push(Pair { ours: ours / 1000.0, baseline: (created - p50(connects)?) / 1000.0 });
    }
    Ok(pairs)
}

/// Microseconds of StartContainer, and what it started.
pub(super) fn start(node: &Node, container: &ContainerConfig) -> Result<(f64, Vm)> {
    start_for(node, container, "")
}

/// The same for a runtime handler.
pub(super) fn start_for(node: &Node, container: &ContainerConfig, handler: &str) -> Result<(f64, Vm)> {
    let pod = node.pod("start")?;
    let sandbox = node.cri.run_sandbox_for(&pod, handler)?;
    let mut with = pod.clone();
    with.annotations.extend(container.annotations.clone());
    let id = node.cri.create(&sandbox, container, &with)?;
    let (micros, ()) = timed(|| node.cri.start(&id))?;
    let ip = node.cri.sandbox(&sandbox)?.network.context("no network")?.ip.parse()?;
    let machine = node.cri.machine(&id)?;
    let log = PathBuf::from(&pod.log_directory).join(&container.log_path);
    Ok((micros, Vm { sandbox, container: id, machine, ip, log, pod }))
}

pub(super) fn remove(node: &Node, vm: &Vm) -> Result<()> {
    node.remove_vm(vm, Duration::ZERO)
}
