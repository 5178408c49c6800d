//! Counters of sandboxes.

use common::now_nanos;
use proto::cri;
use proto::tap::{NicStats, PodStats};

use super::{sandbox, selects, unsorted};
use crate::model::{Sandbox, SandboxState};

/// A sandbox's counters. `stats` is what tapmanager counted, if the sandbox has a network.
#[must_use]
pub fn sandbox_stats(sandbox: &Sandbox, stats: Option<&PodStats>) -> cri::PodSandboxStats {
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
        linux: Some(cri::LinuxPodSandboxStats { network, ..Default::default() }),
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
    let value = |value| Some(cri::UInt64Value { value });
    cri::NetworkInterfaceUsage {
        name: nic.name.to_string(),
        rx_bytes: value(nic.rx_bytes),
        rx_errors: value(nic.rx_errors),
        tx_bytes: value(nic.tx_bytes),
        tx_errors: value(nic.tx_errors),
    }
}
