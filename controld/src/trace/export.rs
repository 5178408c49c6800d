//! The way of spans to the collector: a queue that nobody waits for, and a task that sends in batches what is in it.
//!
//! A batch that is not taken is not sent again: the next one comes in seconds, and a collector that comes back is not to find a crowd.

use std::time::Duration;

use common::Chain;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use proto::otlp;
use proto::otlp::any_value::Value;
use proto::otlp::trace_service_client::TraceServiceClient;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::config::Collector;

/// The name of the metric, without its suffix.
const NAME: &str = "virtlet_trace_spans";
/// As conventions have it.
const SERVICE: &str = "virtlet-controld";
/// How long a collector may leave a connection without a sign that it is there, while it is to answer.
const SILENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer, in which there may be a text.
const MAX_ANSWER: usize = 16 << 10;

/// What is kept, and how long something takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Most spans that wait.
    pub(super) queue: usize,
    /// Most of them that are sent at a time.
    pub(super) batch: usize,
    /// How long a batch that is not full waits for more.
    pub(super) gather: Duration,
    /// How long the collector may take for one.
    pub(super) delivery: Duration,
}

/// The way in. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    spans: Sender<otlp::Span>,
    counts: Counts,
}

/// What became of spans, for scrapes, and its two counters.
#[derive(Debug, Clone)]
struct Counts {
    all: Family<Labels, Counter>,
    sent: Counter,
    dropped: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// The task that sends. Dropped, it ends, and what waits is lost.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// What the task has.
struct Sending {
    spans: Receiver<otlp::Span>,
    batch: Vec<otlp::Span>,
    client: TraceServiceClient<Channel>,
    /// For the log.
    collector: String,
    resource: otlp::Resource,
    scope: otlp::InstrumentationScope,
    counts: Counts,
    limits: Limits,
    stop: CancellationToken,
    /// The last batch was not taken.
    fails: bool,
}

/// A batch that was not taken.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("no answer within {} s", .0.as_secs_f32())]
    Late(Duration),
    #[error(transparent)]
    Refused(Box<Status>),
    /// The rest was.
    #[error("{number} of them were not taken: {why}")]
    Rejected { number: u64, why: String },
}

// === impl Limits ===

impl Default for Limits {
    /// As OpenTelemetry's batch processor and its exporters have them.
    fn default() -> Self {
        let (gather, delivery) = (Duration::from_secs(5), Duration::from_secs(10));
        Self { queue: 2048, batch: 512, gather, delivery }
    }
}

// === impl Queue ===

impl Queue {
    /// Takes a span, or drops it if there is no room.
    pub(super) fn push(&self, span: otlp::Span) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.inc();
        }
    }

    /// Has what became of them in what a scrape tells.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help =
            "Spans of traced calls, by what became of them. Dropped: the collector was away, slow or did not want them";
        registry.register(NAME, help, self.counts.all.clone());
    }
}

// === impl Counts ===

impl Default for Counts {
    fn default() -> Self {
        let all = Family::<Labels, Counter>::default();
        let of = |outcome| all.get_or_create_owned(&Labels { outcome });
        Self { sent: of("sent"), dropped: of("dropped"), all }
    }
}

// === impl Exporter ===

impl Exporter {
    /// Begins to send to a collector, to which it connects when it has something.
    pub(super) fn start(collector: &Collector, version: &str, limits: Limits) -> (Queue, Self) {
        let (sender, spans) = channel(limits.queue);
        let (counts, stop) = (Counts::default(), CancellationToken::new());
        let channel = Endpoint::from(collector.uri().clone())
            .connect_timeout(limits.delivery)
            .http2_keep_alive_interval(SILENCE)
            .keep_alive_timeout(SILENCE)
            .connect_lazy();
        let sending = Sending {
            spans,
            batch: Vec::new(),
            client: TraceServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER),
            collector: collector.to_string(),
            resource: resource(version),
            scope: otlp::InstrumentationScope { name: "controld".into(), version: version.to_owned() },
            counts: counts.clone(),
            limits,
            stop: stop.clone(),
            fails: false,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(sending.run()));
        (Queue { spans: sender, counts }, Self { stop, task })
    }

    /// Sends what waits, and takes no more. What the collector has not taken until `deadline` is lost.
    pub(crate) async fn end(self, deadline: Duration) {
        self.stop.cancel();
        if timeout(deadline, self.task).await.is_err() {
            let deadline_s = deadline.as_secs_f32();
            tracing::warn!(deadline_s, "the collector of traces did not take the last spans in time; they are lost");
        }
    }
}

