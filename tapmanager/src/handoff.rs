//! The server of the hand-off socket: a connection is one `Get`, and has a thread of its own from accept(2) to the reply.
//!
//! Called by [`crate::daemon`], which gives it a [`Desk`]: who may fetch, and what is answered. Every QEMU of the node can
//! reach this socket, so what is here costs a stranger's call as little as can be, and nobody else anything:
//!
//! - A peer that may not fetch is told so and closed, before anything of its is read and before it takes a place.
//! - Places are counted for each process ([`places`]), so that none can take those of the others. Who finds none is told to
//!   ask again later, which vmwrapper does.
//! - A peer that says nothing for [`Limits::patience`] is closed.
//!
//! One thread waits for a peer at any time. It starts its successor before it serves, and ends with the connection: by
//! then it may be in the pod's network namespace, from which there is no way back. A hand-off therefore waits for no
//! other thread, neither a reactor nor a worker, which on a busy node is most of what it would cost.

mod places;
mod quiet;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use proto::tap::{ErrorBody, ErrorCode, Packet, WireError, recv, send};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, warn};

use crate::chain::Chain;
use crate::rpc::{Answer, Peer, refusal, refuse};
use places::{Place, Places};
use quiet::Quiet;

/// How long nothing is accepted after the kernel refused to: most likely descriptors or threads ran out, and no event tells
/// when there are some again.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds of the socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Peers that are served at a time.
    pub(crate) places: usize,
    /// Of them, those of one process. vmwrapper needs one; an earlier one of its may not have been seen to end.
    pub(crate) of_a_process: usize,
    /// How long a peer may say nothing.
    pub(crate) patience: Duration,
}

/// What the socket is for.
pub(crate) trait Desk: Send + Sync + 'static {
    /// Whether the peer may fetch at all. Quick: others wait behind it.
    fn admit(&self, peer: &Peer) -> Result<(), ErrorBody>;
    /// The answer to a packet that came with `fds` descriptors. May put its thread into another namespace.
    fn answer(&self, bytes: &[u8], fds: usize) -> Answer;
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Arc<EventFd>,
    threads: TaskTracker,
}

/// What its threads share.
#[derive(Debug)]
struct Shared<D> {
    listener: UnixListener,
    desk: D,
    limits: Limits,
    places: Arc<Places>,
    refusals: Quiet,
    stop: Arc<EventFd>,
}

/// A peer that may fetch.
struct Admitted {
    socket: OwnedFd,
    peer: Peer,
    _place: Place,
}

/// What woke a thread.
enum Woken {
    Ready,
    Stopped,
    Late,
}

// === impl Server ===

impl Server {
    /// Serves a listening socket, which must not block, until [`Self::stop`].
    ///
    /// # Errors
    /// When there is no descriptor or thread.
    pub(crate) fn start<D: Desk>(listener: UnixListener, desk: D, limits: Limits) -> io::Result<Self> {
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let threads = TaskTracker::new();
        let places = Arc::new(Places::new(limits.places, limits.of_a_process));
        let shared = Shared { listener, desk, limits, places, refusals: Quiet::default(), stop: Arc::clone(&stop) };
        Arc::new(shared).wait_on_a_thread(threads.token())?;
        threads.close();
        Ok(Self { stop, threads })
    }

    /// Tells all threads to end: at once if they wait for a peer, after the reply if they are at one. The socket closes with
    /// the last of them.
    pub(crate) async fn stop(self) {
        // A counter that is never read is never full.
        let _ = self.stop.write(1);
        self.threads.wait().await;
    }
}

// === impl Shared ===

impl<D: Desk> Shared<D> {
    fn wait_on_a_thread(self: Arc<Self>, running: TaskTrackerToken) -> io::Result<()> {
        let thread = thread::Builder::new().name("handoff".to_owned());
        thread.spawn(move || self.wait_and_serve(running)).map(drop)
    }

