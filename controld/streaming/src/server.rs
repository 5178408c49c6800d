//! The HTTP server that clients come to with the URL that CRI's `Attach` gave them.
//!
//! A URL holds a token: eight characters from the system's randomness, good for one session and one minute. It is the
//! only secret, so the server belongs on loopback. A request that is turned away does not use up its token.
//! What kind of session a token stands for is in [`Pending`]: exec and port-forward will be more of its kinds, and
//! WebSocket another way to make the same session.

mod attach;
mod handshake;
mod places;
mod tokens;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::handshake::Refusal;
use self::places::{Place, Places};
use self::tokens::Tokens;
use crate::backend::Backend;

/// Connections at a time that have not become sessions. Sessions are limited by their tokens.
const MAX_CONNECTIONS: usize = 1024;
/// How long a client may take to send its request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// How long the change from HTTP to SPDY may take once the answer is given.
const UPGRADE_DEADLINE: Duration = Duration::from_secs(10);
/// After a failure to accept, such as too many open files, this long passes before the next try.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen; port 0 takes a free one. Keep it on loopback.
    pub address: SocketAddr,
    /// How long a URL is good.
    pub token_ttl: Duration,
    /// URLs that are good at a time.
    pub max_tokens: usize,
    /// How long a client may take to open the streams of its session.
    pub stream_creation: Duration,
    /// A session in which nothing is said either way ends after this.
    pub idle: Duration,
}

impl Config {
    /// The settings of Kubernetes' own streaming server, at `address`.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            token_ttl: Duration::from_secs(60),
            max_tokens: 1000,
            stream_creation: Duration::from_secs(30),
            idle: Duration::from_secs(4 * 3600),
        }
    }
}

/// What a client of CRI wants to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachRequest {
    pub container_id: String,
    /// Send to it.
    pub stdin: bool,
    /// Receive its output.
    pub stdout: bool,
    /// Receive its errors.
    pub stderr: bool,
    /// The client has a terminal.
    pub tty: bool,
    /// The session ends when the client's input does.
    pub stdin_once: bool,
}

/// Why there is no URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The request names no container.
    #[error("attach request names no container")]
    NoContainer,
    /// The request wants no stream.
    #[error("attach request wants none of stdin, stdout and stderr")]
    NoStream,
    /// A terminal has no stderr.
    #[error("attach request wants stderr of a terminal, which has none; unset tty or stderr")]
    TtyWithStderr,
    /// Too many URLs wait for their clients.
    #[error("{0} streaming URLs are waiting for their clients; try again in a minute")]
    TooMany(usize),
}

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on `{address}` for streaming; set another address")]
pub struct BindError {
    address: SocketAddr,
    #[source]
    cause: io::Error,
}

/// The server. Dropping it ends it with all its sessions.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
    address: SocketAddr,
    _stop: DropGuard,
}

/// What a token stands for.
#[derive(Debug)]
enum Pending {
    Attach(AttachRequest),
}

#[derive(Debug)]
struct Inner {
    config: Config,
    backend: Arc<dyn Backend>,
    tokens: Mutex<Tokens<Pending>>,
    stop: CancellationToken,
}

// === impl Server ===

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// When the address cannot be taken.
    pub async fn bind(config: Config, backend: Arc<dyn Backend>) -> Result<Self, BindError> {
        Self::with(config, backend, Places::new(MAX_CONNECTIONS)).await
    }

    async fn with(config: Config, backend: Arc<dyn Backend>, places: Arc<Places>) -> Result<Self, BindError> {
        let failed = |cause| BindError { address: config.address, cause };
        let listener = TcpListener::bind(config.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tokens = Mutex::new(Tokens::new(config.token_ttl, config.max_tokens));
        let stop = CancellationToken::new();
        let inner = Arc::new(Inner { config, backend, tokens, stop: stop.clone() });
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, inner.clone(), places)));
        Ok(Self { inner, address, _stop: stop.drop_guard() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL at which a client can attach, once and soon.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn attach_url(&self, request: AttachRequest) -> Result<String, UrlError> {
        if request.container_id.is_empty() {
            return Err(UrlError::NoContainer);
        }
        if !request.stdin && !request.stdout && !request.stderr {
            return Err(UrlError::NoStream);
        }
        if request.tty && request.stderr {
            return Err(UrlError::TtyWithStderr);
        }
        let token = self.inner.tokens().insert(Pending::Attach(request), Instant::now());
        let token = token.ok_or(UrlError::TooMany(self.inner.config.max_tokens))?;
        Ok(format!("http://{}{}{token}", self.reachable(), handshake::ATTACH_PATH))
    }

    /// The address as a client on this node reaches it.
    fn reachable(&self) -> SocketAddr {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let loopback: std::net::IpAddr = if address.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            };
            address.set_ip(loopback);
        }
        address
    }
}

// === impl Inner ===

impl Inner {
    fn tokens(&self) -> MutexGuard<'_, Tokens<Pending>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request, and starts its session if it is right.
    fn answer(self: &Arc<Self>, mut request: Request<Incoming>, place: &Place) -> Response<Full<Bytes>> {
        let Some(token) = request.uri().path().strip_prefix(handshake::ATTACH_PATH).map(str::to_owned) else {
            return Refusal::UnknownUrl.response();
        };
        if !self.tokens().contains(&token, Instant::now()) {
            return Refusal::UnknownUrl.response();
        }
        if let Err(refusal) = handshake::check(request.method(), request.headers()) {
            return refusal.response();
        }
        if !place.leave() {
            return Refusal::UnknownUrl.response();
        }
        let Some(Pending::Attach(attach)) = self.tokens().take(&token, Instant::now()) else {
            return Refusal::UnknownUrl.response();
        };
        let upgrade = hyper::upgrade::on(&mut request);
        let inner = self.clone();
        let session = async move {
            match timeout(UPGRADE_DEADLINE, upgrade).await {
                Ok(Ok(upgraded)) => attach::serve(TokioIo::new(upgraded), attach, &*inner.backend, &inner.config).await,
                Ok(Err(error)) => tracing::debug!(%error, "client left before its session began"),
                Err(_) => tracing::debug!("client did not change to SPDY in time"),
            }
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(session));
        handshake::switch()
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>, places: Arc<Places>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let place = Arc::new(places.take(Instant::now()));
                let serving = serve(stream, inner.clone(), place.clone());
                tokio::spawn(inner.stop.clone().run_until_cancelled_owned(async move {
                    tokio::select! {
                        () = serving => {}
                        () = place.closed() => {}
                    }
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "streaming connection not accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// Serves the HTTP part of a connection.
async fn serve(stream: TcpStream, inner: Arc<Inner>, place: Arc<Place>) {
    // Typed characters are to travel at once. A socket that refuses this is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let response = inner.answer(request, &place);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "streaming client's request failed");
    }
}

#[cfg(test)]
mod tests;
