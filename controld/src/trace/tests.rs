//! Spans from their begin to a collector.

pub(crate) mod collector;

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use proto::otlp::span::SpanKind;
use proto::otlp::status::StatusCode;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tonic::Code;
use vmspec::error::{Error, Kind};

use self::collector::{Fake, Manner, said, spans};
use super::*;
use crate::config::Collector;
use crate::logged::logged;

const PATH: &str = "/runtime.v1.RuntimeService/RunPodSandbox";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const ALL: u32 = 1_000_000;
/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);
/// As long as a test may wait for nothing.
const SHORT: Duration = Duration::from_millis(50);

/// Batches go out when they are full, or at the end.
const AT_THE_END: Limits = Limits { queue: 100, batch: 100, gather: LONG, delivery: LONG };

/// Spans for the collector at `address`, with `limits`.
fn tracer(address: impl ToString, rate: u32, limits: Limits) -> (Tracer, Exporter) {
    let endpoint = Collector::try_from(address.to_string()).expect("a collector");
    let config = TracingConfig { endpoint, sampling_rate_per_million: rate };
    let (tracer, exporter) = Tracer::with(&config, "1.2.3", limits);
    (tracer, exporter.expect("it sends"))
}

/// The same, for tests of those who begin spans: all calls, and no batch before the end.
pub(crate) fn of_all(collector: &Fake) -> (Tracer, Exporter) {
    tracer(collector.address, ALL, AT_THE_END)
}

fn headers(traceparent: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", traceparent.parse().expect("a value"));
    headers
}

fn counts(tracer: &Tracer) -> Vec<String> {
    let (mut registry, mut text) = (Registry::default(), String::new());
    tracer.register(&mut registry);
    encode(&mut text, &registry).expect("written");
    let mut counts: Vec<_> =
        text.lines().filter_map(|line| Some(line.strip_prefix("virtlet_trace_spans_total")?.to_owned())).collect();
    counts.sort();
    counts
}

