//! What a case costs: its processor time, its most memory, and what it waited for.
//!
//! The case's own process counts its waits by [`spent`] and leaves them in the case's directory; the bed, which holds the cell, reads
//! them there and the rest from the cell's cgroups before it removes both.

use std::cell::Cell as Flag;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// A second, as the kernel shows times to programs (`USER_HZ`).
const TICKS: u32 = 100;
/// In a case's directory.
const WAITS: &str = "waits.json";

static SPENT: Mutex<BTreeMap<Wait, Duration>> = Mutex::new(BTreeMap::new());
thread_local! {
    static INSIDE: Flag<bool> = const { Flag::new(false) };
}

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The boot of a guest.
    Guest,
    /// The boot of an emulated node or of a machine of the tier `installed`.
    Node,
    /// Something that a case builds for itself, such as an image.
    Build,
    /// A program's end.
    Program,
    /// What a daemon, a client or a guest does in its own time, deadlines of protocols among it.
    Event,
}

/// Seconds of processors, of waiting, and MiB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// User and system time of all that ran in the cell. In an emulated node it is the node's own count.
    pub processor_s: f64,
    /// Most memory at a time; files that the kernel keeps in memory are part of it.
    pub peak_mib: u64,
    /// By what was waited for. Threads wait side by side, so the sum may be more than the case took.
    pub waits: BTreeMap<Wait, f64>,
}

/// What is left when a case is over.
#[derive(Debug)]
pub(crate) struct Ran {
    /// What it printed, or why it failed.
    pub(crate) outcome: Result<String>,
    pub(crate) cost: Cost,
}

impl Ran {
    /// A case that did not get so far as to cost anything.
    pub(crate) fn failed(why: anyhow::Error) -> Self {
        Self { outcome: Err(why), cost: Cost::default() }
    }
}

/// Counts what `work` takes as a wait of this kind. Waits within it are a part of it.
pub fn spent<T>(wait: Wait, work: impl FnOnce() -> T) -> T {
    if INSIDE.replace(true) {
        return work();
    }
    let begun = Instant::now();
    let done = work();
    INSIDE.set(false);
    *SPENT.lock().unwrap_or_else(PoisonError::into_inner).entry(wait).or_default() += begun.elapsed();
    done
}

/// Leaves what was waited for in `dir`, when the case is over.
pub(crate) fn leave(dir: &Path) -> Result<()> {
    let spent = SPENT.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds: BTreeMap<_, _> = spent.iter().map(|(wait, time)| (*wait, time.as_secs_f64())).collect();
    fs::write(dir.join(WAITS), serde_json::to_vec(&seconds)?).context("failed to note what the case waited for")
}

/// What was left in `dir`: nothing by a case that was killed.
pub(crate) fn left(dir: &Path) -> BTreeMap<Wait, f64> {
    fs::read(dir.join(WAITS)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Processor seconds that the kernel has counted for a cgroup, of either version.
pub(crate) fn processor_s(group: &Path) -> Option<f64> {
    let nanos = || fs::read_to_string(group.join("cpuacct.usage")).ok()?.trim().parse::<f64>().ok();
    let micros = || field(&fs::read_to_string(group.join("cpu.stat")).ok()?, "usage_usec");
    nanos().map(|nanos| nanos / 1e9).or_else(|| micros().map(|micros| micros / 1e6))
}

/// Processor seconds of a process, its threads' that have ended included.
pub(crate) fn of_process(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may have blanks; user and system time are 14th and 15th, in ticks (proc(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some(f64::from(user + system) / f64::from(TICKS))
}

/// Bytes that a cgroup of either version has had at the most.
pub(crate) fn peak(group: &Path) -> Option<u64> {
    ["memory.max_usage_in_bytes", "memory.peak"]
        .iter()
        .find_map(|file| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok())
}

fn field(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_within_a_wait_is_counted_once() {
        let waited = || std::thread::park_timeout(Duration::from_millis(30));
        let begun = Instant::now();

        spent(Wait::Build, || spent(Wait::Program, waited));
        let all = begun.elapsed();

        let counted = SPENT.lock().unwrap();
        assert!(counted.get(&Wait::Program).is_none());
        assert!(counted[&Wait::Build] >= Duration::from_millis(30) && counted[&Wait::Build] <= all);
    }

    #[test]
    fn both_versions_of_cgroups_are_read() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(old.path().join("cpuacct.usage"), "2500000000\n").unwrap();
        fs::write(old.path().join("memory.max_usage_in_bytes"), "4096\n").unwrap();
        fs::write(new.path().join("cpu.stat"), "usage_usec 2500000\nuser_usec 1\n").unwrap();
        fs::write(new.path().join("memory.peak"), "4096\n").unwrap();

        for group in [old.path(), new.path()] {
            assert_eq!((processor_s(group), peak(group)), (Some(2.5), Some(4096)));
        }
        assert_eq!((processor_s(Path::new("/nowhere")), peak(Path::new("/nowhere"))), (None, None));
    }
}
