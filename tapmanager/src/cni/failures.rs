//! ADDs that failed since the last of their network that went well: what STATUS cannot know.
//!
//! [`super::Cni::add`] notes how each ends; whoever asks for the daemon's state is told. A plugin's STATUS may ask its IPAM plugin and
//! be told that all is well although no pod could have an address: `dhcp` answers so without its daemon, and `host-local` with
//! no address left.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most networks that are remembered: far more than a node has.
const MAX_NETWORKS: usize = 64;
/// Most networks that are told.
const TOLD: usize = 3;
/// Most letters of an error that are told.
const MAX_WHY: usize = 300;
/// What failed longer ago is not told: its network may be gone, or nobody wants it any more.
const RECENT: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(super) struct Failures {
    networks: Mutex<BTreeMap<String, Failed>>,
}

#[derive(Debug)]
struct Failed {
    count: u64,
    last: Instant,
    why: String,
}

impl Failures {
    /// An ADD went well.
    pub(super) fn well(&self, network: &str) {
        self.lock().remove(network);
    }

    /// An ADD failed at `now`.
    pub(super) fn failed(&self, network: &str, why: &str, now: Instant) {
        let mut networks = self.lock();
        let count = networks.get(network).map_or(0, |failed| failed.count).saturating_add(1);
        let why = why.chars().take(MAX_WHY).collect();
        networks.insert(network.to_owned(), Failed { count, last: now, why });
        if networks.len() > MAX_NETWORKS {
            let oldest = networks.iter().min_by_key(|(_, failed)| failed.last).map(|(network, _)| network.clone());
            oldest.and_then(|network| networks.remove(&network));
        }
    }

    /// A line for each network whose last ADD failed and is not long ago, the newest first. A line is the same as long as nothing happens.
    pub(super) fn told(&self, now: Instant) -> Vec<String> {
        let networks = self.lock();
        let is_recent = |failed: &Failed| now.saturating_duration_since(failed.last) < RECENT;
        let mut failed: Vec<_> = networks.iter().filter(|(_, failed)| is_recent(failed)).collect();
        failed.sort_by_key(|(_, failed)| std::cmp::Reverse(failed.last));
        let line = |(network, Failed { count, last: _, why }): (&String, &Failed)| {
            let which = if *count == 1 { "ADD".to_owned() } else { format!("{count} ADDs") };
            format!("the last {which} of network `{network}` failed: {why}")
        };
        let mut lines: Vec<_> = failed.iter().copied().take(TOLD).map(line).collect();
        if let Some(more) = failed.len().checked_sub(TOLD).filter(|more| *more > 0) {
            lines.push(format!("and those of {more} networks more"));
        }
        lines
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Failed>> {
        // Whole between two statements, so a panic elsewhere does not spoil it.
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_until_one_goes_well() {
        let (failures, start) = (Failures::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(failures.told(start), [""; 0]);
        failures.failed("pods", "no address left", at(0));
        assert_eq!(failures.told(at(5)), ["the last ADD of network `pods` failed: no address left"]);
        failures.failed("pods", "still none", at(10));
        failures.failed("other", &"x".repeat(1000), at(11));
        let told = failures.told(at(12));
        assert_eq!(told[1], "the last 2 ADDs of network `pods` failed: still none");
        assert!(told[0].contains("`other`") && told[0].len() < 400, "{told:?}");
        failures.well("pods");
        assert_eq!(failures.told(at(12)).len(), 1);
        assert_eq!(failures.told(at(11) + RECENT), [""; 0], "long ago");
    }

    #[test]
    fn neither_memory_nor_a_status_grows_without_end() {
        let (failures, start) = (Failures::default(), Instant::now());
        for number in 0..1000 {
            failures.failed(&format!("net{number}"), "no", start + Duration::from_secs(number));
        }
        let told = failures.told(start + Duration::from_secs(1000));
        assert_eq!(told.len(), TOLD + 1);
        assert!(told[0].contains("`net999` failed: no"), "{told:?}");
        assert_eq!(told[TOLD], "and those of 61 networks more");
    }
}
