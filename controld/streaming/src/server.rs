//! The HTTP server that clients come to with the URL that CRI's `Attach`, `Exec` or `PortForward` gave them.
//!
//! A URL holds a token: eight characters from the system's randomness, good for one session and one minute. It is the
//! only secret, so the server belongs on loopback, also with TLS ([`tls`]), which knows no client. A request that is turned away does not use up its token.
//! Kinds of sessions are a table in [`requests`], wire protocols one in [`protocol`]; the code of the answer knows neither.

mod command;
mod forward;
mod handshake;
mod kinds;
mod places;
mod protocol;
mod sessions;
mod tls;
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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::forward::MAX_FIXED_PORTS;
use self::handshake::{Agreed, Refusal};
pub use self::kinds::UrlError;
use self::kinds::{Command, Kind, Pending};
use self::places::{Place, Places};
use self::protocol::Protocol;
use self::sessions::{Seat, Sessions};
use self::tls::Tls;
pub use self::tls::{TlsError, TlsFiles};
use self::tokens::Tokens;
use crate::backend::Backend;
use crate::mux::{Budget, Limits};
use crate::request::{AttachRequest, ExecRequest, PortForwardRequest};

/// Connections at a time that have not become sessions.
const MAX_CONNECTIONS: usize = 1024;
/// How long a client may take to send its request.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// How long the change from HTTP to another protocol may take once the answer is given.
const UPGRADE_DEADLINE: Duration = Duration::from_secs(10);
/// After a failure to accept, such as too many open files, this long passes before the next try.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen; port 0 takes a free one. Keep it on loopback.
    pub address: SocketAddr,
    /// The server's certificate, if it is to speak TLS.
    pub tls: Option<TlsFiles>,
    /// How long a URL is good.
    pub token_ttl: Duration,
    /// URLs that are good at a time.
    pub max_tokens: usize,
    /// How long a client may take to open the streams of its session.
    pub stream_creation: Duration,
    /// A session in which nothing is said either way ends after this.
    pub idle: Duration,
    /// Sessions at a time.
    pub max_sessions: usize,
    /// Of them, those of one container, or of one pod's ports.
    pub max_sessions_of_one: usize,
}

impl Config {
    /// The settings of Kubernetes' own streaming server, at `address`; that counts no sessions.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            token_ttl: Duration::from_secs(60),
            max_tokens: 1000,
            stream_creation: Duration::from_secs(30),
            idle: Duration::from_secs(4 * 3600),
            max_sessions: 512,
            max_sessions_of_one: 64,
        }
    }
}

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its address is not to be had.
    #[error("failed to listen on `{address}` for streaming; set another address")]
    Address {
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    /// Its certificate is not to be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The server. Dropping it ends it with all its sessions.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
    address: SocketAddr,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    backend: Arc<dyn Backend>,
    tls: Option<Arc<Tls>>,
    tokens: Mutex<Tokens<Pending>>,
    terms: Terms,
    sessions: Arc<Sessions>,
    /// Places for connections to pods' ports.
    forwards: Arc<Semaphore>,
    stop: CancellationToken,
}

/// What a session may cost.
#[derive(Debug)]
struct Terms {
    limits: Limits,
    /// How long its client may take to open its streams.
    stream_creation: Duration,
}

// === impl Terms ===

impl Terms {
    fn new(config: &Config) -> Self {
        let limits = Limits { idle: config.idle, ..Limits::default() };
        Self { limits, stream_creation: config.stream_creation }
    }

    /// Those of a session that may keep so much.
    fn with(&self, budget: Budget) -> Self {
        Self { limits: Limits { budget, ..self.limits.clone() }, stream_creation: self.stream_creation }
    }
}

