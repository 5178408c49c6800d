//! A container runtime of a test: a socket that answers each call as the test says, and keeps what it was asked.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use proto::cri::{RuntimeCondition, RuntimeHandler, RuntimeStatus, StatusResponse, VersionResponse};
use tokio::net::UnixListener;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};

use crate::proxy::frames;

/// What a call is answered with.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Message(Bytes),
    Failed(Status),
    Never,
    /// A message, when the test says so.
    Late(Bytes, Arc<Notify>),
    /// Messages, and then an end.
    Stream(Vec<Bytes>, Status),
    /// Messages, and then none and no end.
    Open(Vec<Bytes>),
    /// HTTP that is no gRPC.
    Web,
    /// Bytes that are no message, and no status.
    Torn,
    /// No answer: its stream is reset.
    Reset,
    /// What comes, as it comes.
    Echo,
    /// Messages of this length without an end; how many bytes there were room for.
    Flood(usize, Arc<AtomicUsize>),
}

/// What was asked: path, headers, body.
pub(super) type Asked = (String, HeaderMap, Bytes);

/// The runtime. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Fake {
    pub(super) socket: PathBuf,
    replies: Arc<Mutex<BTreeMap<String, Reply>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// As by SIGSTOP.
    stopped: watch::Sender<bool>,
    serving: Arc<Mutex<Option<JoinHandle<()>>>>,
    /// Calls that are being answered.
    answering: Arc<AtomicUsize>,
}

impl Fake {
    /// At a socket of this name, where nobody listens yet.
    pub(super) fn new(socket: PathBuf) -> Self {
        let fake = Self {
            socket,
            replies: Arc::default(),
            asked: Arc::default(),
            stopped: watch::Sender::new(false),
            serving: Arc::default(),
            answering: Arc::default(),
        };
        fake.says(
            "Version",
            &VersionResponse {
                version: "0.1.0".into(),
                runtime_name: "containerd".into(),
                runtime_version: "v2.4.2".into(),
                runtime_api_version: "v1".into(),
            },
        );
        let ready = |kind: &str| RuntimeCondition { r#type: kind.into(), status: true, ..Default::default() };
        let handler = |name: &str| RuntimeHandler { name: name.into(), ..Default::default() };
        fake.says(
            "Status",
            &StatusResponse {
                status: Some(RuntimeStatus { conditions: vec![ready("RuntimeReady"), ready("NetworkReady")] }),
                runtime_handlers: vec![handler(""), handler("runc")],
                ..Default::default()
            },
        );
        fake
    }

    pub(super) fn replies(&self, call: &str, reply: Reply) {
        self.replies.lock().expect("a lock").insert(call.into(), reply);
    }

    pub(super) fn says(&self, call: &str, message: &impl Message) {
        self.replies(call, Reply::Message(message.encode_to_vec().into()));
    }

    /// The calls of this name, as they came.
    pub(super) fn asked(&self, call: &str) -> Vec<Asked> {
        let asked = self.asked.lock().expect("a lock");
        asked.iter().filter(|(path, ..)| path.ends_with(&format!("/{call}"))).cloned().collect()
    }

    /// How many calls are being answered.
    pub(super) fn answering(&self) -> usize {
        self.answering.load(Ordering::SeqCst)
    }

    pub(super) fn stop(&self, is: bool) {
        self.stopped.send_replace(is);
    }

    /// Listens, in place of what a dead one has left.
    pub(super) fn start(&self) {
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).expect("a socket");
        let fake = self.clone();
        let serving = tokio::spawn(async move {
            // Connections end with it, as with a process.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let fake = fake.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let fake = fake.clone();
                    async move { fake.answer(request).await.ok_or_else(|| io::Error::other("reset")) }
                });
                let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move {
                    let _ = served.await;
                });
            }
        });
        self.serving.lock().expect("a lock").replace(serving);
    }

    /// Its socket stays, as after `kill -9`.
    pub(super) fn kill(&self) {
        if let Some(serving) = self.serving.lock().expect("a lock").take() {
            serving.abort();
        }
    }

    /// `None` resets the stream.
    async fn answer(&self, request: Request<hyper::body::Incoming>) -> Option<Response<Body>> {
        let _answering = Answering::new(&self.answering);
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let call = path.rsplit('/').next().unwrap_or_default().to_owned();
        let reply = self.replies.lock().expect("a lock").get(&call).cloned();
        if matches!(reply, Some(Reply::Echo)) {
            return Some(grpc(Body::new(body)));
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        self.asked.lock().expect("a lock").push((path, parts.headers, body));
        let mut stopped = self.stopped.subscribe();
        let _ = stopped.wait_for(|stopped| !stopped).await;
        let reply = self.replies.lock().expect("a lock").get(&call).cloned();
        Some(match reply {
            None => Status::unimplemented(format!("unknown method {call}")).into_http(),
            Some(Reply::Message(message)) => frames::answer(vec![message]),
            Some(Reply::Failed(status)) => status.into_http(),
            Some(Reply::Never) => std::future::pending().await,
            Some(Reply::Late(message, now)) => {
                now.notified().await;
                frames::answer(vec![message])
            }
            Some(Reply::Stream(messages, end)) => {
                let messages = messages.into_iter().map(|message| Ok(vec![message]));
                let end = (end.code() != tonic::Code::Ok).then_some(Err(end));
                frames::stream(tokio_stream::iter(messages.chain(end)))
            }
            Some(Reply::Open(messages)) => {
                let messages = tokio_stream::iter(messages.into_iter().map(|message| Ok(vec![message])));
                frames::stream(tokio_stream::StreamExt::chain(messages, tokio_stream::pending()))
            }
            Some(Reply::Web) => {
                let mut response = Response::new(Body::new(http_body_util::Full::new(Bytes::from_static(b"<html>"))));
                response.headers_mut().insert("content-type", "text/html".parse().expect("a value"));
                response
            }
            Some(Reply::Torn) => grpc(Body::new(http_body_util::Full::new(Bytes::from_static(&[0, 0, 0, 0, 9, 1])))),
            Some(Reply::Flood(length, sent)) => {
                let message = Bytes::from(vec![0; length]);
                frames::stream(tokio_stream::iter(std::iter::repeat_with(move || {
                    sent.fetch_add(length, Ordering::SeqCst);
                    Ok(vec![message.clone()])
                })))
            }
            Some(Reply::Echo) => Status::internal("answered above").into_http(),
            Some(Reply::Reset) => return None,
        })
    }
}

fn grpc(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
    response
}

/// Ends with its call, also when the call is given up.
struct Answering(Arc<AtomicUsize>);

impl Answering {
    fn new(number: &Arc<AtomicUsize>) -> Self {
        number.fetch_add(1, Ordering::SeqCst);
        Self(number.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
