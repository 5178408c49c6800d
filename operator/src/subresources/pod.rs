//! The way to a pod: attach, exec and port-forward of the API server, each of which becomes a WebSocket.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{
    CONNECTION, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use streaming::websocket::{VERSION, accept};
use tokio::time::timeout;
use uuid::Uuid;

use super::channels::{Channels, Failure, Kind, PROTOCOL, Part};
use super::refusal::Refusal;

/// A pod's node answers within this.
const OPEN: Duration = Duration::from_secs(20);
/// A command at a node that is no stream ends within this: clients wait a little longer for the API server.
const COMMAND: Duration = Duration::from_secs(50);
/// Longest refusal that is read.
const MAX_REFUSAL: usize = 64 << 10;
/// The container that is the VM.
const CONTAINER: &str = "vm";

/// A stream of a pod.
pub(super) type Stream = Channels<TokioIo<Upgraded>>;

/// A pod of a VM.
pub(super) struct Pod<'a> {
    /// A client that lets streams be silent.
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) name: String,
    /// Of a refusal: the instance's kind, group and name.
    pub(super) of: (&'static str, &'a str, &'a str),
    /// Whether clients ask again while it does not run: see [`not_running`].
    pub(super) is_awaited: bool,
}

/// What is asked of a pod.
#[derive(Debug)]
pub(super) enum Ask<'a> {
    /// Its console.
    Attach,
    /// A command, which may want to be told something.
    Exec { words: &'a [String], stdin: bool },
    /// One of its ports.
    Port(u16),
}

/// How the API server refuses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

