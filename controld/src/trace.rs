//! Spans of calls, for a collector of OpenTelemetry's (OTLP over gRPC): where the time of a call went, in the trace of kubelet's that the
//! call belongs to.
//!
//! The edge of the API begins a span for each call ([`Tracer::begin`]) and says how it was answered. Work of the call finds the span in
//! its task ([`here`]): it [notes](note) which pod the call is about, and what it asks of other programs is a [`step`] with a span below. The
//! daemon starts the [`Exporter`], which sends spans in batches, and ends it.
//!
//! - No call fails or waits because of its trace. What a caller says and nobody understands counts as not said ([`context`]). Spans for
//!   which the queue has no room, and those that the collector does not take, are dropped and counted ([`export`]).
//! - A trace that is not sampled has no spans, whoever decided that: the caller, or for those that begin here the configured rate.
//!
//! Instead of OpenTelemetry's own crates; see docs/adr/0043-spans-without-opentelemetrys-crates.md.

mod context;
mod export;
mod here;
mod rate;
mod span;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tonic::codegen::http::HeaderMap;
use uuid::Uuid;

use self::context::Parent;
pub(crate) use self::export::Exporter;
use self::export::{Limits, Queue};
pub(crate) use self::here::{carried, here, note, step, within};
use self::rate::Rate;
pub(crate) use self::span::{Place, Span};
use crate::config::TracingConfig;

/// Begins spans of calls. Clones share the way to the collector; that by default leads nowhere, and begins none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracer(Option<Arc<Sampled>>);

/// What is traced, and where it goes.
#[derive(Debug)]
struct Sampled {
    /// Of traces that begin here.
    rate: Rate,
    queue: Queue,
}

impl Tracer {
    /// Spans for the collector of the configuration, if there is one, and who sends them. `version` is what we say ours is.
    pub(crate) fn start(config: Option<&TracingConfig>, version: &str) -> (Self, Option<Exporter>) {
        let Some(config) = config else { return (Self::default(), None) };
        tracing::info!(collector = %config.endpoint, "calls are traced");
        Self::with(config, version, Limits::default())
    }

    fn with(config: &TracingConfig, version: &str, limits: Limits) -> (Self, Option<Exporter>) {
        let (queue, exporter) = Exporter::start(&config.endpoint, version, limits);
        let sampled = Sampled { rate: Rate::per_million(config.sampling_rate_per_million), queue };
        (Self(Some(Arc::new(sampled))), Some(exporter))
    }

    /// The span of a call that has come in with these headers, if its trace is sampled. `path` is gRPC's, and one that there is.
    pub(crate) fn begin(&self, path: &str, headers: &HeaderMap) -> Option<Span> {
        let Sampled { rate, queue } = self.0.as_deref()?;
        match Parent::of(headers) {
            Some(parent) => parent.sampled.then(|| Span::of_call(queue.clone(), parent.trace, Some(parent), path)),
            None => {
                let trace = Uuid::new_v4().into_bytes();
                rate.takes(&trace).then(|| Span::of_call(queue.clone(), trace, None, path))
            }
        }
    }

    /// Has what became of spans in what a scrape tells.
    pub(crate) fn register(&self, registry: &mut Registry) {
        if let Some(sampled) = &self.0 {
            sampled.queue.register(registry);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
