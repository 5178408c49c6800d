//! Against an API server that says what a test tells it to. A real one is in the test bed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use imagestore::Problem;
use kube::client::Body;
use serde_json::{Value, json};
use tonic::codegen::http;

use super::*;

/// What the server answers to one request: a status and its body's lines. After the last line a watch stays open.
type Answer = (u16, Vec<Value>);

/// A client of a server with these answers, in their order; further requests are never answered. And what was asked.
fn server(answers: Vec<Answer>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let log = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, answers) = (log.clone(), answers.clone());
        async move {
            log.lock().expect("a log").push(request.uri().to_string());
            let answer = answers.lock().expect("answers").pop_front();
            let Some((status, lines)) = answer else { return std::future::pending().await };
            let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
            let body = Body::from(text.concat().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).expect("an answer"))
        }
    });
    (Client::new(service, "default"), asked)
}

fn object(name: &str, version: u32, spec: &Value) -> Value {
    json!({
        "apiVersion": "virtlet.k8s/v1", "kind": "VirtletImageMapping",
        "metadata": {"name": name, "namespace": "kube-system", "resourceVersion": version.to_string()},
        "spec": spec,
    })
}

fn rule(name: &str) -> Value {
    json!({"translations": [{"name": name, "url": "https://h.example/x"}]})
}

fn list(objects: &[Value]) -> Answer {
    let list = json!({
        "apiVersion": "virtlet.k8s/v1", "kind": "VirtletImageMappingList",
        "metadata": {"resourceVersion": "10"}, "items": objects,
    });
    (200, vec![list])
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn refused(status: u16, reason: &str) -> Answer {
    let status_object = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": reason, "code": status,
    });
    (status, vec![status_object])
}

/// Follows the server until nothing more happens, or the session ends. The mappings, and how it ended.
async fn followed(answers: Vec<Answer>, mappings: &Mappings) -> (Option<WatchError>, Vec<String>) {
    let (client, asked) = server(answers);
    let (said, _listed) = watch::channel(false);
    let ended = follow(client, "kube-system", mappings, &said).await.expect_err("never done");
    let asked = asked.lock().expect("a log").clone();
    // The clock runs by itself while everybody waits, so a watch without news ends in silence.
    let ended = (!matches!(ended, WatchError::Silent { .. })).then_some(ended);
    (ended, asked)
}

