use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kube::client::Body;
use serde_json::{Value, json};
use tonic::codegen::http;

use super::super::report::{Known, Report};
use super::*;
use crate::api::cri::convert::tests::{container, sandbox};

/// What a server was asked: method (`TRY` of a patch that is not made), path, type of the body, and its JSON.
pub(in super::super) type Asked = Arc<Mutex<Vec<(String, String, String, Value)>>>;

/// A way to a server that answers each request so: by method and body.
pub(in super::super) fn way(answer: impl Fn(&str, &Value) -> (u16, Value) + Clone + Send + 'static) -> (Way, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, answer) = (log.clone(), answer.clone());
        async move {
            let (head, body) = request.into_parts();
            let is_dry = head.uri.query().is_some_and(|query| query.contains("dryRun=All"));
            let method = if is_dry { "TRY".to_owned() } else { head.method.to_string() };
            let path = head.uri.path().to_owned();
            let of = head.headers.get("content-type").and_then(|of| of.to_str().ok()).unwrap_or_default().to_owned();
            let body = body.collect_bytes().await.expect("a body");
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, told) = answer(&method, &body);
            log.lock().expect("a log").push((method, path, of, body));
            let body = Body::from(told.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).expect("an answer"))
        }
    });
    let way = Way::new("/none/kubeconfig".into());
    way.keep(Some(Clients(Client::new(service, "default"))));
    (way, asked)
}

pub(in super::super) fn pod_of(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm", "namespace": "ns", "uid": uid}, "status": {}})
}

fn refused(code: u16) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "code": code,
    });
    (code, status)
}

fn report() -> Report {
    Report::of(&container(), &sandbox(), &Known::default())
}

fn pod() -> PodName {
    PodName::of(&sandbox())
}

fn calls(asked: &Asked) -> Vec<String> {
    asked.lock().expect("a log").iter().map(|(method, path, ..)| format!("{method} {path}")).collect()
}

const STATUS: &str = "/api/v1/namespaces/ns/pods/vm/status";

#[tokio::test]
async fn a_pod_is_read_once_and_patched_if_it_has_not_all() {
    let (way, asked) = way(|_, _| (200, pod_of("u-1")));
    let there = way.tell(&pod(), &report(), None).await.expect("told");
    assert!(report().is_in(&there));
    assert_eq!(calls(&asked), [format!("TRY {STATUS}"), format!("PATCH {STATUS}")]);
    assert_eq!(asked.lock().expect("a log")[0].3, json!({"metadata": {"uid": "u-1"}}));
    let (.., of, patch) = asked.lock().expect("a log")[1].clone();
    assert_eq!((&*of, &patch["metadata"]["uid"]), ("application/strategic-merge-patch+json", &json!("u-1")));
    way.tell(&pod(), &report(), Some(there)).await.expect("told");
    assert_eq!(calls(&asked).len(), 2, "nothing is told twice");
}

#[tokio::test]
async fn a_pod_that_is_refused_is_no_way_that_is_lost() {
    for code in [403, 409, 422, 429] {
        let (way, _) = way(move |method, _| if method == "TRY" { (200, pod_of("u-1")) } else { refused(code) });
        // One that has the annotation, and not that nobody answers.
        let report = Report::of(&container(), &sandbox(), &Known { has_agent: Some(true), ..Known::default() });
        let there = report.over(Report::default());
        let silent = Report::of(&container(), &sandbox(), &Known { has_agent: Some(false), ..Known::default() });
        let told = way.tell(&pod(), &silent, Some(there)).await;
        assert!(matches!(told, Err(Untold::Refused(why)) if why.contains("failed to patch")), "{code}");
        assert!(!way.is_lost.load(Ordering::Relaxed) && way.client.lock().expect("a client").is_some());
    }
}

#[tokio::test]
async fn a_pod_that_takes_no_annotation_has_the_conditions() {
    let (way, asked) = way(|method, body| match body.pointer("/metadata/annotations") {
        Some(_) if method == "PATCH" => refused(422),
        _ => (200, pod_of("u-1")),
    });
    let answers = Report::of(&container(), &sandbox(), &Known { has_agent: Some(true), ..Known::default() });
    let there = way.tell(&pod(), &answers, None).await.expect("told");
    assert!(answers.is_in(&there), "it is not tried again and again");
    let last = asked.lock().expect("a log").last().cloned().expect("a patch").3;
    assert_eq!(last["metadata"], json!({"uid": "u-1"}));
    assert_eq!(last["status"]["conditions"][0]["status"], "True");
    assert_eq!(calls(&asked).len(), 3);
}

#[tokio::test]
async fn a_pod_that_is_gone_is_told_of_no_more() {
    let (gone, _) = way(|_, _| refused(404));
    assert_eq!(gone.tell(&pod(), &report(), None).await, Err(Untold::Gone));
    let (invalid, _) = way(|_, _| refused(422));
    assert_eq!(invalid.tell(&pod(), &report(), None).await, Err(Untold::Gone), "its uid does not change");
    let (another, asked) = way(|_, _| (200, pod_of("u-2")));
    assert_eq!(another.tell(&pod(), &report(), None).await, Err(Untold::Gone));
    assert_eq!(calls(&asked).len(), 1);
}

#[tokio::test]
async fn a_way_that_is_lost_is_looked_for_anew_and_logged_once() {
    let (way, asked) = way(|_, _| refused(500));
    for _ in 0..3 {
        assert_eq!(way.tell(&pod(), &report(), None).await, Err(Untold::Failed));
    }
    assert_eq!(calls(&asked).len(), 1, "later ones had no client, as there is no such kubeconfig");
    assert!(way.is_lost.load(Ordering::Relaxed));
    let (another, _) = self::way(|_, _| (200, pod_of("u-1")));
    way.keep(another.client.lock().expect("a client").clone());
    way.tell(&pod(), &report(), None).await.expect("told");
    assert!(!way.is_lost.load(Ordering::Relaxed));
}
