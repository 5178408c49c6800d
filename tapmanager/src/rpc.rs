//! The server of the control socket: packets of the tap protocol, one task per connection, which may be kept.
//!
//! [`crate::daemon`] gives it a [`Handler`], which says who may connect, and answers. This module does not know what a
//! message means. [`crate::handoff`] serves the other socket, by the same rules but for the last two:
//!
//! - The kernel tells who the peer is (`SO_PEERCRED`), once. A peer that may not connect is told so and closed, before
//!   the server reads from it or counts it.
//! - Descriptors that come with a request are closed unused.
//! - Each packet gets exactly one reply. After a packet that is no message the connection ends; so it does after
//!   [`Limits::idle`] without a packet. A request may take as long as it takes: its own steps have deadlines.
//! - At most [`Limits::connections`] at a time; more wait in the socket's backlog, and connect(2) waits once that is
//!   full.

mod peer;
mod refuse;
mod socket;

use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, Reason};
use nix::errno::Errno;
use proto::tap::{ErrorBody, ErrorCode, Packet, WireError, encode_reply, recv, send};
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug, warn};

use common::Ready;
pub(crate) use peer::{Executable, Peer};
pub(crate) use refuse::refuse;
pub(crate) use socket::{SocketError, bind, listen, open_to_group};

/// How long nothing is accepted after the kernel refused to: most likely descriptors ran out, and no event tells when
/// there are some again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of one socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections: usize,
    /// How long a peer may say nothing.
    pub(crate) idle: Duration,
    /// How long a peer may leave a reply unread while its buffer is full.
    pub(crate) send: Duration,
}

/// Who may speak on a socket, and what is answered.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Name of the socket, for the log.
    const NAME: &'static str;
    /// Whether the peer may speak here at all.
    fn admit(&self, peer: &Peer) -> Result<(), ErrorBody>;
    /// The answer to a packet that came with `fds` descriptors.
    fn answer(&self, bytes: &[u8], fds: usize) -> impl Future<Output = Answer> + Send;
}

/// What is sent back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The packet.
    pub(crate) bytes: Vec<u8>,
    /// Beside it; closed here once sent.
    pub(crate) fds: Vec<OwnedFd>,
    /// Nothing after it makes sense.
    pub(crate) last: bool,
}

/// Serves a listening socket until `shutdown`; then connections that wait for a request end at once, the others after
/// their reply.
pub(crate) async fn serve<E: Handler>(
    listener: UnixListener,
    handler: Arc<E>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let connections = TaskTracker::new();
    let free = Arc::new(Semaphore::new(limits.connections));
    while let Some(Some(place)) = shutdown.run_until_cancelled(place(&free)).await {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let (peer, socket) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(socket = E::NAME, %error, "no connection can be accepted for now");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(reason) = handler.admit(&peer) {
            refuse(socket.as_fd(), reason);
            continue;
        }
        let span = tracing::debug_span!("peer", socket = E::NAME, uid = peer.uid, pid = peer.pid);
        let (handler, shutdown) = (Arc::clone(&handler), shutdown.clone());
        let talk = async move {
            let connection = Connection { socket, limits, shutdown };
            if let Err(error) = connection.talk(&*handler).await {
                debug!(error = %Chain(&error), "connection ended early");
            }
            drop(place);
        };
        connections.spawn(talk.instrument(span));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Waits for a place, and says so.
async fn place(free: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    if free.available_permits() == 0 {
        warn!("all connections are taken; further clients wait");
    }
    // Nobody closes it.
    Arc::clone(free).acquire_owned().await.ok()
}

/// The reply of an error.
pub(crate) fn refusal(code: ErrorCode, message: impl Into<String>) -> ErrorBody {
    ErrorBody { code, message: message.into() }
}

impl Answer {
    /// A refusal after which the connection goes on, or not.
    pub(crate) fn refuse(error: ErrorBody, last: bool) -> Self {
        // An error's text is bounded by what it quotes; should it not fit all the same, the peer sees the end alone.
        let bytes = encode_reply::<()>(Err(error), 0).unwrap_or_default();
        Self { bytes, fds: Vec::new(), last }
    }
}

struct Connection {
    socket: Ready,
    limits: Limits,
    shutdown: CancellationToken,
}

impl Connection {
    async fn talk<E: Handler>(&self, handler: &E) -> Result<(), Reason> {
        let idle = self.limits.idle;
        loop {
            let packet = tokio::select! {
                () = self.shutdown.cancelled() => return Ok(()),
                packet = timeout(idle, self.receive()) => {
                    packet.map_err(|_| Reason::new(format!("peer said nothing for {} s", idle.as_secs_f64())))?
                }
            };
            let answer = match packet {
                Err(WireError::Closed) => return Ok(()),
                Err(WireError::Os(errno)) => {
                    return Err(Reason::new("failed to receive").with(io::Error::from(errno)));
                }
                Err(error @ (WireError::Truncated | WireError::TooLong { .. })) => {
                    Answer::refuse(refusal(ErrorCode::BadRequest, error.to_string()), true)
                }
                Ok(Packet { bytes, fds }) => handler.answer(&bytes, fds.len()).await,
            };
            let last = answer.last;
            let sent = timeout(self.limits.send, self.send(answer)).await;
            let within = self.limits.send.as_secs_f64();
            let stuck = |_| Reason::new(format!("peer did not take its reply within {within} s"));
            sent.map_err(stuck)?.map_err(Reason::because("failed to send"))?;
            if last {
                return Ok(());
            }
        }
    }

    async fn receive(&self) -> Result<Packet, WireError> {
        let received = self.socket.read(|fd| match recv(fd) {
            Err(WireError::Os(Errno::EAGAIN)) => Err(io::ErrorKind::WouldBlock.into()),
            other => Ok(other),
        });
        received.await.unwrap_or_else(|error| Err(WireError::Os(errno(&error))))
    }

    /// The answer's descriptors are closed with it, sent or not.
    async fn send(&self, answer: Answer) -> Result<(), WireError> {
        let fds: Vec<_> = answer.fds.iter().map(|fd| fd.as_fd()).collect();
        let sent = self.socket.write(|fd| match send(fd, &answer.bytes, &fds) {
            Err(WireError::Os(Errno::EAGAIN)) => Err(io::ErrorKind::WouldBlock.into()),
            other => Ok(other),
        });
        sent.await.unwrap_or_else(|error| Err(WireError::Os(errno(&error))))
    }
}

/// A listener of packets is, to the runtime and to accept(2), no different from one of streams.
async fn accept(listener: &UnixListener) -> io::Result<(Peer, Ready)> {
    let (stream, _address) = listener.accept().await?;
    let socket = OwnedFd::from(stream.into_std()?);
    Ok((Peer::of(&socket)?, Ready::register(socket)?))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}

#[cfg(test)]
mod tests;