fn counted(dropped: u64, sent: u64) -> Vec<String> {
    vec![format!(r#"{{outcome="dropped"}} {dropped}"#), format!(r#"{{outcome="sent"}} {sent}"#)]
}

/// One call, and where it was answered with `code`.
fn call(tracer: &Tracer, code: Code) {
    tracer.begin(PATH, &HeaderMap::new()).expect("sampled").answered(code, "why not");
}

#[tokio::test]
async fn a_span_is_of_the_trace_of_its_caller_and_its_steps_are_below_it() {
    let mut collector = Fake::start(Manner::Takes).await;
    let (tracer, exporter) = tracer(collector.address, 0, AT_THE_END);
    let mut headers = headers(&format!("00-{TRACE}-b7ad6b7169203331-01"));
    headers.insert("tracestate", "k=v".parse().expect("a value"));
    let span = tracer.begin(PATH, &headers).expect("sampled");
    within(Some(span.place().clone()), async {
        note("sandbox.id", "first");
        note("sandbox.id", "abc");
        // In a task of its own, as calls that go on without their client are.
        let asked = async { step("tapmanager", "attach", async { Ok(()) }).await };
        tokio::spawn(carried(asked)).await.expect("ended").expect("well");
        step("libvirt", "define the machine", async { Err::<(), _>(Error::new(Kind::Internal, "no such emulator")) })
            .await
            .expect_err("an error");
    })
    .await;
    span.answered(Code::Ok, "");
    exporter.end(LONG).await;

    let sent = collector.next().await;
    let resource = said(&sent.resource.as_ref().expect("a resource").attributes);
    assert_eq!(resource[..2], ["service.name=virtlet-controld", "service.version=1.2.3"]);
    assert!(resource[2].starts_with("host.name="), "{resource:?}");
    let sent = spans(sent);
    let [attach, define, call] = &sent[..] else { panic!("{sent:?}") };
    for span in &sent {
        assert_eq!(span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), TRACE);
        assert_eq!((span.span_id.len(), span.trace_state.as_str()), (8, "k=v"));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.start_time_unix_nano > 0, "{span:?}");
    }
    assert_eq!(call.name, "runtime.v1.RuntimeService/RunPodSandbox");
    assert_eq!((call.kind(), call.status.is_none()), (SpanKind::Server, true));
    assert_eq!(call.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    let of_call = [
        "rpc.system=grpc",
        "rpc.service=runtime.v1.RuntimeService",
        "rpc.method=RunPodSandbox",
        "sandbox.id=abc",
        "rpc.grpc.status_code=0",
    ];
    assert_eq!(said(&call.attributes), of_call);
    assert_eq!(
        (attach.name.as_str(), attach.kind(), attach.status.is_none()),
        ("tapmanager: attach", SpanKind::Client, true)
    );
    assert_eq!(
        (&attach.parent_span_id, said(&attach.attributes)),
        (&call.span_id, vec!["peer.service=tapmanager".to_owned()])
    );
    let failure = define.status.as_ref().expect("it failed");
    assert_eq!((failure.code(), failure.message.as_str()), (StatusCode::Error, "no such emulator"));
    assert_eq!(counts(&tracer), counted(0, 3));
}

#[tokio::test]
async fn a_caller_decides_and_without_one_the_rate_does() {
    let (of_all, _exporter) = tracer("localhost:4317", ALL, AT_THE_END);
    let (of_none, _exporter) = tracer("localhost:4317", 0, AT_THE_END);
    let (sampled, not) = (format!("00-{TRACE}-b7ad6b7169203331-01"), format!("00-{TRACE}-b7ad6b7169203331-00"));
    for (said, by_all, by_none) in [(&*sampled, true, true), (&not, false, false), ("nonsense", true, false)] {
        let begun = |tracer: &Tracer| tracer.begin(PATH, &headers(said)).is_some();
        assert_eq!((begun(&of_all), begun(&of_none)), (by_all, by_none), "{said}");
    }
    let begun = |tracer: &Tracer| tracer.begin(PATH, &HeaderMap::new()).is_some();
    assert_eq!((begun(&of_all), begun(&of_none), begun(&Tracer::default())), (true, false, false));
}

#[tokio::test]
async fn a_trace_that_begins_here_has_no_parent_and_an_id_of_its_own() {
    let mut collector = Fake::start(Manner::Takes).await;
    let (tracer, exporter) = of_all(&collector);
    tracer.begin(PATH, &headers("nonsense")).expect("sampled").answered(Code::Ok, "");
    call(&tracer, Code::Ok);
    exporter.end(LONG).await;
    let sent = spans(collector.next().await);
    let [first, second] = &sent[..] else { panic!("{sent:?}") };
    assert!(sent.iter().all(|span| span.parent_span_id.is_empty() && span.trace_id.len() == 16), "{sent:?}");
    assert!(first.trace_id != second.trace_id && first.span_id != second.span_id, "{sent:?}");
}

#[tokio::test]
async fn what_is_not_the_clients_fault_is_a_failure() {
    let mut collector = Fake::start(Manner::Takes).await;
    let (tracer, exporter) = of_all(&collector);
    let codes = [Code::Ok, Code::NotFound, Code::Cancelled, Code::Internal, Code::Unavailable, Code::Unknown];
    codes.iter().for_each(|code| call(&tracer, *code));
    drop(tracer.begin(PATH, &HeaderMap::new()));
    exporter.end(LONG).await;
    let failures: Vec<_> =
        spans(collector.next().await).into_iter().map(|span| span.status.map(|status| status.message)).collect();
    let why = || Some("why not".to_owned());
    let given_up = Some("given up before its end".to_owned());
    assert_eq!(failures, [None, None, None, why(), why(), why(), given_up]);
}

#[tokio::test]
async fn what_the_queue_has_no_room_for_is_dropped_at_once_and_a_collector_that_hangs_does_not_hold_up_the_end() {
    let collector = Fake::start(Manner::Hangs).await;
    let limits = Limits { queue: 10, batch: 10, gather: Duration::ZERO, delivery: LONG };
    let (tracer, exporter) = tracer(collector.address, ALL, limits);
    // Nothing waits in here, so the task that sends does not come to its turn.
    (0..100).for_each(|_| call(&tracer, Code::Ok));
    assert_eq!(counts(&tracer), counted(90, 0));
    let began = Instant::now();
    exporter.end(SHORT).await;
    assert!((SHORT..LONG).contains(&began.elapsed()), "{:?}", began.elapsed());
    // Whoever is late does not find anybody.
    call(&tracer, Code::Ok);
    assert_eq!(counts(&tracer), counted(91, 0));
}

#[tokio::test]
async fn what_is_not_taken_is_dropped() {
    for (manner, delivery, dropped) in
        [(Manner::Hangs, SHORT, 5), (Manner::Refuses, LONG, 5), (Manner::Rejects(2), LONG, 2), (Manner::Takes, LONG, 0)]
    {
        let collector = Fake::start(manner).await;
        let (tracer, exporter) = tracer(collector.address, ALL, Limits { delivery, ..AT_THE_END });
        (0..5).for_each(|_| call(&tracer, Code::Ok));
        exporter.end(LONG).await;
        assert_eq!(counts(&tracer), counted(dropped, 5 - dropped), "{manner:?}");
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_a_collector_that_takes_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (tracer, exporter) = tracer(address, ALL, AT_THE_END);
    (0..5).for_each(|_| call(&tracer, Code::Ok));
    exporter.end(LONG).await;
    assert_eq!(counts(&tracer), counted(5, 0));
}

#[tokio::test]
async fn spans_go_out_in_batches() {
    let mut collector = Fake::start(Manner::Takes).await;
    let (tracer, exporter) = tracer(collector.address, ALL, Limits { batch: 4, ..AT_THE_END });
    (0..10).for_each(|_| call(&tracer, Code::Ok));
    exporter.end(LONG).await;
    assert_eq!(collector.heard().iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
}

#[tokio::test]
async fn a_batch_that_is_not_full_goes_out_after_a_while() {
    let mut collector = Fake::start(Manner::Takes).await;
    let (tracer, _exporter) = tracer(collector.address, ALL, Limits { gather: SHORT, ..AT_THE_END });
    for _ in 0..2 {
        call(&tracer, Code::Ok);
        assert_eq!(spans(timeout(LONG, collector.next()).await.expect("sent")).len(), 1);
    }
}

#[test]
fn it_is_told_once_that_a_collector_is_away() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let text = logged(|| {
        runtime.block_on(async {
            let collector = Fake::start(Manner::Refuses).await;
            let (tracer, exporter) = tracer(collector.address, ALL, Limits { batch: 1, ..AT_THE_END });
            (0..3).for_each(|_| call(&tracer, Code::Ok));
            exporter.end(LONG).await;
        });
    });
    assert_eq!(text.matches("collector does not take spans").count(), 1, "{text}");
    assert!(text.contains("too many"), "{text}");
}
