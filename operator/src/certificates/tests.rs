//! Replicas at an API server that has the two objects, and nothing else.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use http_body_util::BodyExt as _;
use hyper::{Method, Request, Response, StatusCode};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

#[derive(Default)]
struct Objects {
    secret: Option<Value>,
    configuration: Option<Value>,
    version: u64,
    /// Calls that change something, as they came.
    calls: Vec<&'static str>,
    /// Whether somebody else is quicker at the next change.
    is_late: bool,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Objects>>);

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = server.with(|objects| objects.answer(&head.method, head.uri.path(), body));
                let response = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        Client::new(service, "default")
    }

    fn keeper(&self) -> (Keeper<MutatingWebhookConfiguration>, Current) {
        let place = Place {
            namespace: "virtlet-system".to_owned(),
            service: "virtlet-operator".to_owned(),
            secret: "virtlet-operator-tls",
            told_in: "virtlet-presets".to_owned(),
        };
        Keeper::new(self.client(), place)
    }

    fn with<T>(&self, what: impl FnOnce(&mut Objects) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn calls(&self) -> Vec<&'static str> {
        self.with(|objects| std::mem::take(&mut objects.calls))
    }

    fn install(&self) {
        let webhook = json!({
            "name": "presets.virtlet.k8s", "clientConfig": {"url": "https://x"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"]
        });
        let made = json!({"metadata": {"name": "virtlet-presets", "resourceVersion": "1"}, "webhooks": [webhook]});
        self.with(|objects| objects.configuration = Some(made));
    }

    fn bundle(&self) -> Option<Value> {
        self.with(|objects| objects.configuration.as_ref()?.pointer("/webhooks/0/clientConfig/caBundle").cloned())
    }

    fn authorities(&self) -> Option<Value> {
        self.with(|objects| objects.secret.as_ref()?.pointer("/data/ca.crt").cloned())
    }
}

impl Objects {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let is_secret = path.contains("/secrets");
        let known = if is_secret { &mut self.secret } else { &mut self.configuration };
        let now = known.as_ref().and_then(|known| known.pointer("/metadata/resourceVersion")).cloned();
        match *method {
            Method::GET => {
                return known.clone().map_or_else(|| failed(404, "NotFound"), |known| (StatusCode::OK, known));
            }
            Method::POST if known.is_some() || self.is_late => return failed(409, "AlreadyExists"),
            Method::PUT | Method::PATCH if known.is_none() => return failed(404, "NotFound"),
            Method::PUT | Method::PATCH
                if self.is_late || body.pointer("/metadata/resourceVersion") != now.as_ref() =>
            {
                return failed(409, "Conflict");
            }
            _ => {}
        }
        self.version += 1;
        self.calls.push(match *method {
            Method::POST => "create",
            Method::PUT => "replace",
            _ => "patch",
        });
        match known {
            Some(known) if *method == Method::PATCH => {
                let bundle = body["webhooks"][0]["clientConfig"]["caBundle"].clone();
                known["webhooks"][0]["clientConfig"]["caBundle"] = bundle;
            }
            _ => *known = Some(body),
        }
        let known = known.as_mut().expect("was set");
        known["metadata"]["resourceVersion"] = json!(self.version.to_string());
        (StatusCode::OK, known.clone())
    }
}

fn failed(code: u16, reason: &str) -> (StatusCode, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code});
    (StatusCode::from_u16(code).expect("a code"), status)
}

fn day(day: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + day * 24 * 3600).expect("a time")
}

/// Looks until there is nothing else to do.
async fn settle(keeper: &mut Keeper<MutatingWebhookConfiguration>, now: Timestamp) {
    for _ in 0..5 {
        match keeper.look(now).await.expect("looked") {
            Look::Done => return,
            Look::Again => {}
            Look::Settles => tokio::time::advance(SETTLE).await,
        }
    }
    panic!("there is always something else to do");
}

fn shown(current: &Current) -> Option<Arc<ServerConfig>> {
    current.borrow().clone()
}

fn is_same(one: &Current, other: &Option<Arc<ServerConfig>>) -> bool {
    shown(one).zip(other.clone()).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
}

