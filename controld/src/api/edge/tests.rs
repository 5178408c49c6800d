//! An edge around services of one line.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tonic::codegen::http::HeaderMap;
use tower::{ServiceExt as _, service_fn};
use vmspec::SandboxConfig;

use super::*;
use crate::api::span;
use crate::api::status::finish;
use crate::trace::tests::collector::{Fake, Manner, said, spans};
use crate::trace::tests::of_all;

fn request(method: &str) -> Request<Body> {
    let service = if method.contains("Image") { "ImageService" } else { "RuntimeService" };
    Request::builder().uri(format!("/runtime.v1.{service}/{method}")).body(Body::empty()).expect("a request")
}

fn counts(calls: &Calls) -> Vec<String> {
    let mut registry = Registry::default();
    calls.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("written");
    let counts = text.lines().filter_map(|line| line.strip_prefix("virtlet_call_duration_seconds_count"));
    let mut counts: Vec<_> = counts.map(str::to_owned).collect();
    counts.sort();
    counts
}

fn streaming(code: &str) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.parse().expect("a value"));
    let body = http_body_util::Empty::<bytes::Bytes>::new();
    Response::new(Body::new(body.with_trailers(ready(Some(Ok(trailers))))))
}

#[tokio::test]
async fn each_call_counts_with_its_code() {
    let calls = Calls::default();
    let answer = async |method: &str, response: Response<Body>| {
        let answering = service_fn(move |_request: Request<Body>| {
            let response =
                Status::from_header_map(response.headers()).map_or_else(|| streaming("14"), Status::into_http);
            ready(Ok::<_, Infallible>(response))
        });
        EdgeLayer(calls.clone()).layer(answering).oneshot(request(method)).await.expect("answered")
    };
    let ok = || Status::ok("").into_http();
    let refused = || Status::not_found("no sandbox").into_http();
    answer("Version", ok()).await;
    answer("PodSandboxStatus", refused()).await;
    answer("StreamContainers", refused()).await;
    let stream = answer("GetContainerEvents", streaming("14")).await;
    assert_eq!(counts(&calls).len(), 3, "a stream counts when it has ended");
    stream.into_body().collect().await.expect("read");
    // Its client leaves.
    drop(answer("GetContainerEvents", streaming("14")).await);
    assert_eq!(
        counts(&calls),
        [
            r#"{call="GetContainerEvents",code="Canceled"} 1"#,
            r#"{call="GetContainerEvents",code="Unavailable"} 1"#,
            r#"{call="PodSandboxStatus",code="NotFound"} 1"#,
            r#"{call="StreamContainers",code="NotFound"} 1"#,
            r#"{call="Version",code="OK"} 1"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_given_up_at_the_first_deadline() {
    let calls = Calls::default();
    let edge = || EdgeLayer(calls.clone()).layer(service_fn(|_: Request<Body>| pending::<Result<_, Infallible>>()));
    for (given, method, wanted) in [
        (None, "Status", Duration::from_secs(60)),
        (None, "StartContainer", Duration::from_secs(900)),
        (Some("2S"), "StartContainer", Duration::from_millis(1980)),
        (Some("99H"), "StartContainer", Duration::from_secs(900)),
        (Some("1S"), "PullImage", Duration::from_millis(980)),
    ] {
        let mut request = request(method);
        if let Some(given) = given {
            request.headers_mut().insert("grpc-timeout", given.parse().expect("a value"));
        }
        let begun = Instant::now();
        let response = edge().oneshot(request).await.expect("answered");
        let status = Status::from_header_map(response.headers()).expect("a status");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{method}");
        assert_eq!(begun.elapsed().as_millis(), wanted.as_millis(), "{method}");
    }
    let response = edge().oneshot(request("Version")).await.expect("answered");
    let status = Status::from_header_map(response.headers()).expect("a status");
    assert_eq!(status.message(), "`Version` was not answered within 60 s");
    // A pull takes as long as it takes, and counts when its client is gone.
    let a_day = Duration::from_secs(86_400);
    assert!(tokio::time::timeout(a_day, edge().oneshot(request("PullImage"))).await.is_err(), "it goes on");
    assert!(counts(&calls).contains(&r#"{call="PullImage",code="Canceled"} 1"#.to_owned()), "{:?}", counts(&calls));
}

#[tokio::test]
async fn what_is_passed_on_to_another_runtime_is_counted_there() {
    let calls = Calls::default().passing_on();
    let answering = service_fn(|request: Request<Body>| async move {
        if request.uri().path().ends_with("Exec") {
            PassedOn::note(request.extensions());
        }
        Ok::<_, Infallible>(Status::ok("").into_http())
    });
    for method in ["Exec", "Version"] {
        EdgeLayer(calls.clone()).layer(answering).oneshot(request(method)).await.expect("answered");
    }
    assert_eq!(counts(&calls), [r#"{call="Version",code="OK"} 1"#]);
}

#[tokio::test]
async fn a_call_is_a_span_that_its_work_is_part_of() {
    let mut collector = Fake::start(Manner::Takes).await;
    let (tracer, exporter) = of_all(&collector);
    let calls = Calls::traced(tracer);
    let answering = service_fn(|request: Request<Body>| async move {
        if request.uri().path().ends_with("Events") {
            return Ok::<_, Infallible>(streaming("14"));
        }
        span::about_sandbox("abc", &SandboxConfig { name: "web".into(), ..SandboxConfig::default() });
        let attach = async { trace::step("tapmanager", "attach", async { Ok(()) }).await };
        let done = finish(attach).await.and(Err(Status::internal("a bug, 100 % sure")));
        Ok(done.map_or_else(Status::into_http, |()| Status::ok("").into_http()))
    });
    let call = async |method| {
        let edge = EdgeLayer(calls.clone()).layer(answering);
        edge.oneshot(request(method)).await.expect("answered")
    };
    call("RunPodSandbox").await;
    call("GetContainerEvents").await.into_body().collect().await.expect("read");
    // What is no call has none.
    call("version").await;
    exporter.end(Duration::from_secs(60)).await;

    let sent = spans(collector.next().await);
    let [attach, run, events] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(attach.parent_span_id, run.span_id);
    let run_said = said(&run.attributes);
    for wanted in ["k8s.pod.name=web", "sandbox.id=abc", "rpc.grpc.status_code=13"] {
        assert!(run_said.iter().any(|said| said == wanted), "{run_said:?}");
    }
    let failures = [run, events].map(|span| span.status.as_ref().map(|status| status.message.as_str()));
    assert_eq!(failures, [Some("a bug, 100 % sure"), Some("")]);
}

#[tokio::test]
async fn a_collector_that_hangs_holds_up_no_call() {
    let collector = Fake::start(Manner::Hangs).await;
    let (tracer, _exporter) = of_all(&collector);
    let calls = Calls::traced(tracer);
    // More than are sent at a time.
    for _ in 0..300 {
        let answering = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Status::ok("").into_http())));
        EdgeLayer(calls.clone()).layer(answering).oneshot(request("Version")).await.expect("answered");
    }
    assert_eq!(counts(&calls), [r#"{call="Version",code="OK"} 300"#]);
}
