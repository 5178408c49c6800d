use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::api::cri::convert::tests::{container, process_usage, sandbox};
use crate::container::Filesystem;
use crate::hypervisor::cgroup::Counts;
use crate::hypervisor::process::ProcessDetails;
use crate::volumes::DiskUsage;

/// What critest 1.37 asks for (`expectedMetricDescriptorNames` less `unimplementedMetricDescriptors`), as `container_` and these.
const ASKED: &str = "blkio_device_usage_total cpu_cfs_periods_total cpu_cfs_throttled_periods_total
    cpu_cfs_throttled_seconds_total cpu_system_seconds_total cpu_usage_seconds_total cpu_user_seconds_total file_descriptors
    fs_inodes_free fs_inodes_total fs_limit_bytes fs_reads_bytes_total fs_reads_total fs_usage_bytes fs_writes_bytes_total
    fs_writes_total last_seen memory_cache memory_failcnt memory_failures_total memory_kernel_usage memory_mapped_file
    memory_max_usage_bytes memory_rss memory_swap memory_usage_bytes memory_working_set_bytes network_receive_bytes_total
    network_receive_errors_total network_receive_packets_dropped_total network_receive_packets_total
    network_transmit_bytes_total network_transmit_errors_total network_transmit_packets_dropped_total
    network_transmit_packets_total oom_events_total processes sockets spec_cpu_period spec_cpu_shares
    spec_memory_limit_bytes spec_memory_swap_limit_bytes start_time_seconds threads threads_max";

fn details() -> Details {
    let process = ProcessDetails {
        usage: process_usage(),
        user: Duration::from_secs(2),
        system: Duration::from_millis(900),
        file: 200,
        mapped: 201,
        page_tables: 10,
        peak: 1000,
        read: 30,
        written: 40,
        descriptors: 33,
        sockets: 5,
        threads_max: None,
    };
    let cgroup = Counts {
        periods: 60,
        throttled_periods: 61,
        throttled: Duration::from_millis(62_900),
        oom_kills: 63,
        limit_hits: 64,
    };
    let filesystem = Filesystem { size: 1 << 20, inodes: 100, inodes_free: 60 };
    Details { at: 7_500_000_000, process, cgroup, disk: DiskUsage { bytes: 4096, inodes: 3 }, filesystem }
}

fn network() -> PodStats {
    let nic = serde_json::json!({
        "name": "eth0", "rx_bytes": 1, "rx_packets": 2, "rx_errors": 3, "rx_dropped": 4,
        "tx_bytes": 5, "tx_packets": 6, "tx_errors": 7, "tx_dropped": 8
    });
    serde_json::from_value(serde_json::json!({ "pod": sandbox().id, "nics": [nic] })).expect("stats")
}

#[test]
fn every_metric_that_is_asked_for_is_there_with_its_help_and_once() {
    let names: Vec<_> = descriptors().iter().map(|descriptor| descriptor.name.clone()).collect();
    let asked: BTreeSet<_> = ASKED.split_whitespace().map(|name| format!("container_{name}")).collect();
    assert_eq!(names.len(), asked.len(), "none twice");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), asked);
    assert!(descriptors().iter().all(|descriptor| descriptor.help.ends_with('.')));
}

#[test]
fn each_has_a_value_and_as_many_labels_as_it_says() {
    let (sandbox, container, details) = (sandbox(), container(), details());
    let machine = Machine { container: &container, details: &details };
    let found = of_sandbox(&sandbox, Some(&network()), &[machine], 9);
    let of_machine = &found.container_metrics[0];
    let all: Vec<_> = found.metrics.iter().chain(&of_machine.metrics).collect();
    for descriptor in descriptors() {
        let metrics: Vec<_> = all.iter().filter(|metric| metric.name == descriptor.name).collect();
        assert!(!metrics.is_empty(), "{} has no value", descriptor.name);
        for metric in metrics {
            assert_eq!(metric.label_values.len(), descriptor.label_keys.len(), "{metric:?}");
            assert!(metric.value.is_some() && metric.timestamp > 0, "{metric:?}");
        }
    }
    let values: BTreeMap<_, _> = all.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
    for (name, value) in [
        ("container_cpu_usage_seconds_total", 1),
        ("container_memory_working_set_bytes", 700),
        ("container_network_transmit_bytes_total", 5),
        ("container_cpu_cfs_periods_total", 60),
        ("container_cpu_cfs_throttled_periods_total", 61),
        ("container_cpu_cfs_throttled_seconds_total", 62),
        ("container_oom_events_total", 63),
        ("container_memory_failcnt", 64),
        ("container_last_seen", 7),
    ] {
        assert_eq!(values[name], Some(UInt64Value { value }), "{name}");
    }
    assert_eq!(of_machine.metrics[0].label_values[..3], ["vm", "ns", "main"]);
}

#[test]
fn a_pod_without_machine_or_network_has_no_figures() {
    let found = of_sandbox(&sandbox(), None, &[], 9);
    assert!(found.metrics.is_empty() && found.container_metrics.is_empty());
}
