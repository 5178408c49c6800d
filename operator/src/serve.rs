//! What kubelet and Prometheus ask over HTTP: `/healthz`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::debug;

use crate::metrics::Facts;

/// Clients that are served at a time; more of them wait.
pub(crate) const MAX_CLIENTS: usize = 64;
/// A client has so long to say what it wants.
const HEADERS: Duration = Duration::from_secs(5);
/// A client is served so long.
const LONGEST: Duration = Duration::from_secs(30);
/// What is closed by the other side in a hurry ends no server.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens there.
///
/// # Errors
/// When that cannot be.
pub async fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(at).await
}

/// Has each client served, so many at a time, for ever.
pub(crate) async fn clients<F>(listener: TcpListener, most: usize, mut served: impl FnMut(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let clients = Arc::new(Semaphore::new(most));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(error = %common::Chain(&error), "no connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let served = served(stream);
        tokio::spawn(async move {
            served.await;
            drop(permit);
        });
    }
}

/// Answers, for ever.
pub(crate) async fn serve(listener: TcpListener, facts: Arc<dyn Facts>) {
    clients(listener, MAX_CLIENTS, |stream| connection(stream, Arc::clone(&facts))).await;
}

async fn connection(stream: TcpStream, facts: Arc<dyn Facts>) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &*facts);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // Of a client that is gone nothing is to be said.
    let _ = tokio::time::timeout(LONGEST, connection).await;
}

fn answer(request: &Request<Incoming>, facts: &dyn Facts) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET, "/readyz") => match facts.waits_for() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(what) => (StatusCode::SERVICE_UNAVAILABLE, format!("{what}\n")),
        },
        (&Method::GET, "/metrics") => (StatusCode::OK, facts.text()),
        _ => (StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
