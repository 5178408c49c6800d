//! Which checkpoints are being made, and how those before came out since controld began, for metrics.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use uuid::Uuid;

/// Names of the metrics, without their units.
const ENDED: &str = "virtlet_checkpoints_ended";
const WRITTEN: &str = "virtlet_checkpoints_written";
const RESTORED: &str = "virtlet_checkpoints_restored";
const WARM: &str = "virtlet_warm_starts";
const PAUSE: &str = "virtlet_checkpoint_pause_duration";
/// Upper bounds in seconds: memory of a tiny guest that stays in the cache, and that of a large one on a slow disk.
const BUCKETS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The figures. Clones share them.
#[derive(Debug, Clone)]
pub struct Tally {
    ended: Family<Labels, Counter>,
    restored: Family<Labels, Counter>,
    warm: Family<Labels, Counter>,
    bytes: Counter,
    paused: Histogram,
    making: Arc<Mutex<BTreeSet<Uuid>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// How a checkpoint has come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With so many bytes in its files, holes too.
    Written(u64),
    Failed,
    /// Its caller has left, its machine was to stop, or controld goes down.
    GivenUp,
}

/// How a VM of a runtime handler with warm starts has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WarmStart {
    /// With a checkpoint of its image's boot.
    Begun,
    /// It was to, and has booted.
    Failed,
    /// There was none, or something was in the way.
    Booted,
}

/// A checkpoint that is being made. Dropped before its end, it was given up.
#[derive(Debug)]
pub(super) struct Making {
    tally: Tally,
    id: Uuid,
    outcome: Outcome,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            ended: Family::default(),
            restored: Family::default(),
            warm: Family::default(),
            bytes: Counter::default(),
            paused: Histogram::new(BUCKETS),
            making: Arc::default(),
        }
    }
}

impl Tally {
    /// Has them in what a scrape tells.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Checkpoints that came to an end since the start of controld. Given up: whoever asked is gone, the machine was to stop, or \
                    controld went down";
        registry.register(ENDED, help, self.ended.clone());
        let help = "Bytes of the checkpoints that were written since the start of controld, holes in their files too";
        registry.register_with_unit(WRITTEN, help, Unit::Bytes, self.bytes.clone());
        let help = "How long guests stood still for checkpoints of which memory and disks were written";
        registry.register_with_unit(PAUSE, help, Unit::Seconds, self.paused.clone());
        let help = "Calls to make a pod of a checkpoint since the start of controld, by what came of them";
        registry.register(RESTORED, help, self.restored.clone());
        let help = "VMs of runtime handlers with warm starts that were started since the start of controld: begun with a checkpoint; failed to, \
                    and booted; or booted, as there was none or something was in the way";
        registry.register(WARM, help, self.warm.clone());
        // So that a rate sees the first of each.
        for is_made in [true, false] {
            drop(self.restored.get_or_create(&restored(is_made)));
        }
        for how in [WarmStart::Begun, WarmStart::Failed, WarmStart::Booted] {
            drop(self.warm.get_or_create(&Labels { outcome: how.name() }));
        }
        for outcome in [Outcome::Written(0), Outcome::Failed, Outcome::GivenUp] {
            drop(self.ended.get_or_create(&Labels { outcome: outcome.name() }));
        }
    }

    /// A pod was made of a checkpoint, or was not.
    pub(super) fn restored(&self, is_made: bool) {
        self.restored.get_or_create(&restored(is_made)).inc();
    }

    /// A VM of a handler with warm starts was started.
    pub(super) fn warm_start(&self, how: WarmStart) {
        self.warm.get_or_create(&Labels { outcome: how.name() }).inc();
    }

    /// A checkpoint of this name is begun.
    pub(super) fn begin(&self, id: Uuid) -> Making {
        self.making().insert(id);
        Making { tally: self.clone(), id, outcome: Outcome::GivenUp }
    }

    /// A guest stood still so long.
    pub(super) fn paused(&self, time: Duration) {
        self.paused.observe(time.as_secs_f64());
    }

    /// Whether the checkpoint of this name is being made: what there is of another one is left.
    pub(super) fn is_making(&self, id: Uuid) -> bool {
        self.making().contains(&id)
    }

    fn making(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn restored(is_made: bool) -> Labels {
    Labels { outcome: if is_made { "made" } else { "failed" } }
}

impl WarmStart {
    const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Failed => "failed",
            Self::Booted => "booted",
        }
    }
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Written(_) => "written",
            Self::Failed => "failed",
            Self::GivenUp => "given_up",
        }
    }
}

impl Making {
    /// It has come to its end.
    pub(super) fn ended(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.tally.making().remove(&self.id);
        self.tally.ended.get_or_create(&Labels { outcome: self.outcome.name() }).inc();
        if let Outcome::Written(bytes) = self.outcome {
            self.tally.bytes.inc_by(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn checkpoints_are_counted_by_how_they_came_out() {
        let (tally, id) = (Tally::default(), Uuid::from_u128(1));
        let making = tally.begin(id);
        assert!(tally.is_making(id) && !tally.is_making(Uuid::nil()));
        tally.paused(Duration::from_millis(300));
        making.ended(Outcome::Written(7));
        assert!(!tally.is_making(id));
        tally.begin(id).ended(Outcome::Failed);
        drop(tally.begin(id));
        tally.restored(true);
        tally.warm_start(WarmStart::Begun);
        let (mut registry, mut text) = (Registry::default(), String::new());
        tally.register(&mut registry);
        encode(&mut text, &registry).expect("written");
        for line in [
            r#"virtlet_checkpoints_ended_total{outcome="written"} 1"#,
            r#"virtlet_checkpoints_ended_total{outcome="failed"} 1"#,
            r#"virtlet_checkpoints_restored_total{outcome="made"} 1"#,
            r#"virtlet_checkpoints_restored_total{outcome="failed"} 0"#,
            r#"virtlet_checkpoints_ended_total{outcome="given_up"} 1"#,
            r#"virtlet_warm_starts_total{outcome="begun"} 1"#,
            r#"virtlet_warm_starts_total{outcome="booted"} 0"#,
            "virtlet_checkpoints_written_bytes_total 7",
            "virtlet_checkpoint_pause_duration_seconds_count 1",
            r#"virtlet_checkpoint_pause_duration_seconds_bucket{le="0.25"} 0"#,
            r#"virtlet_checkpoint_pause_duration_seconds_bucket{le="0.5"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }
}
