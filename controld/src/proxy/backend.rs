//! The default: one connection to its socket, over which all calls go, and what is known of it.
//!
//! [`keeper`] makes the connection and makes it anew; [`reach`] says whether the default can be asked, and calls are refused at once while
//! it cannot. Those that are under way when it falls silent end as well, but for a few ([`calls::outlasts_silence`]): their clients would
//! wait for minutes. A call is a clone of hyper's sender and no lock is held over it. How much of an answer is in memory is bounded by the
//! windows of flow control: an answer that nobody takes holds up itself. So many of them as fill the connection's window hold up
//! the others, and each of those has a client that does not read (`keeper`'s windows: 128). Every call
//! is measured to its end ([`measured`]), whether it is passed on or asked by us.

mod keeper;
pub(super) mod measured;
pub(super) mod reach;
mod until_silent;
mod watched;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use common::Chain;
use futures_util::future::BoxFuture;
use hyper::client::conn::http2::SendRequest;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service;

use self::reach::{Away, Reach};
use self::until_silent::UntilSilent;
use self::watched::Watched;
use super::client_deadline::ClientDeadline;
use super::metrics::Metrics;
use super::{calls, frames};

pub(super) use self::keeper::{Greeted, Pace, keep};

/// The other runtime. Clones share its connection.
#[derive(Clone)]
pub(super) struct Backend(Arc<Shared>);

struct Shared {
    socket: PathBuf,
    /// Our own process.
    us: u32,
    metrics: Metrics,
    sender: Mutex<Option<SendRequest<Body>>>,
    reach: Watched,
    /// Something was not answered in time.
    doubted: Notify,
    /// Connections so far.
    connections: watch::Sender<u64>,
    /// It can be asked again.
    back: Notify,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("socket", &self.0.socket).field("reach", self.reach()).finish_non_exhaustive()
    }
}

impl Backend {
    /// The runtime at `socket`, which [`keep`] connects to unless process `us` listens there. Lists have `deadline`.
    pub(super) fn new(socket: PathBuf, us: u32, deadline: Duration, metrics: Metrics) -> Self {
        let reach = Watched::new(Reach::new(deadline, Instant::now()));
        Self(Arc::new(Shared {
            socket,
            us,
            metrics,
            sender: Mutex::default(),
            reach,
            doubted: Notify::new(),
            connections: watch::Sender::new(0),
            back: Notify::new(),
        }))
    }

    pub(super) fn socket(&self) -> &Path {
        &self.0.socket
    }

    /// Why it cannot be asked, if so.
    pub(super) fn away(&self) -> Option<Away> {
        self.reach().away()
    }

    /// What a call is told while it cannot be asked.
    pub(super) fn refused(&self) -> Option<Status> {
        self.away().map(|away| self.unavailable(&away))
    }

    fn unavailable(&self, away: &Away) -> Status {
        let since = away.since.elapsed().as_secs();
        Status::unavailable(format!(
            "container runtime at `{}` is away for {since} s: {}",
            self.0.socket.display(),
            away.why
        ))
    }

    /// How many connections there were.
    pub(super) fn connections(&self) -> u64 {
        *self.0.connections.borrow()
    }

    /// Waits for another connection than the first so many.
    pub(super) async fn another_connection(&self, after: u64) {
        // Its other end is here.
        let _ = self.0.connections.subscribe().wait_for(|number| *number > after).await;
    }

    /// Waits until it can be asked.
    pub(super) async fn back(&self) {
        loop {
            let mut told = std::pin::pin!(self.0.back.notified());
            told.as_mut().enable();
            if self.away().is_none() {
                return;
            }
            told.await;
        }
    }

    /// How long a list or a status is waited for.
    pub(super) fn deadline(&self) -> Duration {
        self.reach().deadline(Instant::now())
    }

    /// Something was not answered in time. The keeper asks whether anything is.
    pub(super) fn doubt(&self) {
        self.0.doubted.notify_one();
    }

    fn reach(&self) -> &Watched {
        &self.0.reach
    }

    /// What a call that is under way is told when it falls silent.
    fn silence(&self) -> BoxFuture<'static, Status> {
        let (backend, silence) = (self.clone(), self.reach().silence());
        Box::pin(async move { backend.unavailable(&silence.await) })
    }

    /// What it says to `call` within the deadline of lists. Else the keeper asks whether it says anything.
    pub(super) async fn within_deadline<T>(
        &self,
        call: &str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        self.in_time(call, answer).await?
    }

    /// [`Self::within_deadline`], which tells what it says from that it is late: an answer that is lent here can be waited for on.
    pub(super) async fn in_time<T>(&self, call: &str, answer: impl Future<Output = T>) -> Result<T, Status> {
        let deadline = self.deadline();
        timeout(deadline, answer).await.map_err(|_elapsed| {
            self.doubt();
            let text = format!("the container runtime did not answer `{call}` within {} s", deadline.as_secs_f32());
            Status::deadline_exceeded(text)
        })
    }

    fn sender(&self) -> MutexGuard<'_, Option<SendRequest<Body>>> {
        self.0.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Result<SendRequest<Body>, Status> {
        if let Some(refused) = self.refused() {
            return Err(refused);
        }
        let connected = self.sender().as_ref().filter(|sender| !sender.is_closed()).cloned();
        connected.ok_or_else(|| self.broken(&"its connection has just ended"))
    }

    fn pass(
        &self,
        request: Request<Body>,
        deadline: ClientDeadline,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let backend = self.clone();
        let sender = backend.begin();
        Box::pin(async move {
            let sender = sender?;
            let silence = (!calls::outlasts_silence(request.uri().path())).then(|| backend.silence());
            let sent = async {
                send(sender, request).await.map_err(|failure| match failure {
                    Failure::Broken(error) => deadline.told(backend.broken(&Chain(&error))),
                    Failure::Rubbish(status) => status,
                })
            };
            let Some(mut silence) = silence else { return sent.await };
            tokio::select! {
                biased;
                answer = sent => Ok(answer?.map(|body| Body::new(UntilSilent::new(body, silence)))),
                status = &mut silence => Err(status),
            }
        })
    }

    fn broken(&self, why: &dyn fmt::Display) -> Status {
        Status::unavailable(format!("container runtime at `{}` went away: {why}", self.0.socket.display()))
    }
}

impl Service<Request<Body>> for Backend {
    type Response = Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Response<Body>, Status>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let running = self.0.metrics.begin(calls::name(request.uri().path()));
        let deadline = ClientDeadline::of(request.headers());
        let answer = self.pass(request, deadline);
        Box::pin(async move {
            match answer.await {
                Ok(answer) => Ok(measured::measured(answer, running, deadline)),
                Err(status) => {
                    running.end(status.code());
                    Err(status)
                }
            }
        })
    }
}

/// Why there is no answer.
enum Failure {
    Broken(hyper::Error),
    Rubbish(Status),
}

async fn send(mut sender: SendRequest<Body>, request: Request<Body>) -> Result<Response<Body>, Failure> {
    let response = sender.send_request(request).await.map_err(Failure::Broken)?;
    if !frames::is_grpc(response.headers()) {
        let text =
            format!("the container runtime's socket does not speak gRPC: it answers with HTTP {}", response.status());
        return Err(Failure::Rubbish(Status::internal(text)));
    }
    Ok(response.map(Body::new))
}
