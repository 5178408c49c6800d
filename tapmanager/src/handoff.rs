//! The server of the hand-off socket. A connection is one `Get`, and one thread serves it from accept(2) to the reply.
//!
//! [`crate::daemon`] gives it a [`Handler`], which says who may fetch, and answers. Every QEMU of the node can reach
//! this socket, so a stranger's connection has to cost little, and to cost other peers nothing:
//!
//! - A peer that may not fetch is told so and closed, before the server reads from it or counts it.
//! - Each process may have few connections at once ([`peer_limit`]), so that none takes the places of others. A peer
//!   beyond that is told to ask again later, which vmwrapper does.
//! - A peer that sends nothing for [`Limits::patience`] is closed.
//!
//! [`WAITING`] threads wait for peers. A thread ends with the connection that it serves, since it may have entered the
//! pod's network namespace by then, and every thread that it started would be in that namespace, too. Another thread,
//! which serves no peer, starts its successor after the reply; a thread that was the last to wait starts the successor
//! itself, before it serves. So a hand-off waits for no reactor and no worker, which on a busy node would be most of
//! its cost.

mod log_limit;
mod peer_limit;

use std::hint::black_box;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::Chain;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};
use proto::tap::{ErrorBody, ErrorCode, Packet, PodId, WireError, send, try_recv_short};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, warn};

use crate::rpc::{Answer, Peer, refusal, refuse};
use log_limit::LogLimit;
use peer_limit::{PeerLimit, PeerSlot};

/// How long nothing is accepted after the kernel refused to: most likely descriptors or threads ran out, and no event tells
/// when there are some again.
const PAUSE: Duration = Duration::from_millis(100);
/// Threads that wait while no peer comes.
const WAITING: usize = 2;
/// Longest request that is taken. A `Get` has some 80 bytes, whoever sends it.
const MOST: usize = 1024;
/// What a thread uses of its stack and of the heap while it serves.
const STACK: usize = 16 * 1024;
const HEAP: usize = 8 * 1024;

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

/// Who may fetch, and what is answered.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Whether the peer may fetch at all. Quick: others wait behind it.
    fn admit(&self, peer: &Peer) -> Result<(), ErrorBody>;
    /// The answer to a packet that came with `fds` descriptors. May put its thread into another namespace.
    fn answer(&self, bytes: &[u8], fds: usize) -> Served;
    /// Takes note that the peer was sent this pod's descriptors, so many. The peer goes on meanwhile.
    fn handed_off(&self, pod: PodId, peer: &Peer, fds: usize);
}

/// What a peer is given.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) answer: Answer,
    /// The pod whose descriptors are with it.
    pub(crate) pod: Option<PodId>,
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Arc<Stop>,
    threads: TaskTracker,
}

/// How all threads are told to end.
#[derive(Debug)]
struct Stop {
    listener: UnixListener,
    told: AtomicBool,
    /// For those that wait for something else than a peer.
    event: EventFd,
    /// Wakes the thread that has threads waiting. It ends when this goes.
    keeper: Sender<()>,
}

/// What its threads share.
#[derive(Debug)]
struct Shared<D> {
    handler: D,
    limits: Limits,
    places: Arc<PeerLimit>,
    refusals: LogLimit,
    /// How many threads wait for a peer, or are about to.
    waiting: Mutex<usize>,
    stop: Arc<Stop>,
    /// Until the last thread has ended.
    _running: TaskTrackerToken,
}

/// A peer that may fetch.
struct Admitted {
    socket: OwnedFd,
    peer: Peer,
    _place: PeerSlot,
}

/// What woke a thread.
enum Woken {
    Ready,
    Stopped,
    Late,
}

// === impl Server ===

impl Server {
    /// Serves a listening socket until [`Self::stop`].
    ///
    /// # Errors
    /// When there is no descriptor or thread.
    pub(crate) fn start<D: Handler>(listener: UnixListener, handler: D, limits: Limits) -> io::Result<Self> {
        // Of threads that block in accept(2) a peer wakes one; all that poll would wake.
        listener.set_nonblocking(false)?;
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let (keeper, wanted) = channel();
        let stop = Arc::new(Stop { listener, told: AtomicBool::new(false), event, keeper });
        let threads = TaskTracker::new();
        let shared = Arc::new(Shared {
            handler,
            limits,
            places: Arc::new(PeerLimit::new(limits.places, limits.of_a_process)),
            refusals: LogLimit::default(),
            waiting: Mutex::new(0),
            stop: Arc::clone(&stop),
            _running: threads.token(),
        });
        threads.close();
        shared.have_waiting(WAITING)?;
        // It keeps nothing of the server alive.
        let kept = Arc::downgrade(&shared);
        thread::Builder::new().name("handoff-keeper".to_owned()).spawn(move || {
            for () in wanted {
                let Some(shared) = kept.upgrade().filter(|shared| !shared.stop.is_told()) else { return };
                if let Err(error) = shared.have_waiting(WAITING) {
                    debug!(%error, "one thread less waits for hand-offs");
                }
            }
        })?;
        Ok(Self { stop, threads })
    }

    /// Waits until no thread is left to wait for a peer. Before [`Self::stop`] that is a bug's doing.
    pub(crate) async fn ended(&self) {
        self.threads.wait().await;
    }

    /// Tells all threads to end: at once if they wait for a peer, after the reply if they are at one. The socket closes with
    /// the last of them.
    pub(crate) async fn stop(self) {
        self.stop.tell();
        drop(self.stop);
        self.threads.wait().await;
    }
}

