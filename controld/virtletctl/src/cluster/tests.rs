//! An API server on loopback, which answers as it is told and keeps what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use streaming::websocket::{BINARY, CLOSE, Decoder, Piece, opening, write};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Code of an answer by which a connection becomes a stream.
pub(crate) const STREAM: u16 = 101;
/// With this in front, what a stream says first is why it ends.
pub(crate) const ENDS: &str = "!";

#[derive(Default)]
struct State {
    /// How a request begins, and what is answered.
    answers: Vec<(String, u16, String)>,
    asked: Vec<String>,
}

/// The API server, and a kubeconfig that names it.
pub(crate) struct Api {
    pub(crate) kubeconfig: String,
    pub(crate) at: String,
    state: Arc<Mutex<State>>,
    _dir: tempfile::TempDir,
}

/// What leads nowhere by itself.
pub(crate) fn nowhere() -> At {
    At { namespace: None, context: None, kubeconfig: Some("/none".into()), group: kubevirt::GROUP.to_owned() }
}

/// The cluster whose API is at a URL.
pub(crate) fn cluster(url: &str, at: &At) -> Cluster {
    Cluster::of(Config::new(url.parse().expect("a URL")), at).expect("a client")
}

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = format!("http://{}", listener.local_addr().expect("an address"));
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\ncontexts: [{{name: lab, context: {{cluster: lab, user: me, \
             namespace: prod}}}}]\nclusters: [{{name: lab, cluster: {{server: \"{at}\"}}}}]\nusers: [{{name: me, user: {{}}}}]\n"
        );
        std::fs::write(&path, config).expect("written");
        let state = Arc::<Mutex<State>>::default();
        tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { kubeconfig: path.to_str().expect("UTF-8").to_owned(), at, state, _dir: dir }
    }

    /// What begins so is answered so from now on.
    pub(crate) fn answers(&self, begin: &str, code: u16, body: &str) {
        with(&self.state, |state| state.answers.insert(0, (begin.to_owned(), code, body.to_owned())));
    }

    /// What was asked since this was called last.
    pub(crate) fn asked(&self) -> Vec<String> {
        with(&self.state, |state| std::mem::take(&mut state.asked))
    }
}

fn with<T>(state: &Mutex<State>, what: impl FnOnce(&mut State) -> T) -> T {
    what(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(answer(request, &state).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades());
    }
}

async fn answer(mut request: Request<Incoming>, state: &Mutex<State>) -> Response<Full<Bytes>> {
    let asked = format!("{} {}", request.method(), request.uri());
    let found = with(state, |state| {
        let found = state.answers.iter().find(|(begin, ..)| asked.starts_with(begin.as_str()));
        found.map(|(_, code, body)| (*code, body.clone()))
    });
    let (code, body) = found.unwrap_or_else(|| (404, "404 page not found\n".to_owned()));
    if code == STREAM {
        with(state, |state| state.asked.push(asked));
        let accept = opening::accept(request.method(), request.headers()).expect("WebSocket is asked for");
        let protocol = request.headers().get(SEC_WEBSOCKET_PROTOCOL).cloned();
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move { echo(TokioIo::new(upgrade.await.expect("upgraded")), &body).await });
        let mut response = opening::switch(accept);
        let protocol = protocol.unwrap_or_else(|| HeaderValue::from_static(""));
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        return response;
    }
    let said = request.into_body().collect().await.expect("a body").to_bytes();
    let said = String::from_utf8(said.to_vec()).expect("text");
    let whole = if said.is_empty() { asked } else { format!("{asked} {said}") };
    with(state, |state| state.asked.push(whole));
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code.try_into().expect("a code");
    response
}

/// Says `first`, and then all that it hears in capitals.
async fn echo(mut io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, first: &str) {
    let mut out = BytesMut::new();
    match first.strip_prefix(ENDS) {
        Some(why) => write(CLOSE, &[&1011_u16.to_be_bytes(), why.as_bytes()], &mut out),
        None if first.is_empty() => {}
        None => write(BINARY, &[first.as_bytes()], &mut out),
    }
    let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
    loop {
        if io.write_all(&out).await.is_err() || io.flush().await.is_err() {
            return;
        }
        out.clear();
        while let Some(piece) = decoder.decode(&mut buffer).expect("messages of a client") {
            match piece {
                Piece::Message { bytes, .. } => write(BINARY, &[&bytes.to_ascii_uppercase()], &mut out),
                Piece::Ping(_) => {}
                Piece::Close(_) => return,
            }
        }
        if out.is_empty() && io.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

#[tokio::test]
async fn a_kubeconfig_says_where_and_a_line_says_otherwise() {
    let api = Api::start().await;
    let at = At { kubeconfig: Some((&api.kubeconfig).into()), ..nowhere() };
    let cluster = Cluster::connect(&at).await.expect("it is read");
    assert_eq!(cluster.namespace(), "prod");
    let other = Cluster::connect(&At { namespace: Some("lab".into()), ..at.clone() }).await.expect("it is read");
    assert_eq!(other.namespace(), "lab");
    let lost = Cluster::connect(&At { context: Some("lost".into()), ..at }).await;
    assert!(matches!(lost, Err(ClusterError::Unknown(_))));
    assert!(matches!(Cluster::connect(&nowhere()).await, Err(ClusterError::Unknown(_))));
    // Nobody was asked.
    assert_eq!(api.asked(), [""; 0]);
}
