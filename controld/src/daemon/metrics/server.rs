//! The HTTP server of the metrics: `GET /metrics` and nothing else.
//!
//! It serves strangers, so everything of a connection is bounded: how many there are, how long one may take from its first
//! byte to its last, how much of a request is read. One request is answered on each; a scraper comes back for the next.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

#[cfg(test)]
mod tests;

const PATH: &str = "/metrics";
/// As OpenMetrics 1.0 names its text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Bytes of a request's head. hyper takes no less.
const HEAD_BYTES: usize = 8192;
/// Header fields of a request.
const MAX_HEADERS: usize = 64;
/// After a failure to accept, such as too many open files, this long passes before the next try.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Writes the text of a scrape, off the reactor.
pub(super) type Render = Box<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// Bounds of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at a time. More wait, in the kernel's queue.
    pub(super) connections: usize,
    /// How long a connection may take, from being accepted to the last byte of its answer.
    pub(super) deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 16, deadline: Duration::from_secs(5) }
    }
}

struct Inner {
    limits: Limits,
    render: Render,
    /// One text is written at a time: clients that ask and leave are not to fill the threads that the daemon works with.
    turn: Arc<Semaphore>,
    stop: CancellationToken,
}

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on `{address}` for metrics; see `metrics.address`")]
pub struct BindError {
    address: SocketAddr,
    #[source]
    cause: io::Error,
}

/// The server. Dropping it ends it with all its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _stop: DropGuard,
    /// What goes on as long.
    beside: JoinSet<()>,
}

impl Server {
    pub(super) async fn bind(address: SocketAddr, limits: Limits, render: Render) -> Result<Self, BindError> {
        let failed = |cause| BindError { address, cause };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = CancellationToken::new();
        let inner = Inner { limits, render, turn: Arc::new(Semaphore::new(1)), stop: stop.clone() };
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::new(inner))));
        Ok(Self { address, _stop: stop.drop_guard(), beside: JoinSet::new() })
    }

    /// Does `work` until the server ends.
    pub(super) fn beside(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.beside.spawn(work);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    let places = Arc::new(Semaphore::new(inner.limits.connections));
    loop {
        // Never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = timeout(inner.limits.deadline, serve(stream, inner.clone()));
                tokio::spawn(inner.stop.clone().run_until_cancelled_owned(async move {
                    if serving.await.is_err() {
                        tracing::debug!("client of the metrics took too long");
                    }
                    drop(place);
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "connection for metrics not accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    let service = service_fn(move |request| {
        let inner = inner.clone();
        async move { Ok::<_, Infallible>(answer(&request, inner).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "request for metrics failed");
    }
}

async fn answer(request: &Request<Incoming>, inner: Arc<Inner>) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return said(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    // Never closed.
    let turn = inner.turn.clone().acquire_owned().await;
    let written = tokio::task::spawn_blocking(move || {
        // Kept to the end, also if the client is gone by then.
        let _turn = turn;
        (inner.render)()
    });
    match written.await {
        Ok(Ok(text)) => {
            let mut page = Response::new(Full::from(text));
            page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS));
            page
        }
        Ok(Err(error)) => failed(&error),
        Err(panicked) => failed(&panicked),
    }
}

fn failed(error: &dyn std::error::Error) -> Response<Full<Bytes>> {
    tracing::error!(%error, "metrics not written");
    said(StatusCode::INTERNAL_SERVER_ERROR, "metrics not written; see controld's log\n")
}

fn said(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
