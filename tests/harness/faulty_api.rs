//! A way to an API server on which calls are lost, late and sent twice: a proxy on loopback in front of a [`Cluster`]'s.
//!
//! Of a call that was lost nobody knows whether it was done: some never reach the server, and of some only the answer is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::dice::Dice;

/// Longest body of a call.
const MAX_BODY: usize = 4 << 20;
/// Of a hundred calls so many are not sent, or their answers are not.
const UNSENT: u64 = 8;
const UNANSWERED: u64 = 8;
/// So many are sent twice, and so many late.
const REPEATED: u64 = 6;
const LATE: u64 = 20;
/// Latest a call is sent, and longest a watch lasts, in milliseconds.
const LATEST: u64 = 300;
const LONGEST_WATCH: u64 = 8000;

/// The proxy, until it is dropped.
#[derive(Debug)]
pub struct FaultyApi {
    /// How to reach the server through it.
    pub kubeconfig: PathBuf,
    state: Arc<State>,
    _runtime: Runtime,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    is_calm: AtomicBool,
    faults: AtomicUsize,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pass,
    Late(Duration),
    Unsent,
    Unanswered,
    Repeated,
}

type Fault = Box<dyn std::error::Error + Send + Sync>;
type Answer = Result<Response<UnsyncBoxBody<Bytes, Fault>>, Fault>;

impl FaultyApi {
    /// Listens on loopback; what becomes of each call, the seed says.
    ///
    /// # Errors
    /// When it cannot.
    pub fn start(cluster: &Cluster, dir: &Path, seed: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let state = State { dice: Dice::new(seed), is_calm: AtomicBool::new(false), faults: AtomicUsize::new(0) };
        let state = Arc::new(state);
        let (client, listener) = runtime.block_on(async {
            Ok::<_, anyhow::Error>((cluster.client().await?, TcpListener::bind("127.0.0.1:0").await?))
        })?;
        let kubeconfig = dir.join("faulty.kubeconfig");
        let server = format!("http://{}", listener.local_addr()?);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "faulty",
            "clusters": [{"name": "faulty", "cluster": {"server": server}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "nobody"}}],
        });
        fs::write(&kubeconfig, text.to_string())?;
        runtime.spawn(serve(listener, client, Arc::clone(&state)));
        Ok(Self { kubeconfig, state, _runtime: runtime })
    }

    /// From now on each call is sent once, and answered.
    pub fn calm(&self) {
        self.state.is_calm.store(true, Ordering::Relaxed);
    }

    /// How many calls were lost or sent twice.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.state.faults.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, client: Client, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (client, state) = (client.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let service = service_fn(move |request| pass(request, client.clone(), Arc::clone(&state)));
            // A client that is gone, or whose call was lost, ends its connection.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(request: Request<Incoming>, client: Client, state: Arc<State>) -> Answer {
    let fate = state.fate();
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let (mut parts, body) = request.into_parts();
    parts.headers.remove("host");
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let send = || client.send(Request::from_parts(parts.clone(), Body::from(body.to_vec())));
    if is_watch {
        return watch(send().await?, &state);
    }
    match fate {
        Fate::Pass => {}
        Fate::Late(by) => tokio::time::sleep(by).await,
        Fate::Unsent => return Err("the call is lost".into()),
        Fate::Unanswered => {
            send().await?;
            return Err("the answer is lost".into());
        }
        Fate::Repeated => drop(send().await?),
    }
    Ok(boxed(send().await?))
}

fn boxed(answer: Response<Body>) -> Response<UnsyncBoxBody<Bytes, Fault>> {
    answer.map(|body| body.map_err(Fault::from).boxed_unsync())
}

/// A watch that ends sooner than the server would end it.
fn watch(answer: Response<Body>, state: &State) -> Answer {
    if state.is_calm.load(Ordering::Relaxed) {
        return Ok(boxed(answer));
    }
    let longest = Duration::from_millis(state.dice.below(LONGEST_WATCH));
    let end = tokio::time::sleep(longest);
    let (parts, body) = answer.into_parts();
    let frames = body.into_data_stream().take_until(end);
    let frames = frames.map(|data| data.map(Frame::data).map_err(Fault::from));
    Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
}

impl State {
    fn fate(&self) -> Fate {
        if self.is_calm.load(Ordering::Relaxed) {
            return Fate::Pass;
        }
        let fate = match self.dice.below(100) {
            drawn if drawn < UNSENT => Fate::Unsent,
            drawn if drawn < UNSENT + UNANSWERED => Fate::Unanswered,
            drawn if drawn < UNSENT + UNANSWERED + REPEATED => Fate::Repeated,
            drawn if drawn < UNSENT + UNANSWERED + REPEATED + LATE => {
                return Fate::Late(Duration::from_millis(self.dice.below(LATEST)));
            }
            _ => return Fate::Pass,
        };
        self.faults.fetch_add(1, Ordering::Relaxed);
        fate
    }
}

impl Cluster {
    /// A client of the server's administrator, for a runtime of the caller's.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        let file = kube::config::Kubeconfig::read_from(&self.admin)?;
        let options = kube::config::KubeConfigOptions::default();
        let config =
            kube::Config::from_custom_kubeconfig(file, &options).await.context("the administrator's kubeconfig")?;
        Ok(Client::try_from(config)?)
    }
}
