//! An API server on loopback, and the node behind it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::{Value, json};
use streaming::websocket::{BINARY, Decoder, Piece, accept, write};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::instance::Clients;
use crate::objects::Vmi;

const DONE: &[u8] = b"\x03{\"status\":\"Success\"}";
/// More than is taken, on the stream of what a command says.
const LONG: &[u8] = &[1; (1 << 20) + 2];
const BUSY: &[u8] = b"\x03{\"status\":\"Failure\",\"message\":\"x\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"69\"}]}}";

/// What it has and has heard.
pub(super) struct Objects {
    machine: Value,
    pub(super) instance: Value,
    pub(super) pod: Value,
    allowed: Option<&'static str>,
    reviews: Vec<Value>,
    patches: Vec<(String, Value)>,
    /// So many patches come too late.
    late: usize,
    words: Vec<String>,
}

#[derive(Clone)]
pub(super) struct Api {
    objects: Arc<Mutex<Objects>>,
    client: Client,
}

impl Api {
    pub(super) async fn start() -> Self {
        let owner = |kind: &str, uid: &str| json!([{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "db", "uid": uid, "controller": true}]);
        let of = |uid: &str| json!({"name": "db", "namespace": "default", "uid": uid, "resourceVersion": "7"});
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": of("vm-uid"), "spec": {"runStrategy": "Always"},
        });
        let mut instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": of("vmi-uid"), "spec": {},
            "status": {"phase": "Running"},
        });
        instance["metadata"]["ownerReferences"] = owner("VirtualMachine", "vm-uid");
        let vmi: Vmi = serde_json::from_value(instance.clone()).expect("an instance");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
            "metadata": {
                "name": crate::vmi::pod_name(&vmi), "namespace": "default", "uid": "pod-uid",
                "ownerReferences": owner("VirtualMachineInstance", "vmi-uid"),
            },
        });
        let objects = Objects {
            machine,
            instance,
            pod,
            allowed: None,
            reviews: Vec::new(),
            patches: Vec::new(),
            late: 0,
            words: Vec::new(),
        };
        let objects = Arc::new(Mutex::new(objects));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(serve(listener, Arc::clone(&objects)));
        let config = kube::Config::new(at.parse().expect("an address"));
        Self { objects, client: Client::try_from(config).expect("a client") }
    }

    pub(super) fn clients(&self) -> Clients {
        Clients { calls: self.client.clone(), streams: self.client.clone() }
    }

    pub(super) fn with<T>(&self, what: impl FnOnce(&mut Objects) -> T) -> T {
        what(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this subresource is allowed, and no other.
    pub(super) fn allow(&self, subresource: &'static str) {
        self.with(|objects| objects.allowed = Some(subresource));
    }

    pub(super) fn is_late(&self, times: usize) {
        self.with(|objects| objects.late = times);
    }

    /// Answers a request of an annotation, as the operator does.
    pub(super) fn answer_request(&self) {
        self.with(|objects| objects.machine["metadata"]["annotations"] = Value::Null);
    }

    pub(super) fn reviews(&self) -> Vec<Value> {
        self.with(|objects| objects.reviews.clone())
    }

    pub(super) fn patches(&self) -> Vec<(String, Value)> {
        self.with(|objects| std::mem::take(&mut objects.patches))
    }

    /// Words of the last command.
    pub(super) fn words(&self) -> Vec<String> {
        self.with(|objects| objects.words.clone())
    }
}

async fn serve(listener: TcpListener, objects: Arc<Mutex<Objects>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let objects = Arc::clone(&objects);
        let service = service_fn(move |request| {
            let objects = Arc::clone(&objects);
            async move { Ok::<_, Infallible>(answer(request, &objects).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades());
    }
}

async fn answer(mut request: Request<Incoming>, objects: &Mutex<Objects>) -> Response<Full<Bytes>> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    if let Some(key) = request.headers().get("sec-websocket-key").and_then(|key| accept(key.to_str().ok()?)) {
        let upgrade = hyper::upgrade::on(&mut request);
        return switch(&path, &query, upgrade, &key, objects);
    }
    let method = request.method().clone();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let found = match path.rsplit('/').next() {
        Some("subjectaccessreviews") => {
            let at = &body["spec"]["resourceAttributes"];
            let asked =
                format!("{}/{}", at["resource"].as_str().unwrap_or(""), at["subresource"].as_str().unwrap_or(""));
            let allowed = objects.allowed.is_none_or(|one| one == asked);
            objects.reviews.push(body.clone());
            let mut review = body;
            review["status"] = json!({"allowed": allowed});
            Some(review)
        }
        Some("db") if path.contains("/virtualmachines/") && method == Method::PATCH => {
            objects.patches.push((query.clone(), body.clone()));
            if objects.late > 0 {
                objects.late -= 1;
                return told(
                    409,
                    &json!({"kind": "Status", "reason": "Conflict", "code": 409, "message": "late", "status": "Failure"}),
                );
            }
            if !query.contains("dryRun") {
                objects.machine["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
            }
            Some(objects.machine.clone())
        }
        Some("db") if path.contains("/virtualmachines/") => Some(objects.machine.clone()),
        Some("db") if path.contains("/virtualmachineinstances/") => Some(objects.instance.clone()),
        name if path.contains("/pods/") && name == objects.pod["metadata"]["name"].as_str() => {
            Some(objects.pod.clone())
        }
        _ => None,
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    let missing = || json!({"kind": "Status", "reason": "NotFound", "code": 404, "message": format!("\"{name}\" not found"), "status": "Failure"});
    found.map_or_else(|| told(404, &missing()), |found| told(200, &found))
}

fn told(code: u16, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response
}

/// Begins what a node does.
fn switch(path: &str, query: &str, upgrade: OnUpgrade, key: &str, objects: &Mutex<Objects>) -> Response<Full<Bytes>> {
    let commands = query.split('&').filter_map(|pair| pair.strip_prefix("command="));
    let decoded = |word: &str| percent_encoding::percent_decode_str(word).decode_utf8_lossy().into_owned();
    let words: Vec<String> = commands.map(decoded).collect();
    let takes = words.iter().any(|word| word == "--take");
    let (said, echoes): (&[&[u8]], _) = match words.first().map(String::as_str) {
        Some("virtlet:softreboot") => (&[b"\x02no agent answers\n", BUSY], false),
        Some("virtlet:userlist") => {
            (&[b"\x01{\"metadata\":{},", b"\x01\"items\":[{\"userName\":\"root\"}]}", DONE], false)
        }
        Some("virtlet:guestosinfo") => (&[b"\x01no JSON", DONE], false),
        Some("virtlet:filesystemlist") => (&[LONG, DONE], false),
        Some("virtlet:screenshot") => (&[b"\x01PNG", DONE], false),
        Some("virtlet:vnc") if !takes => (&[b"\x02a viewer is there", BUSY], false),
        Some("virtlet:vnc") => (&[b"\x01RFB 003.008\n"], true),
        Some(_) => (&[DONE], false),
        None if path.ends_with("/portforward") => (&[b"\x00\x16\x00", b"\x01\x16\x00"], true),
        None => (&[], true),
    };
    if !words.is_empty() {
        objects.lock().unwrap_or_else(PoisonError::into_inner).words = words;
    }
    let back = u8::from(!path.ends_with("/portforward"));
    let mut out = BytesMut::new();
    for message in said {
        write(BINARY, &[message], &mut out);
    }
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.expect("upgraded"));
        // Who has heard enough leaves.
        let said = io.write_all(&out).await;
        if echoes && said.is_ok() {
            echo(io, back).await;
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", key)
        .header("sec-websocket-protocol", "v4.channel.k8s.io")
        .body(Full::default())
        .expect("a response")
}

/// Says in capitals what comes on the first stream.
async fn echo(mut io: TokioIo<Upgraded>, back: u8) {
    let (mut decoder, mut buffer, mut out, mut at) = (Decoder::default(), BytesMut::new(), BytesMut::new(), None);
    loop {
        match decoder.decode(&mut buffer).expect("messages") {
            Some(Piece::Message { first, mut bytes, .. }) => {
                if first {
                    at = bytes.split_to(1).first().copied();
                }
                assert_eq!(at, Some(0));
                out.clear();
                write(BINARY, &[&[back], &bytes.to_ascii_uppercase()], &mut out);
                if io.write_all(&out).await.is_err() {
                    return;
                }
            }
            Some(Piece::Ping(_)) => {}
            Some(Piece::Close(_)) => return,
            None => {
                if io.read_buf(&mut buffer).await.unwrap_or_default() == 0 {
                    return;
                }
            }
        }
    }
}