#[tokio::test(start_paused = true)]
async fn the_first_makes_it_the_others_take_it() {
    let server = Server::default();
    server.install();
    let ((mut a, shown_by_a), (mut b, shown_by_b)) = (server.keeper(), server.keeper());
    // Neither has found any.
    assert_eq!(a.look(day(0)).await, Ok(Look::Again));
    server.with(|objects| objects.is_late = true);
    assert_eq!(b.make(None, None, day(0)).await, Ok(Look::Again));
    server.with(|objects| objects.is_late = false);
    settle(&mut b, day(0)).await;
    settle(&mut a, day(0)).await;
    assert_eq!(server.calls(), ["create", "patch"]);
    assert_eq!(server.bundle(), server.authorities());
    assert!(shown(&shown_by_a).is_some() && shown(&shown_by_b).is_some());
    assert_eq!(a.used, b.used);
    // Nothing is left to do.
    let before = shown(&shown_by_a);
    settle(&mut a, day(1)).await;
    assert!(is_same(&shown_by_a, &before) && server.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_by_one_and_the_others_take_that() {
    let server = Server::default();
    server.install();
    let ((mut a, shown_by_a), (mut b, shown_by_b)) = (server.keeper(), server.keeper());
    settle(&mut a, day(0)).await;
    settle(&mut b, day(0)).await;
    let (first, bundle) = (shown(&shown_by_a), server.bundle());
    server.calls();
    tokio::time::advance(PAUSE * 2).await;
    // Somebody else is quicker, and has not written yet.
    server.with(|objects| objects.is_late = true);
    assert_eq!(b.look(day(61)).await, Ok(Look::Again));
    server.with(|objects| objects.is_late = false);
    settle(&mut a, day(61)).await;
    settle(&mut b, day(61)).await;
    assert_eq!(server.calls(), ["replace"]);
    assert_eq!(server.bundle(), bundle);
    assert_eq!(a.used, b.used);
    assert!(!is_same(&shown_by_a, &first) && shown(&shown_by_b).is_some());
}

#[tokio::test(start_paused = true)]
async fn another_authority_is_trusted_before_it_is_used() {
    let server = Server::default();
    server.install();
    let (mut keeper, current) = server.keeper();
    settle(&mut keeper, day(0)).await;
    let first = shown(&current);
    tokio::time::advance(PAUSE * 2).await;
    assert_eq!(keeper.look(day(2440)).await, Ok(Look::Again));
    // The API server does not take it.
    server.with(|objects| objects.is_late = true);
    assert_eq!(keeper.look(day(2440)).await, Ok(Look::Again));
    assert!(is_same(&current, &first));
    server.with(|objects| objects.is_late = false);
    for _ in 0..2 {
        assert_eq!(keeper.look(day(2440)).await, Ok(Look::Settles));
        assert!(is_same(&current, &first));
        tokio::time::advance(SETTLE / 2).await;
    }
    assert_eq!(keeper.look(day(2440)).await, Ok(Look::Done));
    assert!(!is_same(&current, &first));
    assert_eq!(server.calls(), ["create", "patch", "replace", "patch"]);
    assert_eq!(server.bundle(), server.authorities());
}

#[tokio::test(start_paused = true)]
async fn a_configuration_may_come_later_and_again() {
    let server = Server::default();
    let (mut keeper, current) = server.keeper();
    settle(&mut keeper, day(0)).await;
    assert!(shown(&current).is_some());
    assert_eq!(server.calls(), ["create"]);
    for _ in 0..2 {
        server.install();
        settle(&mut keeper, day(0)).await;
        assert_eq!(server.bundle(), server.authorities());
        assert_eq!(server.calls(), ["patch"]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_secret_there_is_another_authority_and_the_one_before_is_trusted_yet() {
    let server = Server::default();
    server.install();
    let ((mut a, shown_by_a), (mut b, _)) = (server.keeper(), server.keeper());
    settle(&mut a, day(0)).await;
    settle(&mut b, day(0)).await;
    let (first, before) = (shown(&shown_by_a), a.used.clone().expect("used"));
    server.with(|objects| objects.secret = None);
    tokio::time::advance(PAUSE * 2).await;
    settle(&mut b, day(1)).await;
    assert!(is_same(&shown_by_a, &first));
    let authorities = &b.used.as_ref().expect("used").authorities;
    assert!(authorities.ends_with(&before.authorities) && *authorities != before.authorities);
    assert_eq!(server.bundle(), server.authorities());
    settle(&mut a, day(1)).await;
    assert_eq!(a.used, b.used);
}

#[tokio::test(start_paused = true)]
async fn two_clocks_make_no_storm() {
    let server = Server::default();
    let ((mut a, _), (mut b, _)) = (server.keeper(), server.keeper());
    settle(&mut a, day(0)).await;
    settle(&mut b, day(400)).await;
    assert!(a.look(day(0)).await.is_err());
    assert_eq!(server.calls(), ["create", "replace"]);
    tokio::time::advance(PAUSE * 2).await;
    settle(&mut a, day(0)).await;
}
