//! The edge to kubelet: CRI v1 on a unix socket.
//!
//! A handler turns a request into the [`crate::model`] and rejects early ([`convert`]), asks a service, and turns the
//! answer back; [`status`] gives every failure its code. Work that changes state is spawned ([`finish`]): gRPC drops a
//! handler when its caller gives up, and half of a sandbox is no sandbox.

pub mod convert;
mod drain;
mod find;
pub mod image;
pub mod runtime;
pub mod socket;
pub mod status;

use std::future::Future;
use std::time::Duration;

use proto::cri::image_service_server::ImageServiceServer;
use proto::cri::runtime_service_server::RuntimeServiceServer;
use proto::images::image_admin_server::ImageAdminServer;
use proto::orphans::orphans_server::OrphansServer;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;

use crate::admin::AdminCalls;
use crate::admin::orphans::OrphanCalls;
use crate::error::{Error, Kind, Result};

/// Largest message in either direction, as kubelet's client has it.
const MAX_MESSAGE: usize = 16 << 20;

/// The CRI server failed.
#[derive(Debug, thiserror::Error)]
#[error("CRI server failed")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves CRI's services, and our own beside them, until `shutdown`; calls under way then have `deadline` to end.
///
/// # Errors
/// When the transport fails.
pub async fn serve(
    listener: UnixListener,
    runtime: runtime::Runtime,
    images: image::ImageCalls,
    admin: (AdminCalls, OrphanCalls),
    shutdown: impl Future<Output = ()>,
    deadline: Duration,
) -> Result<(), ServeError> {
    let runtime = RuntimeServiceServer::new(runtime)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let images =
        ImageServiceServer::new(images).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
    let stop = CancellationToken::new();
    let server = tonic::transport::Server::builder()
        .add_service(runtime)
        .add_service(images)
        .add_service(ImageAdminServer::new(admin.0).max_encoding_message_size(MAX_MESSAGE))
        .add_service(OrphansServer::new(admin.1).max_encoding_message_size(MAX_MESSAGE))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.clone().cancelled_owned());
    Ok(drain::serve_until(server, stop, shutdown, deadline).await?)
}

/// Runs work that changes state to its end, whether or not the caller waits for it.
pub(crate) async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T, tonic::Status> {
    let done = tokio::spawn(tracing::Instrument::in_current_span(work)).await;
    let done = done.unwrap_or_else(|error| Err(Error::because(Kind::Internal, "a call ended in a bug", error)));
    done.map_err(|error| status::of(&error))
}
