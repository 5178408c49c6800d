//! What the operator says of itself to Prometheus and to kubelet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds of how long one object takes, in seconds.
const BOUNDS: [f64; 8] = [0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];

/// What a program says of itself.
pub(crate) trait Facts: Send + Sync + 'static {
    /// What it waits for until it can do its work; `None` when it can.
    fn waits_for(&self) -> Option<&'static str>;

    /// Its figures, in Prometheus' text format.
    fn text(&self) -> String;
}

/// Figures of the operator.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciled: Family<Done, Counter>,
    seconds: Family<Of, Histogram>,
    leads: Gauge,
    synced: Gauge,
    ready: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Done {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    kind: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("virtlet_operator");
        let reconciled = Family::default();
        let seconds = Family::new_with_constructor((|| Histogram::new(BOUNDS)) as fn() -> Histogram);
        let leads = Gauge::default();
        registry.register("reconciles", "Objects looked at, by kind and by how that ended", reconciled.clone());
        registry.register("reconcile_seconds", "How long one object took", seconds.clone());
        registry.register("leads", "Whether this operator is the one that writes", leads.clone());
        let synced = Gauge::default();
        registry.register("synced", "Whether all objects are known", synced.clone());
        Self { registry, reconciled, seconds, leads, synced, ready: AtomicBool::new(false) }
    }
}

impl Metrics {
    /// Notes that an object of a kind was looked at.
    pub fn reconciled(&self, kind: &'static str, is_done: bool, took: Duration) {
        let result = if is_done { "done" } else { "failed" };
        self.reconciled.get_or_create(&Done { kind, result }).inc();
        self.seconds.get_or_create(&Of { kind }).observe(took.as_secs_f64());
    }

    /// Notes that this operator is the one that writes.
    pub fn leads(&self) {
        self.leads.set(1);
    }

    /// Notes that all objects are known.
    pub fn is_synced(&self) {
        self.synced.set(1);
    }

    /// Notes that all presets are known, so that the API server can be answered.
    pub fn becomes_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }
}

impl Facts for Metrics {
    fn waits_for(&self) -> Option<&'static str> {
        let is_ready = self.ready.load(Ordering::Relaxed);
        (!is_ready).then_some("presets are not known yet, or there is no certificate")
    }

    fn text(&self) -> String {
        text(&self.registry)
    }
}

/// All that a registry has, in Prometheus' text format.
pub(crate) fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // A String takes everything.
    let _ = encode(&mut text, registry);
    text
}
