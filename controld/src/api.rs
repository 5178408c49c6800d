//! The edge: who calls controld, on one unix socket. kubelet speaks CRI ([`cri`]); `virtletctl` speaks CRI too, and calls of our
//! own for images, for machines that stand still and for what is on no record ([`admin`]).
//!
//! [`socket`] makes the socket, [`serve`] serves it, [`drain`] lets calls that are under way end, [`status`] gives each
//! failure its gRPC code, and [`span`] each line of the log its call and pod. [`edge`] is around all services: it gives each
//! call its deadline and counts it, and [`door`] opens when there is somebody to answer. [`sessions`] joins clients of the
//! streaming server to consoles and to pods' ports, and [`verbs`] answers commands that are ours and not the guest's.

pub mod admin;
pub mod cri;
pub mod door;
mod drain;
pub mod edge;
pub mod sessions;
pub mod socket;
mod span;
pub mod status;
pub mod verbs;

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use proto::cri::image_service_server::ImageServiceServer;
use proto::cri::runtime_service_server::RuntimeServiceServer;
use proto::images::image_admin_server::ImageAdminServer;
use proto::machines::machines_server::MachinesServer;
use proto::orphans::orphans_server::OrphansServer;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::service::Routes;
use tower::Service;

use self::admin::AdminCalls;
use self::admin::machines::MachineCalls;
use self::admin::orphans::OrphanCalls;
use self::cri::image::ImageCalls;
use self::cri::runtime::Runtime;
use self::edge::{Calls, EdgeLayer};

/// Largest message in either direction, as kubelet's client has it.
const MAX_MESSAGE: usize = 16 << 20;

/// The CRI server failed.
#[derive(Debug, thiserror::Error)]
#[error("CRI server failed")]
pub struct ServeError(#[from] tonic::transport::Error);

/// The services of our own.
#[derive(Debug)]
pub struct Own {
    pub images: AdminCalls,
    pub machines: MachineCalls,
    pub orphans: OrphanCalls,
}

/// CRI's services, and our own beside them.
#[must_use]
pub fn services(runtime: Runtime, images: ImageCalls, own: Own) -> Routes {
    let runtime = RuntimeServiceServer::new(runtime)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let images =
        ImageServiceServer::new(images).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
    Routes::new(runtime)
        .add_service(images)
        .add_service(ImageAdminServer::new(own.images).max_encoding_message_size(MAX_MESSAGE))
        .add_service(MachinesServer::new(own.machines))
        .add_service(OrphansServer::new(own.orphans).max_encoding_message_size(MAX_MESSAGE))
        .prepare()
}

/// Serves what is behind the door, or what stands in front of it, until `shutdown`; calls under way then have `deadline` to end.
///
/// # Errors
/// When the transport fails.
pub async fn serve<S>(
    listener: UnixListener,
    services: S,
    calls: Calls,
    shutdown: impl Future<Output = ()>,
    deadline: Duration,
) -> Result<(), ServeError>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let stop = CancellationToken::new();
    let server = tonic::transport::Server::builder()
        .trace_fn(span::of)
        .layer(EdgeLayer(calls))
        .serve_with_incoming_shutdown(services, UnixListenerStream::new(listener), stop.clone().cancelled_owned());
    Ok(drain::serve_until(server, stop, shutdown, deadline).await?)
}