// === impl Sending ===

impl Sending {
    async fn run(mut self) {
        while self.gather().await {
            let number = self.batch.len() as u64;
            let delivered = self.deliver().await;
            let dropped = match &delivered {
                Ok(()) => 0,
                Err(DeliveryError::Rejected { number: rejected, .. }) => number.min(*rejected),
                Err(DeliveryError::Late(_) | DeliveryError::Refused(_)) => number,
            };
            self.counts.sent.inc_by(number - dropped);
            self.counts.dropped.inc_by(dropped);
            self.tell(delivered);
        }
    }

    /// Waits for a batch; false if none comes any more.
    async fn gather(&mut self) -> bool {
        let Limits { batch: most, gather, .. } = self.limits;
        let (spans, batch, stop) = (&mut self.spans, &mut self.batch, &self.stop);
        let full = async {
            let mut came = spans.recv_many(batch, most).await;
            let more = async {
                while came > 0 && batch.len() < most {
                    came = spans.recv_many(batch, most - batch.len()).await;
                }
            };
            // Late is not full.
            let _ = timeout(gather, more).await;
        };
        if stop.run_until_cancelled(full).await.is_none() {
            spans.close();
            // What is there comes without a wait, and then nothing.
            while batch.len() < most && spans.recv_many(batch, most - batch.len()).await > 0 {}
        }
        !batch.is_empty()
    }

    async fn deliver(&mut self) -> Result<(), DeliveryError> {
        let spans = std::mem::take(&mut self.batch);
        let scope_spans = vec![otlp::ScopeSpans { scope: Some(self.scope.clone()), spans }];
        let of_us = otlp::ResourceSpans { resource: Some(self.resource.clone()), scope_spans };
        let request = otlp::ExportTraceServiceRequest { resource_spans: vec![of_us] };
        let answer = timeout(self.limits.delivery, self.client.export(request)).await;
        let answer = answer.map_err(|_elapsed| DeliveryError::Late(self.limits.delivery))?;
        let answer = answer.map_err(|status| DeliveryError::Refused(Box::new(status)))?.into_inner();
        match answer.partial_success {
            Some(partly) if partly.rejected_spans > 0 => {
                Err(DeliveryError::Rejected { number: partly.rejected_spans.unsigned_abs(), why: partly.error_message })
            }
            _ => Ok(()),
        }
    }

    /// Says when the collector ceases to take spans, and when it takes them again.
    fn tell(&mut self, delivered: Result<(), DeliveryError>) {
        let collector = &self.collector;
        match (&delivered, self.fails) {
            (Err(error), false) => {
                let what = "collector does not take spans of traces, which are dropped; calls go on";
                tracing::warn!(collector, error = %Chain(error), "{what}");
            }
            (Ok(()), true) => tracing::info!(collector, "collector takes spans of traces again"),
            _ => {}
        }
        self.fails = delivered.is_err();
    }
}

/// Who sends.
fn resource(version: &str) -> otlp::Resource {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let attributes = [
        ("service.name", SERVICE.to_owned()),
        ("service.version", version.to_owned()),
        ("host.name", host.to_string_lossy().into_owned()),
    ];
    otlp::Resource { attributes: attributes.map(|(key, value)| attribute(key, Value::StringValue(value))).into() }
}

/// What is known of a span, or of who sends it.
pub(super) fn attribute(key: &str, value: Value) -> otlp::KeyValue {
    otlp::KeyValue { key: key.to_owned(), value: Some(otlp::AnyValue { value: Some(value) }) }
}
