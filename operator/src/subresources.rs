//! The server of subresources, behind the API server: console and screen of a VM, its ports, start and stop, pause, what its guest tells.
//!
//! It keeps nothing. Each request is of who a front proxy says that asks ([`front_proxy`]), is allowed by a SubjectAccessReview for exactly
//! this subresource ([`access`]), and becomes a request to the operator ([`power`]) or a command to the node of the VM through its pod
//! ([`instance`], [`pod`]); a stream is joined to the pod's ([`session`]). What there is, the table [`crate::verbs`] says. What it says of
//! itself ([`discovery`]) is no secret, and is said to anybody.

mod access;
mod answers;
mod asked;
mod channels;
mod common_name;
mod discovery;
mod door;
mod figures;
mod front_proxy;
mod instance;
mod pod;
mod power;
mod refusal;
mod room;
mod route;
mod session;
mod socket;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info};

use self::answers::Server;
use self::door::{Door, Now};
use self::figures::Figures;
use self::front_proxy::FrontProxy;
use self::instance::Clients;
use self::room::{Room, Sessions, all_of};
use self::session::gone;
use self::socket::STALLED;
use crate::certificates::{Keeper, Place};
use crate::group::{Group, VERSION};
use crate::names::SUBRESOURCES_TLS_SECRET;
use crate::run::RunError;
use crate::serve::{clients, listen, serve};
use crate::verbs::group;

/// Connections at a time of which it is not known yet who comes; more of them wait.
const MAX_HANDSHAKES: usize = 256;
/// Connections of front proxies on which something is asked at a time; more of them wait.
const MAX_PROXIES: usize = 512;
/// Those of anybody else, who may have discovery alone; more of them are closed, so that they are in nobody's way.
const MAX_STRANGERS: usize = 32;
/// Streams at a time, and those of one namespace.
const MAX_SESSIONS: usize = 1024;
const MAX_OF_NAMESPACE: usize = 128;
/// Long bodies that are read at a time, and answers of nodes, until they were sent.
const MAX_BODIES: usize = 4;
const MAX_SAID: usize = 8;
/// Time for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A client has so long to say what it wants.
const HEADERS: Duration = Duration::from_secs(10);
/// A connection is used for so long: for one request, unless that becomes a stream.
const LONGEST: Duration = Duration::from_secs(90);
/// Longest head of a request, and most headers: who asks may be in some thousand groups, each of which is one.
const MAX_HEAD: usize = 256 << 10;
const MAX_HEADERS: usize = 4096;
/// The same of strangers, who say nothing of groups that would be read.
const STRANGERS_HEAD: usize = 16 << 10;
const STRANGERS_HEADERS: usize = 100;
/// The kernel asks a peer of whom nothing came for so long whether it is there, and again after so long.
const IDLE: Duration = Duration::from_secs(60);
const PROBE: Duration = Duration::from_secs(15);
/// Sessions have so long to tell their clients that the server ends, and requests that are under way to be answered.
const FAREWELL: Duration = Duration::from_secs(8);

/// What is answered.
type Answer = Response<Full<Bytes>>;

/// Places of connections on which something may be asked.
#[derive(Debug)]
struct Slots {
    proxies: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// A client that is served.
struct Visitor {
    stream: TlsStream<TcpStream>,
    /// By whom it comes, if that one is believed.
    proxy: Option<Arc<FrontProxy>>,
    slot: OwnedSemaphorePermit,
}

/// How it is to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of our objects.
    pub group: Group,
    /// Namespace of the server: of its certificate, and of its Service.
    pub namespace: String,
    /// Name of the Service by which the API server comes.
    pub service: String,
    /// Where the API server is answered.
    pub serve: SocketAddr,
    /// Where kubelet and Prometheus ask.
    pub listen: SocketAddr,
    /// The release that this is.
    pub release: String,
}

