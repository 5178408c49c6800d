//! Calls that kubelet makes all the time: beside a tonic server that answers the same from its memory and does nothing else,
//! and with many pods beside few.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use prost::Message as _;
use proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use proto::cri::{
    ListPodSandboxRequest, ListPodSandboxResponse, StatusRequest, StatusResponse, VersionRequest, VersionResponse,
};
use tests::case::Bed;
use tests::cni::{self, Network};
use tests::cri::Cri;
use tests::node::{CRI_SOCKET, Node};
use tests::wait::wait_for;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::attach::wide;
use super::report::{Pair, Row};
use super::{p50, timed};

const PAIRS: usize = 9;
const CALLS: usize = 201;
const LISTS: usize = 41;
const FEW: u32 = 10;
const MANY: u32 = 500;
const CLIENTS: u32 = 8;
const READY_DEADLINE: Duration = Duration::from_secs(10);

/// Answers what it was given.
struct Bare {
    version: VersionResponse,
    status: StatusResponse,
}

#[tonic::async_trait]
impl RuntimeService for Bare {
    async fn version(&self, _request: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(self.version.clone()))
    }

    async fn status(&self, _request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(self.status.clone()))
    }
}

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let ours = Cri::new(Path::new(CRI_SOCKET))?;
    let bare = Bare { version: version(&ours)?, status: status(&ours)? };
    let socket = bed.dir.join("bare.sock");
    serve(&socket, bare)?;
    let bare = Cri::new(&socket)?;
    wait_for("bare server", READY_DEADLINE, || Ok(version(&bare).ok()))?;
    let [mut versions, mut statuses] = [const { Vec::new() }; 2];
    for _pair in 0..PAIRS {
        versions.push(Pair { ours: typical(CALLS, || version(&ours))?, baseline: typical(CALLS, || version(&bare))? });
        statuses.push(Pair { ours: typical(CALLS, || status(&ours))?, baseline: typical(CALLS, || status(&bare))? });
    }
    cni::install(&wide()?)?;
    let crowd = crowd(node);
    cni::install(&Network::BRIDGE.conflist().to_string())?;
    let row = |name, unit, target, pairs| Row { name, unit, target: Some(target), pairs };
    Ok(vec![
        row("Version / bare tonic server", "us", 1.5, versions),
        row("Status / bare tonic server", "us", 1.5, statuses),
        row("ListPodSandbox at 500 / at 10, beyond the answer's growth", "x", 1.2, vec![crowd?]),
    ])
}

/// How much longer a list of many takes than one of few, beside how much longer it is.
fn crowd(node: &Node) -> Result<Pair> {
    let mut sandboxes = run(node, 0..FEW)?;
    let few = (typical(LISTS, || list(&node.cri))?, list(&node.cri)?.encoded_len());
    sandboxes.extend(run(node, FEW..MANY)?);
    let many = (typical(LISTS, || list(&node.cri))?, list(&node.cri)?.encoded_len());
    at_once(&sandboxes, |sandbox| Ok(node.cri.remove_sandbox(sandbox)?))?;
    let length = |bytes: usize| u32::try_from(bytes).map(f64::from);
    Ok(Pair { ours: many.0 / few.0, baseline: length(many.1)? / length(few.1)? })
}

fn run(node: &Node, numbers: std::ops::Range<u32>) -> Result<Vec<String>> {
    at_once(&numbers.collect::<Vec<_>>(), |n| Ok(node.cri.run_sandbox(&node.pod(&format!("listed-{n}"))?)?))
}

/// `work` for each by some clients at once, in no order.
pub(super) fn at_once<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let lane = things.len().div_ceil(CLIENTS as usize).max(1);
    let done: Vec<Vec<R>> = thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> = things
            .chunks(lane)
            .map(|lane| scope.spawn(move || lane.iter().map(work).collect::<Result<Vec<R>>>()))
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?)
            .collect::<Result<_>>()
    })?;
    Ok(done.into_iter().flatten().collect())
}

/// Serves until the process ends.
fn serve(socket: &Path, bare: Bare) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let listener = runtime.block_on(async { UnixListener::bind(socket) }).context("failed to listen")?;
    thread::spawn(move || {
        let service = RuntimeServiceServer::new(bare);
        runtime.block_on(Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener)))
    });
    Ok(())
}

/// Microseconds of the call in the middle.
pub(super) fn typical<T>(calls: usize, call: impl Fn() -> Result<T>) -> Result<f64> {
    p50((0..calls).map(|_| Ok(timed(&call)?.0)).collect::<Result<_>>()?)
}

fn version(cri: &Cri) -> Result<VersionResponse> {
    Ok(cri.call(|mut client| async move { client.version(VersionRequest::default()).await })?)
}

fn status(cri: &Cri) -> Result<StatusResponse> {
    Ok(cri.call(|mut client| async move { client.status(StatusRequest::default()).await })?)
}

fn list(cri: &Cri) -> Result<ListPodSandboxResponse> {
    Ok(cri.call(|mut client| async move { client.list_pod_sandbox(ListPodSandboxRequest::default()).await })?)
}
