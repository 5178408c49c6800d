//! The calls there are, how long each may take, and how long they took.
//!
//! What clients send makes no new series: a call is one of the table or [`OTHER`].

use std::fmt;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;
use tonic::codegen::http::Request;

use self::table::CALLS;
use super::passed_on::PassedOn;
use crate::trace::{Place, Span, Tracer};

mod table;

/// The name of the metric, without its unit.
const NAME: &str = "virtlet_call_duration";
/// Upper bounds in seconds, from what is answered from memory to what waits for guests.
const BUCKETS: [f64; 15] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0];
/// The longest that answers from memory, or from one look at the node, may take.
const LOOK: Option<Duration> = Some(Duration::from_secs(60));
/// The longest that work on a pod may take. Each of its steps has a deadline of its own, which says more.
const WORK: Option<Duration> = Some(Duration::from_secs(900));
/// Calls whose parts have deadlines, and that take as long as who asks wants: a grace, a download, all events.
const OPEN: Option<Duration> = None;
/// Whatever else a client may send.
const OTHER: Call = Call { name: "other", longest: LOOK, streams: false };

/// What is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) name: &'static str,
    /// How long it may take at most.
    pub(super) longest: Option<Duration>,
    /// The answer is a stream of messages.
    pub(super) streams: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    call: &'static str,
    code: &'static str,
}

/// How long calls took, by call and by gRPC's code, and their spans. Clones share it.
#[derive(Clone)]
pub struct Calls {
    took: Family<Labels, Histogram, fn() -> Histogram>,
    tracer: Tracer,
    /// What is in no table may be of another runtime, and as long as who asks wants.
    passes_on: bool,
}

/// A call under way. Dropped before its end, the client is gone.
#[derive(Debug)]
pub(super) struct Running {
    calls: Calls,
    name: &'static str,
    began: Instant,
    code: Code,
    /// What the answer says beside it.
    message: String,
    span: Option<Span>,
    /// Such a call is not counted here.
    passed_on: PassedOn,
}

// === impl Call ===

impl Call {
    const fn one(name: &'static str, longest: Option<Duration>) -> Self {
        Self { name, longest, streams: false }
    }

    const fn stream(name: &'static str, longest: Option<Duration>) -> Self {
        Self { name, longest, streams: true }
    }

    /// The call at a path.
    fn of(path: &str) -> Self {
        let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
            return OTHER;
        };
        let known = CALLS.iter().find(|(of, called, _)| *called == method && *of == service);
        known.map_or(OTHER, |(_, _, call)| *call)
    }
}

// === impl Calls ===

impl Default for Calls {
    fn default() -> Self {
        Self::traced(Tracer::default())
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl Calls {
    /// Calls whose spans are this one's.
    pub(crate) fn traced(tracer: Tracer) -> Self {
        Self { took: Family::new_with_constructor(|| Histogram::new(BUCKETS)), tracer, passes_on: false }
    }

    /// Of a daemon that passes calls on which it does not know.
    #[must_use]
    pub fn passing_on(self) -> Self {
        Self { passes_on: true, ..self }
    }

    /// The call at a path.
    pub(super) fn call(&self, path: &str) -> Call {
        let call = Call::of(path);
        let is_others = self.passes_on && call.name == OTHER.name;
        if is_others { Call { longest: OPEN, streams: true, ..call } } else { call }
    }

    /// Has them in what a scrape tells.
    pub fn register(&self, registry: &mut Registry) {
        let help = "How long calls to controld's socket took, by what was called and the code of the answer. \
                    Canceled: the client was gone before";
        registry.register_with_unit(NAME, help, Unit::Seconds, self.took.clone());
        self.tracer.register(registry);
    }

    pub(super) fn begin<B>(&self, call: Call, request: &mut Request<B>) -> Running {
        let known = call.name != OTHER.name;
        let span = known.then(|| self.tracer.begin(request.uri().path(), request.headers())).flatten();
        let passed_on = PassedOn::default();
        if self.passes_on {
            request.extensions_mut().insert(passed_on.clone());
        }
        let (began, code, message) = (Instant::now(), Code::Cancelled, String::new());
        Running { calls: self.clone(), name: call.name, began, code, message, span, passed_on }
    }
}

// === impl Running ===

impl Running {
    pub(super) fn end(mut self, code: Code, message: &str) {
        self.code = code;
        message.clone_into(&mut self.message);
    }

    /// Where what is done for the call belongs in its trace, if it has one.
    pub(super) fn place(&self) -> Option<Place> {
        self.span.as_ref().map(|span| span.place().clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.passed_on.is() {
            let labels = Labels { call: self.name, code: name(self.code) };
            self.calls.took.get_or_create(&labels).observe(self.began.elapsed().as_secs_f64());
        }
        if let Some(span) = self.span.take() {
            span.answered(self.code, &self.message);
        }
    }
}

/// As other exporters of gRPC's metrics write them.
pub(crate) fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Package and service, method, and whether it streams its answer, of each call of a protocol.
    fn methods(proto: &str) -> Vec<(String, String, bool)> {
        let word = |line: &str, before: &str| {
            let rest = line.trim().strip_prefix(before)?;
            Some(rest.split(['(', ' ', ';', '{']).next().unwrap_or_default().to_owned())
        };
        let package = proto.lines().find_map(|line| word(line, "package ")).expect("a package");
        let mut service = String::new();
        let mut methods = Vec::new();
        for line in proto.lines() {
            if let Some(name) = word(line, "service ") {
                service = format!("{package}.{name}");
            }
            if let Some(name) = word(line, "rpc ") {
                methods.push((
                    service.clone(),
                    name,
                    line.split(" returns ").nth(1).is_some_and(|answer| answer.contains("(stream ")),
                ));
            }
        }
        methods
    }

    #[test]
    fn every_call_is_in_the_table_once() {
        let protos = [
            include_str!("../../../../proto/cri/api.proto"),
            include_str!("../../../../proto/images/admin.proto"),
            include_str!("../../../../proto/machines/machines.proto"),
            include_str!("../../../../proto/orphans/orphans.proto"),
        ];
        let mut there: Vec<_> = protos.iter().flat_map(|proto| methods(proto)).collect();
        let mut known: Vec<_> =
            CALLS.iter().map(|(service, method, call)| ((*service).into(), (*method).into(), call.streams)).collect();
        there.sort();
        known.sort();
        assert_eq!(known, there);
        let mut names: Vec<_> = CALLS.iter().map(|(_, _, call)| call.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CALLS.len());
    }

    #[test]
    fn what_is_no_call_is_other() {
        assert_eq!(Call::of("/runtime.v1.RuntimeService/Version").name, "Version");
        let calls = Calls::default().passing_on();
        assert!(calls.call("/runtime.v1.RuntimeService/Version").longest.is_some());
        assert!(calls.call("/runtime.v1.RuntimeService/HibernatePod").longest.is_none(), "another runtime's");
        for path in ["", "/", "/x", "/runtime.v1.RuntimeService/version", "/runtime.v1alpha2.RuntimeService/Version"] {
            assert_eq!(Call::of(path).name, "other", "{path}");
        }
    }
}