impl Pod<'_> {
    /// Begins a stream.
    pub(super) async fn open(&self, ask: &Ask<'_>) -> Result<Stream, Refusal> {
        let opened = timeout(OPEN, self.connect(ask)).await;
        opened.unwrap_or_else(|_| Err(Refusal::late("the node of the VM", OPEN.as_secs())))
    }

    /// Has the node do something, and returns what it says: of no more than `most` bytes, or else it is refused with `instead`, which says what
    /// to do.
    pub(super) async fn run(&self, words: &[String], (most, instead): (usize, &str)) -> Result<Vec<u8>, Refusal> {
        let done = timeout(COMMAND, async {
            let mut stream = self.open(&Ask::Exec { words, stdin: false }).await?;
            let mut said = Vec::new();
            loop {
                match stream.next().await {
                    Ok(Part::Data(bytes)) if said.len() + bytes.len() <= most => said.extend_from_slice(&bytes),
                    Ok(Part::Data(_)) => {
                        let text =
                            format!("the node's answer is longer than {most} bytes, and is not passed on: {instead}");
                        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
                    }
                    Ok(Part::End(Ok(()))) => return Ok(said),
                    Ok(Part::End(Err(failure))) => return Err(self.failed(failure)),
                    Err(lost) => return Err(self.lost(&lost)),
                }
            }
        });
        done.await.unwrap_or_else(|_| Err(Refusal::late("the node of the VM", COMMAND.as_secs())))
    }

    /// What a stream says first, of which a refusal is possible as long as the client has not been told that there is one.
    pub(super) async fn first(&self, stream: &mut Stream) -> Result<hyper::body::Bytes, Refusal> {
        match timeout(OPEN, stream.next()).await {
            Ok(Ok(Part::Data(bytes))) => Ok(bytes),
            Ok(Ok(Part::End(Ok(())))) => Err(self.not_running("it has ended")),
            Ok(Ok(Part::End(Err(failure)))) => Err(self.failed(failure)),
            Ok(Err(lost)) => Err(self.lost(&lost)),
            Err(_) => Err(Refusal::late("the node of the VM", OPEN.as_secs())),
        }
    }

    async fn connect(&self, ask: &Ask<'_>) -> Result<Stream, Refusal> {
        let key = BASE64.encode(Uuid::new_v4().as_bytes());
        let request = Request::get(self.path(ask))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, VERSION)
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
            .body(Body::empty())
            .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no request: {error}")))?;
        let response =
            self.client.send(request).await.map_err(|error| Refusal::of_call("reach the VM's pod", &error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.refused(response).await);
        }
        if !agrees(response.headers(), &key) {
            let text = "the API server does not speak WebSocket as it is to";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        let kind = if matches!(ask, Ask::Port(_)) { Kind::Port } else { Kind::Command };
        match hyper::upgrade::on(response).await {
            Ok(upgraded) => Ok(Channels::new(TokioIo::new(upgraded), kind)),
            Err(error) => {
                let text = format!("the connection to the VM's pod broke: {error}");
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text))
            }
        }
    }

    fn path(&self, ask: &Ask<'_>) -> String {
        let at = format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name);
        match ask {
            Ask::Attach => format!("{at}/attach?container={CONTAINER}&stdin=true&stdout=true&stderr=false&tty=true"),
            Ask::Exec { words, stdin } => {
                let mut path =
                    format!("{at}/exec?container={CONTAINER}&stdin={stdin}&stdout=true&stderr=true&tty=false");
                for word in *words {
                    path.push_str("&command=");
                    path.extend(utf8_percent_encode(word, NON_ALPHANUMERIC));
                }
                path
            }
            Ask::Port(port) => format!("{at}/portforward?ports={port}"),
        }
    }

    /// Why the API server, or kubelet behind it, does not begin.
    async fn refused(&self, response: Response<Body>) -> Refusal {
        let code = response.status();
        let body = timeout(OPEN, Limited::new(response.into_body(), MAX_REFUSAL).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let text = match status.message {
            message if message.is_empty() => String::from_utf8_lossy(&body).trim().to_owned(),
            message => message,
        };
        match code.as_u16() {
            // The pod or its container is gone or not there yet.
            400 | 404 | 409 => self.not_running(text),
            429 => Refusal::new(code, text),
            401 | 403 => Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the server may not reach the VM's pod: {text}"),
            ),
            _ => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("the VM's node does not answer: {text}")),
        }
    }

    /// Why a node did not do it: by the codes of `sysexits`, as nodes have them.
    pub(super) fn failed(&self, Failure { exit, text }: Failure) -> Refusal {
        let code = match exit {
            Some(69) => return self.conflict(text),
            // The node does not know it.
            Some(66) if self.is_awaited => return self.not_running(text),
            Some(66) => StatusCode::NOT_FOUND,
            Some(64) => StatusCode::BAD_REQUEST,
            Some(75) => StatusCode::SERVICE_UNAVAILABLE,
            Some(77) => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal::new(code, if text.is_empty() { "the node failed without a word".to_owned() } else { text })
    }

    fn lost(&self, lost: &super::socket::Lost) -> Refusal {
        let text = format!("the connection to the VM is lost: {}", common::Chain(lost));
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    pub(super) fn conflict(&self, why: impl std::fmt::Display) -> Refusal {
        let (kind, group, name) = self.of;
        Refusal::conflict(kind, group, name, why)
    }

    fn not_running(&self, why: impl std::fmt::Display) -> Refusal {
        not_running(self.is_awaited, self.of, why)
    }
}

/// An instance does not run, or not yet. `virtctl console` and `virtctl vnc` ask again each second of 400 alone, and end at all else.
pub(super) fn not_running(
    is_awaited: bool,
    (kind, group, name): (&str, &str, &str),
    why: impl std::fmt::Display,
) -> Refusal {
    let why = format!("VMI is not running: {why}");
    if is_awaited { Refusal::new(StatusCode::BAD_REQUEST, why) } else { Refusal::conflict(kind, group, name, why) }
}

/// Whether the other side has understood.
fn agrees(headers: &HeaderMap, key: &str) -> bool {
    let is =
        |name, value: &str| headers.get(name).is_some_and(|one| one.as_bytes().eq_ignore_ascii_case(value.as_bytes()));
    let accepts =
        accept(key).is_some_and(|wanted| headers.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|one| *one == *wanted));
    accepts && is(UPGRADE, "websocket") && is(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(client: &Client) -> Pod<'_> {
        Pod {
            client,
            namespace: "default",
            name: "db-1".to_owned(),
            of: ("VirtualMachineInstance", "kubevirt.io", "db"),
            is_awaited: false,
        }
    }

    fn nowhere() -> Client {
        let service =
            tower::service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(std::io::Error::other("no")) });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn paths_are_those_of_the_api() {
        let client = nowhere();
        let pod = pod(&client);
        assert_eq!(
            pod.path(&Ask::Attach),
            "/api/v1/namespaces/default/pods/db-1/attach?container=vm&stdin=true&stdout=true&stderr=false&tty=true"
        );
        let words = ["virtlet:vnc".to_owned(), "--for=a b&tty=true".to_owned()];
        assert_eq!(
            pod.path(&Ask::Exec { words: &words, stdin: true }),
            "/api/v1/namespaces/default/pods/db-1/exec?container=vm&stdin=true&stdout=true&stderr=true&tty=false\
             &command=virtlet%3Avnc&command=%2D%2Dfor%3Da%20b%26tty%3Dtrue"
        );
        assert_eq!(pod.path(&Ask::Port(22)), "/api/v1/namespaces/default/pods/db-1/portforward?ports=22");
        let Err(refusal) = pod.open(&Ask::Attach).await else { panic!("nobody is there") };
        assert_eq!(refusal.code, 503);
    }

    #[tokio::test]
    async fn what_a_node_says_becomes_a_status() {
        let client = nowhere();
        let pod = pod(&client);
        for (exit, code) in [
            (Some(64), 400),
            (Some(66), 404),
            (Some(69), 409),
            (Some(70), 500),
            (Some(75), 503),
            (Some(77), 403),
            (None, 500),
        ] {
            let refusal = pod.failed(Failure { exit, text: "paused already".to_owned() });
            assert!(refusal.code == code && refusal.message.ends_with("paused already"), "{refusal:?}");
        }
        for (status, code) in [(404, 409), (400, 409), (403, 500), (429, 429), (500, 503), (200, 503)] {
            let body = "{\"kind\":\"Status\",\"message\":\"container not found\"}";
            let response =
                Response::builder().status(status).body(Body::from(body.as_bytes().to_vec())).expect("a response");
            let refusal = pod.refused(response).await;
            assert!(refusal.code == code && refusal.message.contains("container not found"), "{refusal:?}");
        }
        // Of what is asked for again until it runs.
        let pod = Pod { is_awaited: true, ..pod };
        for (exit, code) in [(66, 400), (69, 409)] {
            assert_eq!(pod.failed(Failure { exit: Some(exit), text: "no".to_owned() }).code, code);
        }
        let response = Response::builder().status(404).body(Body::empty()).expect("a response");
        assert_eq!(pod.refused(response).await.code, 400);
    }
}
