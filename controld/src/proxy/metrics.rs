//! Figures of the proxy: what was forwarded, whether the default is there, and what was answered in its place.
//!
//! Labels are names of the protocol, never what clients or the default send.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

use super::side::Side;
use crate::api::edge;

/// Upper bounds in seconds.
const BUCKETS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Forwarded {
    call: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCall {
    call: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeftOut {
    call: &'static str,
    side: &'static str,
}

/// The figures. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    forwarded: Family<Forwarded, Histogram, fn() -> Histogram>,
    stale: Family<OfCall, Counter>,
    merged: Family<OfCall, Gauge>,
    up: Gauge<i64, AtomicI64>,
    left_out: Family<LeftOut, Counter>,
    age: Family<OfCall, Gauge<f64, AtomicU64>>,
    lost: Counter,
    running: Gauge<i64, AtomicI64>,
}

/// A call under way at the default. Dropped before its end, it was given up: its client is gone, or its deadline has passed.
#[derive(Debug)]
pub(super) struct Running {
    metrics: Metrics,
    call: &'static str,
    began: Instant,
    code: Code,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            forwarded: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            stale: Family::default(),
            merged: Family::default(),
            up: Gauge::default(),
            left_out: Family::default(),
            age: Family::default(),
            lost: Counter::default(),
            running: Gauge::default(),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Has them in what a scrape tells.
    pub fn register(&self, registry: &mut Registry) {
        let help =
            "How long calls took that went to the container runtime, by what was called and the code of its answer";
        registry.register_with_unit("virtlet_proxy_forwarded_duration", help, Unit::Seconds, self.forwarded.clone());
        let help = "Answers with the container runtime's last good one in place of its own, by what was called";
        registry.register("virtlet_proxy_stale_answers", help, self.stale.clone());
        let help = "Answers of both runtimes without the part of one of them, by what was called and whose";
        registry.register("virtlet_proxy_parts_left_out", help, self.left_out.clone());
        let help =
            "Length of the last whole answer of both runtimes together, by what was called; kubelet takes 16 MiB";
        registry.register_with_unit("virtlet_proxy_merged", help, Unit::Bytes, self.merged.clone());
        let help = "1 if the container runtime can be asked, else 0";
        registry.register("virtlet_proxy_runtime_up", help, self.up.clone());
        let help = "Age of the last good list that was answered last in place of the container runtime's own, by what was called; 0 while its own are";
        registry.register_with_unit("virtlet_proxy_last_good_age", help, Unit::Seconds, self.age.clone());
        let help = "Calls that the container runtime is answering";
        registry.register("virtlet_proxy_calls_running", help, self.running.clone());
        let help = "How often the container runtime could not be asked any more: its connection was lost, or it answered nothing over it";
        registry.register("virtlet_proxy_connections_lost", help, self.lost.clone());
    }

    pub(super) fn begin(&self, call: &'static str) -> Running {
        self.running.inc();
        Running { metrics: self.clone(), call, began: Instant::now(), code: Code::Cancelled }
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> i64 {
        self.running.get()
    }

    /// A last good answer of this age was given.
    pub(super) fn stale(&self, call: &'static str, age: std::time::Duration) {
        self.stale.get_or_create(&OfCall { call }).inc();
        self.age.get_or_create(&OfCall { call }).set(age.as_secs_f64());
    }

    /// The default's own answer was given.
    pub(super) fn fresh(&self, call: &'static str) {
        self.age.get_or_create(&OfCall { call }).set(0.0);
    }

    /// An answer has nothing of this side.
    pub(super) fn left_out(&self, call: &'static str, side: Side) {
        let side = match side {
            Side::Default => "container_runtime",
            Side::Ours => "virtual_machines",
        };
        self.left_out.get_or_create(&LeftOut { call, side }).inc();
    }

    pub(super) fn merged(&self, call: &'static str, bytes: usize) {
        self.merged.get_or_create(&OfCall { call }).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn up(&self, up: bool) {
        let was = self.up.set(i64::from(up));
        if was == 1 && !up {
            self.lost.inc();
        }
    }
}

impl Running {
    pub(super) fn end(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.running.dec();
        let labels = Forwarded { call: self.call, code: edge::name_of(self.code) };
        self.metrics.forwarded.get_or_create(&labels).observe(self.began.elapsed().as_secs_f64());
    }
}
