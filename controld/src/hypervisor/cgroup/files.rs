//! Limits and counts as the files of either version say them. Pure.

use std::time::Duration;

use vmspec::plan::Limits;

use super::Counts;

/// Only version 2 limits swap by itself: version 1 counts it together with memory, and such a cgroup gets what its pod's leaves it.
pub(super) const SWAP: &str = "memory.swap.max";
/// What is kept for a group, whatever others need, and as long as they have some to spare.
const MIN: &str = "memory.min";
const LOW: &str = "memory.low";

/// Version of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// A value, and the file of a cgroup that it is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) controller: &'static str,
    pub(super) name: &'static str,
    pub(super) value: String,
}

impl Version {
    /// What to write, in this order.
    pub(super) fn files_of(self, limits: &Limits) -> Vec<File> {
        let mut files = Vec::new();
        let mut file = |controller, name, value| files.push(File { controller, name, value });
        match (self, limits.cpu) {
            (Self::One, Some(cpu)) => {
                // A period that is too short or too long for the quota of before is refused.
                file("cpu", "cpu.cfs_quota_us", "-1".into());
                file("cpu", "cpu.cfs_period_us", cpu.period.to_string());
                if let Some(quota) = cpu.quota {
                    file("cpu", "cpu.cfs_quota_us", quota.to_string());
                }
            }
            (Self::Two, Some(cpu)) => {
                let quota = cpu.quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                file("cpu", "cpu.max", format!("{quota} {}", cpu.period));
            }
            (_, None) => {}
        }
        match (self, limits.shares) {
            (Self::One, Some(shares)) => file("cpu", "cpu.shares", shares.to_string()),
            (Self::Two, Some(shares)) => file("cpu", "cpu.weight", weight(shares).to_string()),
            (_, None) => {}
        }
        match (self, limits.memory) {
            (Self::One, Some(bytes)) => file("memory", "memory.limit_in_bytes", bytes.to_string()),
            (Self::Two, Some(bytes)) => file("memory", "memory.max", bytes.to_string()),
            (_, None) => {}
        }
        // Version 1 has no such file.
        for (name, bytes) in [(SWAP, limits.swap), (MIN, limits.memory_min), (LOW, limits.memory_low)] {
            if let (Self::Two, Some(bytes)) = (self, bytes) {
                let value = if bytes == u64::MAX { "max".to_owned() } else { bytes.to_string() };
                file("memory", name, value);
            }
        }
        for (name, list) in [("cpuset.cpus", &limits.cpuset_cpus), ("cpuset.mems", &limits.cpuset_mems)] {
            if !list.is_empty() {
                file("cpuset", name, list.clone());
            }
        }
        files
    }

    /// What to write so that nothing holds which these limits leave open. A cpuset of version 1 cannot be left open: it stays.
    pub(super) fn open_files_of(self, limits: &Limits) -> Vec<File> {
        let open: &[(bool, &'static str, &'static str, &str)] = match self {
            Self::One => &[
                (limits.cpu.is_none(), "cpu", "cpu.cfs_quota_us", "-1"),
                (limits.shares.is_none(), "cpu", "cpu.shares", "1024"),
                (limits.memory.is_none(), "memory", "memory.limit_in_bytes", "-1"),
            ],
            Self::Two => &[
                (limits.cpu.is_none(), "cpu", "cpu.max", "max"),
                (limits.shares.is_none(), "cpu", "cpu.weight", "100"),
                (limits.memory.is_none(), "memory", "memory.max", "max"),
                (limits.swap.is_none(), "memory", SWAP, "max"),
                (limits.memory_min.is_none(), "memory", MIN, "0"),
                (limits.memory_low.is_none(), "memory", LOW, "0"),
                (limits.cpuset_cpus.is_empty(), "cpuset", "cpuset.cpus", "\n"),
                (limits.cpuset_mems.is_empty(), "cpuset", "cpuset.mems", "\n"),
            ],
        };
        let open = open.iter().filter(|(is_open, ..)| *is_open);
        open.map(|(_, controller, name, value)| File { controller, name, value: (*value).to_owned() }).collect()
    }

    /// What is counted in the files that `read` gives by controller and name.
    pub(super) fn counts(self, read: impl Fn(&'static str, &'static str) -> Option<String>) -> Counts {
        let number = |text: &Option<String>, key| text.as_deref().and_then(|text| value(text, key)).unwrap_or_default();
        let cpu = read("cpu", "cpu.stat");
        let (throttled, oom_kills, limit_hits) = match self {
            Self::One => {
                let hits = read("memory", "memory.failcnt").and_then(|hits| hits.trim().parse().ok());
                let oom = read("memory", "memory.oom_control");
                (
                    Duration::from_nanos(number(&cpu, "throttled_time")),
                    number(&oom, "oom_kill"),
                    hits.unwrap_or_default(),
                )
            }
            Self::Two => {
                let events = read("memory", "memory.events");
                (
                    Duration::from_micros(number(&cpu, "throttled_usec")),
                    number(&events, "oom_kill"),
                    number(&events, "max"),
                )
            }
        };
        let (periods, throttled_periods) = (number(&cpu, "nr_periods"), number(&cpu, "nr_throttled"));
        Counts { periods, throttled_periods, throttled, oom_kills, limit_hits }
    }
}

/// Memory in `memory.stat` that no file on a disk backs: of version 2, or of version 1 with all below. What QEMU shares with virtiofsd, its
/// guest's memory, the kernel counts apart.
pub(super) fn held(stat: &str) -> Option<u64> {
    let both = |anonymous, shared| Some(value(stat, anonymous)? + value(stat, shared).unwrap_or_default());
    both("anon", "shmem").or_else(|| both("total_rss", "total_shmem"))
}

/// Whether a process whose `/proc/PID/cgroup` is `text` is in the cgroup of version 2 at `path`, or below it.
pub(super) fn is_in(text: &str, path: &str) -> bool {
    let is = text.lines().find_map(|line| line.strip_prefix("0::"));
    is.and_then(|is| is.strip_prefix(path)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Shares, 2 to 262144, as a weight, 1 to 10000, as kubelet and the OCI runtimes turn them.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}
