//! A span: made when something begins, and sent when it has ended.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use common::now_nanos;
use proto::otlp;
use proto::otlp::any_value::Value;
use proto::otlp::span::SpanKind;
use proto::otlp::status::StatusCode;
use tonic::Code;
use uuid::Uuid;

use super::context::Parent;
use super::export::{Queue, attribute};

/// Most characters of why something failed.
const MAX_REASON: usize = 1000;

/// A span under way. Its end is when this is dropped.
#[derive(Debug)]
pub(crate) struct Span {
    place: Place,
    began: Instant,
    /// Why what it is of failed; at first, that nobody came to say so.
    failure: Option<String>,
}

/// Where something belongs in a trace: in this span. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Queue,
    trace: [u8; 16],
    id: [u8; 8],
    state: String,
    /// What is known of the span; nothing once it was sent.
    known: Mutex<otlp::Span>,
}

/// What of a span is known when it begins.
struct Begun {
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    state: String,
    name: String,
    kind: SpanKind,
}

// === impl Span ===

impl Span {
    /// That of a call of ours at gRPC's `path`, named as OpenTelemetry's conventions for RPC have it.
    pub(super) fn of_call(queue: Queue, trace: [u8; 16], parent: Option<Parent>, path: &str) -> Self {
        let name = path.trim_start_matches('/');
        let (service, method) = name.split_once('/').unwrap_or_default();
        let (parent, state) = parent.map(|parent| (parent.span, parent.state)).unzip();
        let state = state.unwrap_or_default();
        let span = Self::begin(queue, Begun { trace, parent, state, name: name.to_owned(), kind: SpanKind::Server });
        span.place.note("rpc.system", "grpc");
        span.place.note("rpc.service", service);
        span.place.note("rpc.method", method);
        span
    }

    /// That of `what` is asked of another program, `peer`, within `place`.
    pub(super) fn of_step(place: &Place, peer: &str, what: &str) -> Self {
        let Shared { queue, trace, id, state, .. } = &*place.0;
        let span = Self::begin(
            queue.clone(),
            Begun {
                trace: *trace,
                parent: Some(*id),
                state: state.clone(),
                name: format!("{peer}: {what}"),
                kind: SpanKind::Client,
            },
        );
        span.place.note("peer.service", peer);
        span
    }

    fn begin(queue: Queue, Begun { trace, parent, state, name, kind }: Begun) -> Self {
        // Never of zeros alone, which would be no id: some bits of a UUID are those of its version.
        let id = Uuid::new_v4().as_u64_pair().1.to_be_bytes();
        let known = otlp::Span {
            trace_id: trace.into(),
            span_id: id.into(),
            trace_state: state.clone(),
            parent_span_id: parent.map(Vec::from).unwrap_or_default(),
            name,
            kind: kind.into(),
            start_time_unix_nano: now_nanos().unsigned_abs(),
            ..otlp::Span::default()
        };
        let place = Place(Arc::new(Shared { queue, trace, id, state, known: Mutex::new(known) }));
        Self { place, began: Instant::now(), failure: Some("given up before its end".into()) }
    }

    /// Within the span.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The call is answered so.
    pub(crate) fn answered(mut self, code: Code, message: &str) {
        self.place.add("rpc.grpc.status_code", Value::IntValue(i32::from(code).into()));
        // By OpenTelemetry's conventions for servers: what is the client's own fault is no failure.
        let failed = matches!(
            code,
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        );
        self.failure = failed.then(|| message.to_owned());
    }

    /// What it is of has ended so.
    pub(super) fn ended(mut self, failure: Option<String>) {
        self.failure = failure;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let mut span = mem::take(&mut *self.place.known());
        let took = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        span.end_time_unix_nano = span.start_time_unix_nano.saturating_add(took);
        span.status = self.failure.take().map(|reason| otlp::Status {
            message: reason.chars().take(MAX_REASON).collect(),
            code: StatusCode::Error.into(),
        });
        self.place.0.queue.push(span);
    }
}

// === impl Place ===

impl Place {
    /// What the span is about. The last word on each key counts.
    pub(super) fn note(&self, key: &str, value: impl Into<String>) {
        self.add(key, Value::StringValue(value.into()));
    }

    fn add(&self, key: &str, value: Value) {
        let attributes = &mut self.known().attributes;
        attributes.retain(|said| said.key != key);
        attributes.push(attribute(key, value));
    }

    fn known(&self) -> MutexGuard<'_, otlp::Span> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