// === impl Stop ===

impl Stop {
    fn tell(&self) {
        self.told.store(true, Ordering::SeqCst);
        // Ends accept(2) in all threads, and cannot fail on a socket that listens.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        // A counter that is never read is never full.
        let _ = self.event.write(1);
        self.want_threads();
    }

    /// Has the keeper look whether enough threads wait.
    fn want_threads(&self) {
        // A keeper that is gone has nothing to keep.
        let _ = self.keeper.send(());
    }

    fn is_told(&self) -> bool {
        self.told.load(Ordering::SeqCst)
    }
}

// === impl Shared ===

impl<D: Handler> Shared<D> {
    /// Starts threads until so many wait.
    fn have_waiting(self: &Arc<Self>, wanted: usize) -> io::Result<()> {
        while self.counts_in(wanted) {
            let shared = Arc::clone(self);
            let thread = thread::Builder::new().name("handoff".to_owned());
            thread.spawn(move || shared.wait_and_serve()).inspect_err(|_| *self.waiting() -= 1)?;
        }
        Ok(())
    }

    fn counts_in(&self, wanted: usize) -> bool {
        let mut waiting = self.waiting();
        let lacks = *waiting < wanted;
        *waiting += usize::from(lacks);
        lacks
    }

    fn waiting(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_and_serve(self: Arc<Self>) {
        touch_memory();
        while let Some(Admitted { socket, peer, _place }) = self.next() {
            *self.waiting() -= 1;
            match self.have_waiting(1) {
                Ok(()) => {
                    self.serve(&socket, &peer);
                    return self.stop.want_threads();
                }
                Err(error) => {
                    warn!(%error, "no thread for a hand-off");
                    refuse(socket.as_fd(), no_room());
                    *self.waiting() += 1;
                }
            }
        }
    }

    /// The next peer that may fetch and has a place; `None` once the server is to stop.
    fn next(&self) -> Option<Admitted> {
        loop {
            let accepted = self.accept();
            if self.stop.is_told() {
                return None;
            }
            match accepted {
                Ok((socket, peer)) => match self.admit(&peer) {
                    Ok(place) => return Some(Admitted { socket, peer, _place: place }),
                    Err(reason) => refuse(socket.as_fd(), reason),
                },
                Err(error) => {
                    warn!(%error, "no hand-off can be accepted for now");
                    if let Woken::Stopped = self.wait(None, PAUSE) {
                        return None;
                    }
                }
            }
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        let (stream, _nameless) = self.stop.listener.accept()?;
        let socket = OwnedFd::from(stream);
        let peer = Peer::of(&socket)?;
        Ok((socket, peer))
    }

    fn admit(&self, peer: &Peer) -> Result<PeerSlot, ErrorBody> {
        self.handler.admit(peer).inspect_err(|reason| {
            if let Some(since) = self.refusals.tell() {
                warn!(uid = peer.uid, pid = peer.pid, reason = reason.message, since, "peers refused at the hand-off");
            }
        })?;
        PeerLimit::take(&self.places, peer.pid).ok_or_else(|| {
            if let Some(since) = self.refusals.tell() {
                warn!(pid = peer.pid, since, "no place for a peer at the hand-off");
            }
            no_room()
        })
    }

    fn serve(&self, socket: &OwnedFd, peer: &Peer) {
        // Most peers have sent it by now.
        let mut request = try_recv_short(socket.as_fd(), MOST);
        if let Ok(None) = request {
            match self.wait(Some(socket.as_fd()), self.limits.patience) {
                Woken::Stopped => return,
                Woken::Late => return debug!(pid = peer.pid, "a peer at the hand-off said nothing"),
                Woken::Ready => request = try_recv_short(socket.as_fd(), MOST),
            }
        }
        let Served { answer, pod } = match request {
            Ok(Some(Packet { bytes, fds })) => self.handler.answer(&bytes, fds.len()),
            Ok(None) | Err(WireError::Closed) => return,
            Err(error) => return refuse(socket.as_fd(), refusal(ErrorCode::BadRequest, Chain(&error).to_string())),
        };
        let fds: Vec<_> = answer.fds.iter().map(|fd| fd.as_fd()).collect();
        // It is the first packet, so there is room for it.
        match (send(socket.as_fd(), &answer.bytes, &fds), pod) {
            (Ok(()), Some(pod)) => self.handler.handed_off(pod, peer, fds.len()),
            (Ok(()), None) => {}
            (Err(error), _) => {
                debug!(pid = peer.pid, error = %Chain(&error), "a peer at the hand-off did not take its reply");
            }
        }
    }

    /// Waits until `fd` can be read or has hung up, for as long as `limit`.
    fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Duration) -> Woken {
        let timeout = limit.try_into().unwrap_or(PollTimeout::MAX);
        let stop = Some(self.stop.event.as_fd());
        let watched = [stop, fd].into_iter().flatten();
        let mut watched: Vec<_> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
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

/// Has this thread's memory there before a peer comes, who would wait while the kernel makes each page.
#[inline(never)]
fn touch_memory() {
    let mut stack = [1_u8; STACK];
    black_box(&mut stack);
    drop(black_box(vec![1_u8; HEAP]));
}

fn no_room() -> ErrorBody {
    refusal(ErrorCode::Unavailable, "too many machines are started at once; ask again later")
}

#[cfg(test)]
mod tests;