/// Serves until a signal says to end. `streams` is a client that lets streams be silent.
///
/// # Errors
/// See [`RunError`]. It is to be started again then.
pub async fn run(client: Client, streams: Client, settings: Settings) -> Result<(), RunError> {
    let open = |at| async move { listen(at).await.map_err(|cause| RunError::Listen(at, cause)) };
    let (facts, listener) = (open(settings.listen).await?, open(settings.serve).await?);
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let figures = Arc::new(Figures::default());
    let place = Place {
        namespace: settings.namespace.clone(),
        service: settings.service.clone(),
        secret: SUBRESOURCES_TLS_SECRET,
        told_in: format!("{VERSION}.{}", group(settings.group)),
    };
    let (keeper, certificate) = Keeper::<APIService>::new(client.clone(), place);
    let (door, now) = watch::channel(None);
    let (alive, stopped) = watch::channel(());
    let server = Arc::new(Server {
        group: settings.group,
        release: settings.release,
        clients: Clients { calls: client.clone(), streams },
        figures: Arc::clone(&figures),
        slots: Slots::default(),
        sessions: Arc::new(Sessions::new(MAX_SESSIONS, MAX_OF_NAMESPACE)),
        bodies: Room::new(MAX_BODIES, "long bodies"),
        said: Room::new(MAX_SAID, "answers of nodes"),
        stopped,
    });
    info!(group = %group(settings.group), "serves");
    tokio::select! {
        () = keeper.keep() => {}
        () = door::keep(client, certificate, door, Arc::clone(&figures)) => {}
        () = serve(facts, figures) => {}
        () = answer(listener, now, Arc::clone(&server)) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(alive);
    let ended = async { tokio::join!(server.sessions.ended(), all_of(&server.slots.proxies, MAX_PROXIES)) };
    let _ = timeout(FAREWELL, ended).await;
    Ok(())
}

/// Answers, for ever.
async fn answer(listener: TcpListener, now: Now, server: Arc<Server>) {
    let served = |stream| {
        let (door, server) = (now.borrow().clone(), Arc::clone(&server));
        async move {
            // Without a certificate there is nothing to say to anybody.
            if let Some(door) = door
                && let Some(visitor) = admit(stream, &door, &server.slots).await
            {
                // Its place is another one now.
                tokio::spawn(connection(visitor, server));
            }
        }
    };
    clients(listener, MAX_HANDSHAKES, served).await;
}

/// Finds out who comes, and a place for it.
async fn admit(stream: TcpStream, door: &Door, slots: &Slots) -> Option<Visitor> {
    // What is typed is small.
    let _ = stream.set_nodelay(true);
    if let Err(error) = look_after(&stream) {
        debug!(%error, "a client that is gone may not be noticed");
    }
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(Arc::clone(&door.tls)).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(error = %common::Chain(&error), "no TLS with a client");
            return None;
        }
        Err(_) => {
            debug!("a client says nothing");
            return None;
        }
    };
    if door.proxy.believes(stream.get_ref().1.peer_certificates()) {
        let slot = timeout(LONGEST, Arc::clone(&slots.proxies).acquire_owned()).await.ok()?.ok()?;
        return Some(Visitor { stream, proxy: Some(Arc::clone(&door.proxy)), slot });
    }
    let slot = Arc::clone(&slots.strangers).try_acquire_owned();
    let slot = slot.inspect_err(|_| debug!(most = MAX_STRANGERS, "too many come that are no front proxy")).ok()?;
    Some(Visitor { stream, proxy: None, slot })
}

/// Has the kernel end a connection whose peer is gone without a word.
fn look_after(stream: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(PROBE))?;
    // No less: it is also how long a peer may be there and take nothing.
    socket.set_tcp_user_timeout(Some(STALLED))
}

async fn connection(Visitor { stream, proxy, slot }: Visitor, server: Arc<Server>) {
    let (head, headers) = if proxy.is_some() { (MAX_HEAD, MAX_HEADERS) } else { (STRANGERS_HEAD, STRANGERS_HEADERS) };
    let stopped = server.stopped.clone();
    let service = service_fn(move |request| {
        let (server, proxy) = (Arc::clone(&server), proxy.clone());
        async move { Ok::<_, Infallible>(server.answer(request, proxy.as_deref()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(head)
        .max_headers(headers)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let served = async {
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => {}
            () = gone(stopped) => {
                // What is under way is answered yet.
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    };
    // Of a client that is gone nothing is to be said.
    let _ = timeout(LONGEST, served).await;
    drop(slot);
}

impl Default for Slots {
    fn default() -> Self {
        let [proxies, strangers] = [MAX_PROXIES, MAX_STRANGERS].map(|most| Arc::new(Semaphore::new(most)));
        Self { proxies, strangers }
    }
}

#[cfg(test)]
mod tests;
