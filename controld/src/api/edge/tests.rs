//! An edge around services of one line.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tower::{ServiceExt as _, service_fn};

use super::*;

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
        assert_eq!(code(response.headers()), Some(Code::DeadlineExceeded), "{method}");
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
