//! The metrics that kubelet serves as `/metrics/cadvisor` once it takes pods' figures from us (`PodAndContainerStatsFromCRI`).
//!
//! Names and meaning are cadvisor's, which dashboards know; CRI gives values as whole numbers, so seconds are whole seconds.
//! A machine is the QEMU process with its guest in it; throttling and want of memory are those of its cgroup.

mod families;

use proto::cri::{ContainerMetrics, Metric, MetricDescriptor, PodSandboxMetrics, UInt64Value};
use proto::tap::PodStats;

use self::families::{FAMILIES, Values};
use crate::container::Details;
use crate::model::{Container, Sandbox};

/// Labels of every metric. More may follow.
const LABELS: [&str; 5] = ["pod", "namespace", "container", "id", "image"];

/// A running machine and what it uses.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) container: &'a Container,
    pub(super) details: &'a Details,
}

/// All metrics that there are.
pub(super) fn descriptors() -> Vec<MetricDescriptor> {
    let descriptors = FAMILIES.iter().map(|family| MetricDescriptor {
        name: family.name.to_owned(),
        help: family.help.to_owned(),
        label_keys: LABELS.iter().chain(family.labels()).map(|label| (*label).to_owned()).collect(),
    });
    descriptors.collect()
}

/// The metrics of a sandbox and its `machines`. `network` is what tapmanager counted.
pub(super) fn of_sandbox(
    sandbox: &Sandbox,
    network: Option<&PodStats>,
    machines: &[Machine<'_>],
    timestamp: i64,
) -> PodSandboxMetrics {
    let config = &sandbox.config;
    let pod = [config.name.as_str(), &config.namespace, "", sandbox.id.as_str(), ""];
    let mut metrics = Vec::new();
    for family in FAMILIES {
        if let Values::OfNic(value) = family.values {
            let nics = network.into_iter().flat_map(|network| &network.nics);
            metrics.extend(nics.map(|nic| family.metric(&pod, &[nic.name.as_str()], timestamp, value(nic))));
        }
    }
    PodSandboxMetrics {
        pod_sandbox_id: sandbox.id.to_string(),
        metrics,
        container_metrics: machines.iter().map(|machine| of_machine(sandbox, machine)).collect(),
    }
}

fn of_machine(sandbox: &Sandbox, machine: &Machine<'_>) -> ContainerMetrics {
    let (config, id) = (&machine.container.config, machine.container.id.to_string());
    let labels = [&*sandbox.config.name, &sandbox.config.namespace, &config.name, &id, config.image_name()];
    let at = machine.details.at;
    let mut metrics = Vec::new();
    for family in FAMILIES {
        match family.values {
            Values::OfNic(_) => {}
            Values::OfMachine(value) => metrics.push(family.metric(&labels, &[], at, value(machine))),
            Values::OfDisk(value) => metrics.push(family.metric(&labels, &[ROOT_DISK], at, value(machine))),
            Values::Split { values, .. } => {
                let values = values.iter();
                metrics.extend(values.map(|(more, value)| family.metric(&labels, more, at, value(machine))));
            }
        }
    }
    ContainerMetrics { container_id: id, metrics }
}

/// The one disk that a machine writes to, as its guest knows it.
const ROOT_DISK: &str = "vda";

impl families::Family {
    fn metric(&self, labels: &[&str], more: &[&str], timestamp: i64, value: u64) -> Metric {
        Metric {
            name: self.name.to_owned(),
            timestamp,
            metric_type: self.kind.into(),
            label_values: labels.iter().chain(more).map(|label| (*label).to_owned()).collect(),
            value: Some(UInt64Value { value }),
        }
    }
}

#[cfg(test)]
mod tests;