#[tokio::test(start_paused = true)]
async fn rules_follow_the_cluster() {
    let mappings = Mappings::default();
    mappings.put("of-before", &rule("x").to_string());
    let watched = vec![
        event("ADDED", &object("c", 11, &rule("c"))),
        event("DELETED", &object("a", 12, &rule("a"))),
        event("MODIFIED", &object("b", 13, &json!({"translations": [{"name": "b"}]}))),
    ];
    let listed = list(&[object("a", 1, &rule("a")), object("b", 2, &rule("b"))]);
    let (ended, asked) = followed(vec![listed, (200, watched)], &mappings).await;
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(mappings.names(), ["b", "c"]);
    let path = "/apis/virtlet.k8s/v1/namespaces/kube-system/virtletimagemappings?";
    assert!(asked.len() >= 3 && asked.iter().all(|uri| uri.starts_with(path)), "{asked:?}");
    // What follows a watch that ended goes on where it stopped.
    assert!(asked[2].contains("resourceVersion=13"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_spoils_only_itself() {
    let mappings = Mappings::default();
    let mut without_spec = object("no-spec", 4, &json!({}));
    without_spec.as_object_mut().expect("an object").remove("spec");
    let listed = list(&[
        object("text", 1, &json!("translations: {}")),
        object("unknown", 2, &json!({"tranlations": []})),
        object("bad-rule", 3, &json!({"translations": [{"regexp": "(", "url": "h"}, {"name": "ok", "url": "h"}]})),
        without_spec,
        object("null", 5, &json!(null)),
        object("good", 6, &rule("good")),
    ]);
    let (ended, _) = followed(vec![listed], &mappings).await;
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(mappings.names(), ["bad-rule", "good", "no-spec", "null", "text", "unknown"]);
    // Said once more, they are as bad as they were.
    let problems = |name: &str, spec: &Value| mappings.put(name, &spec.to_string());
    assert!(matches!(problems("text", &json!("translations: {}"))[..], [Problem::File { .. }]));
    assert!(matches!(problems("unknown", &json!({"tranlations": []}))[..], [Problem::File { .. }]));
    assert!(matches!(problems("no-spec", &json!({}))[..], []));
    assert!(matches!(problems("null", &json!(null))[..], []));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_the_session_and_leaves_the_rules() {
    for answer in
        [refused(404, "NotFound"), refused(403, "Forbidden"), refused(401, "Unauthorized"), (200, vec![json!("x")])]
    {
        let mappings = Mappings::default();
        mappings.put("known", &rule("x").to_string());
        let (ended, _) = followed(vec![answer], &mappings).await;
        assert!(matches!(ended, Some(WatchError::Api(_))), "{ended:?}");
        assert_eq!(mappings.names(), ["known"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_takes_nothing_away() {
    let mappings = Mappings::default();
    mappings.put("known", &rule("x").to_string());
    let mut first_page = list(&[object("a", 1, &rule("a"))]);
    first_page.1[0]["metadata"]["continue"] = json!("more");
    let (ended, asked) = followed(vec![first_page, refused(500, "InternalError")], &mappings).await;
    assert!(matches!(ended, Some(WatchError::Api(_))), "{ended:?}");
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    assert!(mappings.names().contains(&"known".to_owned()));
}

#[tokio::test]
async fn the_start_waits_for_nobody() {
    let config = Cluster { kubeconfig: Some("/nonexistent/kubeconfig".into()), namespace: "kube-system".into() };
    let mut watching = Watching::start(config, Mappings::default());
    assert!(!watching.listed(Duration::from_millis(1)).await);
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config");
    for text in ["", "{", "users: [{name: u, user: {token: secret}}]\ncurrent-context: none"] {
        std::fs::write(&path, text).expect("written");
        let error = access(Some(&path), WATCH_SILENCE).await.expect_err("unusable");
        let said = Chain(&error).to_string();
        assert!(said.starts_with(&format!("failed to read kubeconfig `{}`", path.display())), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named_before_the_start_and_a_server_after_it() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("kubeconfig");
    let mut config = ImagesConfig { kubeconfig: Some(path.clone()), ..ImagesConfig::default() };
    check(&config).await.expect("no rules of a cluster are wanted");
    config.kube_mappings = true;
    let told = |error: &SessionError| Chain(error).to_string().replace(dir.path().to_str().expect("UTF-8"), "DIR");
    let absent = told(&check(&config).await.expect_err("absent"));
    assert!(
        absent.starts_with("failed to read kubeconfig `DIR/kubeconfig`: ") && absent.contains("No such"),
        "{absent}"
    );
    std::fs::write(&path, "current-context: nobody\n").expect("written");
    let without = told(&check(&config).await.expect_err("no such context"));
    assert!(without.starts_with("failed to read kubeconfig") && without.contains("nobody"), "{without}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("port");
    let text = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], users: [{{name: u, user: {{}}}}], \
         clusters: [{{name: k, cluster: {{server: 'http://{closed}'}}}}]}}"
    );
    std::fs::write(&path, text).expect("written");
    check(&config).await.expect("asks nobody");
    let cluster = Cluster { kubeconfig: Some(path), namespace: "kube-system".into() };
    let (said, _listed) = watch::channel(false);
    let refused = told(&session(&cluster, &Mappings::default(), &said).await.expect_err("closed"));
    let wanted = format!("failed to watch image mappings of the cluster at `http://{closed}/`: ");
    assert!(refused.starts_with(&wanted), "{refused}");
}
