//! What metrics there are, and where each has its value from.

use proto::cri::MetricType::{self, Counter, Gauge};
use proto::tap::NicStats;
use vmspec::Resources;

use super::{Machine, ROOT_DISK};

/// One metric, of all pods.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    pub(super) values: Values,
}

/// Whose the values of a metric are, and how one is had.
#[derive(Debug, Clone, Copy)]
pub(super) enum Values {
    OfMachine(fn(&Machine<'_>) -> u64),
    /// Of the machine's disk, which is a label.
    OfDisk(fn(&Machine<'_>) -> u64),
    /// Of each NIC of the pod, which is a label.
    OfNic(fn(&NicStats) -> u64),
    /// Several of a machine, told apart by more labels.
    Split {
        labels: &'static [&'static str],
        values: &'static [Part],
    },
}

/// Values of the labels that tell one value from the others, and the value.
type Part = (&'static [&'static str], fn(&Machine<'_>) -> u64);

impl Family {
    /// Labels beside those of every metric.
    pub(super) fn labels(&self) -> &'static [&'static str] {
        match self.values {
            Values::OfMachine(_) => &[],
            Values::OfDisk(_) => &["device"],
            Values::OfNic(_) => &["interface"],
            Values::Split { labels, .. } => labels,
        }
    }
}

const fn family(name: &'static str, help: &'static str, kind: MetricType, values: Values) -> Family {
    Family { name, help, kind, values }
}

const fn machine(name: &'static str, help: &'static str, kind: MetricType, value: fn(&Machine<'_>) -> u64) -> Family {
    family(name, help, kind, Values::OfMachine(value))
}

const fn disk(name: &'static str, help: &'static str, kind: MetricType, value: fn(&Machine<'_>) -> u64) -> Family {
    family(name, help, kind, Values::OfDisk(value))
}

const fn nic(name: &'static str, help: &'static str, value: fn(&NicStats) -> u64) -> Family {
    family(name, help, Counter, Values::OfNic(value))
}

/// A figure of the machine's resources; 0 is none.
fn resource(machine: &Machine<'_>, pick: fn(&Resources) -> i64) -> u64 {
    let resources = machine.container.config.resources.as_ref();
    resources.and_then(|resources| u64::try_from(pick(resources)).ok()).unwrap_or_default()
}

/// All of them. Static, as kubelet wants it.
#[rustfmt::skip]
pub(super) const FAMILIES: &[Family] = &[
    machine("container_cpu_usage_seconds_total", "CPU time of QEMU and its guest, in seconds.", Counter, |m| m.details.process.usage.cpu.as_secs()),
    machine("container_cpu_user_seconds_total", "CPU time outside the kernel, in seconds.", Counter, |m| m.details.process.user.as_secs()),
    machine("container_cpu_system_seconds_total", "CPU time in the kernel, in seconds.", Counter, |m| m.details.process.system.as_secs()),
    machine("container_cpu_cfs_periods_total", "Periods of the CFS quota that have passed.", Counter, |m| m.details.cgroup.periods),
    machine("container_cpu_cfs_throttled_periods_total", "Periods of the CFS quota that were throttled.", Counter, |m| m.details.cgroup.throttled_periods),
    machine("container_cpu_cfs_throttled_seconds_total", "Time throttled by the CFS quota, in seconds.", Counter, |m| m.details.cgroup.throttled.as_secs()),
    machine("container_memory_usage_bytes", "Memory of QEMU and its guest, files included.", Gauge, |m| m.details.process.usage.resident),
    machine("container_memory_working_set_bytes", "Memory that cannot be had back without swapping.", Gauge, |m| m.details.process.usage.private),
    machine("container_memory_rss", "Memory that no file backs.", Gauge, |m| m.details.process.usage.private),
    machine("container_memory_cache", "Memory that is a file's.", Gauge, |m| m.details.process.file),
    machine("container_memory_mapped_file", "Memory that is mapped from files or shared.", Gauge, |m| m.details.process.mapped),
    machine("container_memory_kernel_usage", "Memory of the kernel for the process: its page tables.", Gauge, |m| m.details.process.page_tables),
    machine("container_memory_max_usage_bytes", "Most memory that was in use at a time.", Gauge, |m| m.details.process.peak),
    machine("container_memory_swap", "Memory that is swapped out.", Gauge, |m| m.details.process.usage.swapped),
    machine("container_memory_failcnt", "Times that the memory limit was hit.", Counter, |m| m.details.cgroup.limit_hits),
    family("container_memory_failures_total", "Page faults.", Counter, Values::Split {
        labels: &["failure_type", "scope"],
        values: &[
            (&["pgfault", "container"], |m| m.details.process.usage.minor_faults + m.details.process.usage.major_faults),
            (&["pgmajfault", "container"], |m| m.details.process.usage.major_faults),
        ],
    }),
    machine("container_oom_events_total", "Times that the kernel killed for want of memory.", Counter, |m| m.details.cgroup.oom_kills),
    disk("container_fs_usage_bytes", "What the disks of the pod take.", Gauge, |m| m.details.disk.bytes),
    disk("container_fs_limit_bytes", "Size of the file system that the disks are on.", Gauge, |m| m.details.filesystem.size),
    disk("container_fs_inodes_total", "Inodes of the file system that the disks are on.", Gauge, |m| m.details.filesystem.inodes),
    disk("container_fs_inodes_free", "Free inodes of the file system that the disks are on.", Gauge, |m| m.details.filesystem.inodes_free),
    disk("container_fs_reads_total", "Reads of disks; not counted.", Counter, |_| 0),
    disk("container_fs_reads_bytes_total", "Bytes read from disks.", Counter, |m| m.details.process.read),
    disk("container_fs_writes_total", "Writes to disks; not counted.", Counter, |_| 0),
    disk("container_fs_writes_bytes_total", "Bytes written to disks.", Counter, |m| m.details.process.written),
    family("container_blkio_device_usage_total", "Bytes read from and written to disks.", Counter, Values::Split {
        labels: &["device", "operation"],
        values: &[
            (&[ROOT_DISK, "Read"], |m| m.details.process.read),
            (&[ROOT_DISK, "Write"], |m| m.details.process.written),
        ],
    }),
    nic("container_network_receive_bytes_total", "Bytes that the guest received.", |nic| nic.rx_bytes),
    nic("container_network_receive_packets_total", "Packets that the guest received.", |nic| nic.rx_packets),
    nic("container_network_receive_packets_dropped_total", "Packets to the guest that were dropped.", |nic| nic.rx_dropped),
    nic("container_network_receive_errors_total", "Errors on the way to the guest.", |nic| nic.rx_errors),
    nic("container_network_transmit_bytes_total", "Bytes that the guest sent.", |nic| nic.tx_bytes),
    nic("container_network_transmit_packets_total", "Packets that the guest sent.", |nic| nic.tx_packets),
    nic("container_network_transmit_packets_dropped_total", "Packets of the guest that were dropped.", |nic| nic.tx_dropped),
    nic("container_network_transmit_errors_total", "Errors on the way from the guest.", |nic| nic.tx_errors),
    machine("container_processes", "Processes: QEMU.", Gauge, |_| 1),
    machine("container_threads", "Threads of QEMU.", Gauge, |m| m.details.process.usage.threads),
    machine("container_threads_max", "Threads that QEMU's user may have; 0 is any number.", Gauge, |m| m.details.process.threads_max.unwrap_or_default()),
    machine("container_file_descriptors", "Open descriptors of QEMU.", Gauge, |m| m.details.process.descriptors),
    machine("container_sockets", "Open sockets of QEMU.", Gauge, |m| m.details.process.sockets),
    machine("container_last_seen", "When this was read, in seconds since the epoch.", Gauge, |m| seconds(m.details.at)),
    machine("container_start_time_seconds", "When the machine was started, in seconds since the epoch.", Gauge, |m| seconds(m.container.started_at)),
    machine("container_spec_cpu_period", "CFS period of the CPU limit, in microseconds.", Gauge, |m| resource(m, |r| r.cpu_period)),
    machine("container_spec_cpu_shares", "CPU shares.", Gauge, |m| resource(m, |r| r.cpu_shares)),
    machine("container_spec_memory_limit_bytes", "Memory limit; 0 is none.", Gauge, |m| resource(m, |r| r.memory_limit)),
    machine("container_spec_memory_swap_limit_bytes", "Swap that the machine may use; 0 is what the node gives.", Gauge, |_| 0),
];

fn seconds(nanos: i64) -> u64 {
    u64::try_from(nanos / 1_000_000_000).unwrap_or_default()
}
