//! What sandboxes and containers use.

use std::path::Path;

use common::now_nanos;
use proto::cri;
use proto::tap::{NicStats, PodStats};

use super::{container, sandbox, selects, unsorted};
use crate::container::Usage;
use crate::model::{Container, ContainerState, Sandbox, SandboxState};

/// What a container uses. `disks` is where the disks of pods lie.
#[must_use]
pub fn container_stats(container: &Container, usage: &Usage, disks: &Path) -> cri::ContainerStats {
    let timestamp = usage.at;
    let limit = container.config.resources.as_ref().and_then(|resources| u64::try_from(resources.memory_limit).ok());
    let cpu = usage.process.map(|process| cri::CpuUsage {
        timestamp,
        usage_core_nano_seconds: value(u64::try_from(process.cpu.as_nanos()).unwrap_or(u64::MAX)),
        ..Default::default()
    });
    let memory = usage.process.map(|process| cri::MemoryUsage {
        timestamp,
        working_set_bytes: value(process.private),
        available_bytes: limit
            .filter(|limit| *limit > 0)
            .and_then(|limit| value(limit.saturating_sub(process.private))),
        usage_bytes: value(process.resident),
        rss_bytes: value(process.private),
        page_faults: value(process.minor_faults.saturating_add(process.major_faults)),
        major_page_faults: value(process.major_faults),
        psi: None,
    });
    let swap = usage.process.map(|process| cri::SwapUsage {
        timestamp,
        swap_available_bytes: None,
        swap_usage_bytes: value(process.swapped),
    });
    cri::ContainerStats {
        attributes: Some(cri::ContainerAttributes {
            id: container.id.to_string(),
            metadata: Some(container::metadata(&container.config)),
            labels: unsorted(&container.config.labels),
            annotations: unsorted(&container.config.annotations),
        }),
        cpu,
        memory,
        writable_layer: Some(cri::FilesystemUsage {
            timestamp,
            fs_id: Some(cri::FilesystemIdentifier { mountpoint: disks.display().to_string() }),
            used_bytes: value(usage.disk.bytes),
            inodes_used: value(usage.disk.inodes),
        }),
        swap,
        io: None,
    }
}

/// Whether a list with this filter shows what the container uses: only machines that run use anything but disk.
#[must_use]
pub fn matches_container_stats(filter: Option<&cri::ContainerStatsFilter>, container: &Container) -> bool {
    container.state == ContainerState::Running
        && filter.is_none_or(|filter| {
            container.id.to_string().starts_with(&filter.id)
                && container.sandbox.as_str().starts_with(&filter.pod_sandbox_id)
                && selects(&filter.label_selector, &container.config.labels)
        })
}

/// What a sandbox uses: its `containers`, and what tapmanager counted (`stats`) if it has a network.
#[must_use]
pub fn sandbox_stats(
    sandbox: &Sandbox,
    containers: Vec<cri::ContainerStats>,
    stats: Option<&PodStats>,
) -> cri::PodSandboxStats {
    let network = stats.map(|stats| {
        let mut interfaces = stats.nics.iter().map(interface);
        // The default network's comes first, and kubelet takes only the others for others.
        let default_interface = interfaces.next();
        cri::NetworkUsage { timestamp: now_nanos(), default_interface, interfaces: interfaces.collect() }
    });
    cri::PodSandboxStats {
        attributes: Some(cri::PodSandboxAttributes {
            id: sandbox.id.to_string(),
            metadata: Some(sandbox::metadata(&sandbox.config)),
            labels: unsorted(&sandbox.config.labels),
            annotations: unsorted(&sandbox.config.annotations),
        }),
        // A machine is all that a pod has, so the pod uses what its one container uses.
        linux: Some(cri::LinuxPodSandboxStats {
            cpu: containers.first().and_then(|container| container.cpu),
            memory: containers.first().and_then(|container| container.memory),
            network,
            process: None,
            containers,
            io: None,
        }),
        windows: None,
    }
}

/// Whether a list of counters with this filter shows the sandbox.
#[must_use]
pub fn matches_stats(filter: Option<&cri::PodSandboxStatsFilter>, sandbox: &Sandbox) -> bool {
    sandbox.state == SandboxState::Ready
        && filter.is_none_or(|filter| {
            sandbox.id.as_str().starts_with(&filter.id) && selects(&filter.label_selector, &sandbox.config.labels)
        })
}

/// CRI counts from the pod's side as well: `rx` is what the guest received.
fn interface(nic: &NicStats) -> cri::NetworkInterfaceUsage {
    cri::NetworkInterfaceUsage {
        name: nic.name.to_string(),
        rx_bytes: value(nic.rx_bytes),
        rx_errors: value(nic.rx_errors),
        tx_bytes: value(nic.tx_bytes),
        tx_errors: value(nic.tx_errors),
    }
}

fn value(value: u64) -> Option<cri::UInt64Value> {
    Some(cri::UInt64Value { value })
}
