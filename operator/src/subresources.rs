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
mod route;
mod session;
mod socket;

use std::convert::Infallible;
use std::net::SocketAddr;
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
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

use self::answers::Server;
use self::door::{Door, Now};
use self::figures::Figures;
use self::instance::Clients;
use crate::certificates::{Keeper, Place};
use crate::group::{Group, VERSION};
use crate::names::SUBRESOURCES_TLS_SECRET;
use crate::run::RunError;
use crate::serve::{clients, listen, serve};
use crate::verbs::group;

/// Connections on which something is asked at a time; more of them wait.
const MAX_CONNECTIONS: usize = 512;
/// Streams at a time.
const MAX_SESSIONS: usize = 1024;
/// Time for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A client has so long to say what it wants.
const HEADERS: Duration = Duration::from_secs(10);
/// A connection is used for so long: for one request, unless that becomes a stream.
const LONGEST: Duration = Duration::from_secs(90);
/// Longest head of a request.
const MAX_HEAD: usize = 64 << 10;
/// Sessions have so long to tell their clients that the server ends.
const FAREWELL: Duration = Duration::from_secs(8);

/// What is answered.
type Answer = Response<Full<Bytes>>;

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
        sessions: Arc::new(Semaphore::new(MAX_SESSIONS)),
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
    let all = u32::try_from(MAX_SESSIONS).unwrap_or(u32::MAX);
    let _ = timeout(FAREWELL, server.sessions.acquire_many(all)).await;
    Ok(())
}

/// Answers, for ever.
async fn answer(listener: TcpListener, now: Now, server: Arc<Server>) {
    let served = |stream| {
        let (door, server) = (now.borrow().clone(), Arc::clone(&server));
        async move {
            // Without a certificate there is nothing to say to anybody.
            if let Some(door) = door {
                connection(stream, &door, server).await;
            }
        }
    };
    clients(listener, MAX_CONNECTIONS, served).await;
}

async fn connection(stream: TcpStream, door: &Door, server: Arc<Server>) {
    // What is typed is small.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(Arc::clone(&door.tls)).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(error = %common::Chain(&error), "no TLS with a client"),
        Err(_) => return debug!("a client says nothing"),
    };
    let is_proxy = door.proxy.believes(stream.get_ref().1.peer_certificates());
    let proxy = is_proxy.then(|| Arc::clone(&door.proxy));
    let service = service_fn(move |request| {
        let (server, proxy) = (Arc::clone(&server), proxy.clone());
        async move { Ok::<_, Infallible>(server.answer(request, proxy.as_deref()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // Of a client that is gone nothing is to be said.
    let _ = timeout(LONGEST, connection).await;
}

#[cfg(test)]
mod tests;