    fn wait_and_serve(self: Arc<Self>, running: TaskTrackerToken) {
        while let Some(Admitted { socket, peer, _place }) = self.next() {
            match Arc::clone(&self).wait_on_a_thread(running.clone()) {
                Ok(()) => return self.serve(&socket, &peer),
                Err(error) => {
                    warn!(%error, "no thread for a hand-off");
                    refuse(socket.as_fd(), no_room());
                }
            }
        }
    }

    /// The next peer that may fetch and has a place; `None` once the server is to stop.
    fn next(&self) -> Option<Admitted> {
        loop {
            match self.wait(self.listener.as_fd(), None) {
                Woken::Stopped => return None,
                Woken::Ready | Woken::Late => {}
            }
            match self.accept() {
                Ok((socket, peer)) => match self.admit(&peer) {
                    Ok(place) => return Some(Admitted { socket, peer, _place: place }),
                    Err(reason) => refuse(socket.as_fd(), reason),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    warn!(%error, "no hand-off can be accepted for now");
                    if let Woken::Stopped = self.wait(self.stop.as_fd(), Some(PAUSE)) {
                        return None;
                    }
                }
            }
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        let (stream, _nameless) = self.listener.accept()?;
        let socket = OwnedFd::from(stream);
        let peer = Peer::of(&socket)?;
        Ok((socket, peer))
    }

    fn admit(&self, peer: &Peer) -> Result<Place, ErrorBody> {
        self.desk.admit(peer).inspect_err(|reason| {
            if let Some(since) = self.refusals.tell() {
                warn!(uid = peer.uid, pid = peer.pid, reason = reason.message, since, "peers refused at the hand-off");
            }
        })?;
        Places::take(&self.places, peer.pid).ok_or_else(|| {
            if let Some(since) = self.refusals.tell() {
                warn!(pid = peer.pid, since, "no place for a peer at the hand-off");
            }
            no_room()
        })
    }

    fn serve(&self, socket: &OwnedFd, peer: &Peer) {
        let answer = match self.wait(socket.as_fd(), Some(self.limits.patience)) {
            Woken::Stopped => return,
            Woken::Late => return debug!(pid = peer.pid, "a peer at the hand-off said nothing"),
            Woken::Ready => match recv(socket.as_fd()) {
                Ok(Packet { bytes, fds }) => self.desk.answer(&bytes, fds.len()),
                Err(WireError::Closed) => return,
                Err(error) => {
                    return refuse(socket.as_fd(), refusal(ErrorCode::BadRequest, Chain(&error).to_string()));
                }
            },
        };
        let fds: Vec<_> = answer.fds.iter().map(|fd| fd.as_fd()).collect();
        // It is the first packet, so there is room for it.
        if let Err(error) = send(socket.as_fd(), &answer.bytes, &fds) {
            debug!(pid = peer.pid, error = %Chain(&error), "a peer at the hand-off did not take its reply");
        }
    }

    /// Waits until `fd` can be read or has hung up, for as long as `limit`.
    fn wait(&self, fd: BorrowedFd<'_>, limit: Option<Duration>) -> Woken {
        let timeout = limit.map_or(PollTimeout::NONE, |limit| limit.try_into().unwrap_or(PollTimeout::MAX));
        let mut watched = [PollFd::new(self.stop.as_fd(), PollFlags::POLLIN), PollFd::new(fd, PollFlags::POLLIN)];
        loop {
            match poll(&mut watched, timeout) {
                Err(Errno::EINTR) => continue,
                Ok(0) => return Woken::Late,
                // Memory ran out: as if it was ready, for what is tried then fails by itself.
                Err(_) => return Woken::Ready,
                Ok(_) if watched[0].any() != Some(false) => return Woken::Stopped,
                Ok(_) => return Woken::Ready,
            }
        }
    }
}

fn no_room() -> ErrorBody {
    refusal(ErrorCode::Unavailable, "too many machines are started at once; ask again later")
}

#[cfg(test)]
mod tests;