// === impl Server ===

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// When the address cannot be taken, or the certificate not be used.
    pub async fn bind(config: Config, backend: Arc<dyn Backend>) -> Result<Self, StartError> {
        Self::with(config, backend, Places::new(MAX_CONNECTIONS)).await
    }

    async fn with(config: Config, backend: Arc<dyn Backend>, places: Arc<Places>) -> Result<Self, StartError> {
        let failed = |cause| StartError::Address { address: config.address, cause };
        let tls = config.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(config.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tokens = Mutex::new(Tokens::new(config.token_ttl, config.max_tokens));
        let stop = CancellationToken::new();
        let forwards = Arc::new(Semaphore::new(forward::MAX_PAIRS_OF_ALL));
        let sessions = Sessions::new(config.max_sessions, config.max_sessions_of_one);
        let terms = Terms::new(&config);
        let inner = Inner { config, backend, tls, tokens, terms, sessions, forwards, stop: stop.clone() };
        let inner = Arc::new(inner);
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, inner.clone(), places)));
        Ok(Self { inner, address, _stop: stop.drop_guard() })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the end of the last session there is, by when nothing is kept for any. One that nobody waited for yet is told at once.
    pub async fn all_ended(&self) {
        self.inner.sessions.all_ended().await;
    }

    /// A URL at which a client can attach, once and soon.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn attach_url(&self, request: AttachRequest) -> Result<String, UrlError> {
        self.url(Pending::Command(Command::Attach(request)))
    }

    /// A URL at which a client can run a command, once and soon.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn exec_url(&self, request: ExecRequest) -> Result<String, UrlError> {
        self.url(Pending::Command(Command::Exec(request)))
    }

    /// A URL at which a client can connect to ports of a pod, once and soon.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn port_forward_url(&self, request: PortForwardRequest) -> Result<String, UrlError> {
        self.url(Pending::PortForward(request))
    }

    fn url(&self, pending: Pending) -> Result<String, UrlError> {
        pending.check()?;
        let kind = pending.kind().name();
        let token = self.inner.tokens().insert(pending, Instant::now());
        let token = token.ok_or(UrlError::TooMany(self.inner.config.max_tokens))?;
        let scheme = if self.inner.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}/{kind}/{token}", self.reachable()))
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
        match self.agree(&request, place) {
            Ok((pending, agreed, seat)) => {
                let protocol = agreed.protocol;
                let upgrade = hyper::upgrade::on(&mut request);
                let inner = self.clone();
                let session = async move {
                    match timeout(UPGRADE_DEADLINE, upgrade).await {
                        Ok(Ok(upgraded)) => {
                            let terms = inner.terms.with(seat.budget.clone());
                            inner.serve(TokioIo::new(upgraded), pending, protocol, &terms).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, "client left before its session began"),
                        Err(_) => tracing::debug!("client did not change protocols in time"),
                    }
                    drop(seat);
                };
                tokio::spawn(self.stop.clone().run_until_cancelled_owned(session));
                handshake::switch(&agreed)
            }
            Err(refusal) => refusal.response(),
        }
    }

    /// What the request's token stands for, which is used up, how its streams are carried, and the session's place.
    fn agree(&self, request: &Request<Incoming>, place: &Place) -> Result<(Pending, Agreed, Seat), Refusal> {
        let (kind, token) = Kind::of_path(request.uri().path()).ok_or(Refusal::UnknownUrl)?;
        let (ports, of) = match self.tokens().get(token, Instant::now()) {
            Some(pending) if pending.kind() == kind => (pending.ports(), pending.of().to_owned()),
            _ => return Err(Refusal::UnknownUrl),
        };
        let agreed = handshake::check(request.method(), request.headers(), kind)?;
        if ports.is_some_and(|ports| agreed.protocol.is_fixed() && !(1..=MAX_FIXED_PORTS).contains(&ports)) {
            return Err(Refusal::Ports);
        }
        let seat = self.sessions.take(&of).inspect_err(|refusal| {
            tracing::debug!(kind = kind.name(), %of, ?refusal, "streaming session refused");
        })?;
        if !place.leave() {
            return Err(Refusal::UnknownUrl);
        }
        let pending = self.tokens().take(token, Instant::now()).ok_or(Refusal::UnknownUrl)?;
        Ok((pending, agreed, seat))
    }

    async fn serve<T>(&self, transport: T, pending: Pending, protocol: &Protocol, terms: &Terms)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        match pending {
            Pending::Command(command) => {
                command::serve(transport, protocol, command, &*self.backend, terms).await;
            }
            Pending::PortForward(request) => {
                forward::serve(transport, protocol, request, self.backend.clone(), &self.forwards, terms).await;
            }
        }
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

async fn serve(stream: TcpStream, inner: Arc<Inner>, place: Arc<Place>) {
    // Typed characters are to travel at once. A socket that refuses this is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let Some(tls) = inner.tls.clone() else { return serve_http(stream, inner, place).await };
    match timeout(REQUEST_DEADLINE, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_http(stream, inner, place).await,
        Ok(Err(error)) => tracing::debug!(%error, "streaming client does not speak TLS with us"),
        Err(_) => tracing::debug!("streaming client did not take up TLS in time"),
    }
}

/// Serves the HTTP part of a connection.
async fn serve_http<T>(stream: T, inner: Arc<Inner>, place: Arc<Place>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
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
