//! Starts CNI plugins, in a process that keeps the privileges which the daemon gives up.
//!
//! A child inherits its parent's system call filter and bounding set, and plugins need more than the daemon. So
//! [`fork`] makes a small process first, and only then does `main` confine the daemon. [`crate::cni`] calls
//! [`Spawner::run`]; the other end is [`serve`], with one thread for each running plugin. In tests the server is a
//! thread of the same process ([`Spawner::in_process`]), with the same code.
//!
//! # Wire
//! For each plugin the daemon sends one packet over a `SOCK_SEQPACKET` pair: limit, program and environment, separated
//! by zero bytes, and with it the plugin's three standard descriptors, the other ends of its two outputs, and a socket
//! for this call. On that socket the server says once how the plugin ended, or that it did not start, or that the
//! server does not start such a program ([`allowed`]). The daemon answers with one byte: either it has all of the
//! output, or the server has to kill the plugin's process group.
//!
//! A daemon that dies sends neither. A plugin that runs for a pod then has the rest of its time: a DEL that is killed
//! halfway can leave what no later DEL finds (firewall rules of a bridge whose link is gone already). The next daemon's
//! command for that pod waits for it ([`pod_locks`]). A plugin that runs for no pod (STATUS, GC, VERSION) is killed: it
//! can be run again, and GC removes what it does not know.
//!
//! The server itself never sends on its end of the pair, so any event there means that the server has ended
//! ([`Spawner::gone`]). The daemon then ends as well, for a new daemon has a new server.
//!
//! Invariants: each plugin leads a process group of its own; one plugin at a time runs for each pod; the server reaps a
//! plugin only after its call is over, so that its process id cannot belong to another group when the group is killed.

mod allowed;
mod pod_locks;
mod serve;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
use proto::tap::{WireError, send};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tracing::error;

use crate::blocking::off_reactor;
use crate::sys::fork::{self, Forked};
pub(crate) use allowed::{Allowed, Denied};
use common::Ready;
use pod_locks::PodLocks;
use serve::{DENIED, ENDED, KILL, NOT_STARTED, OVER, serve};

/// The way to the process that starts plugins. Clones lead to the same.
#[derive(Debug, Clone)]
pub struct Spawner {
    socket: Arc<OwnedFd>,
}

/// A plugin that was asked for. Dropping it lets the plugin end within its time, with nobody listening.
#[derive(Debug)]
pub(crate) struct Run {
    call: UnixStream,
}

/// The plugin's standard descriptors.
#[derive(Debug)]
pub(crate) struct Stdio<'a> {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Where its outputs are read: the server does if the daemon dies.
    pub(crate) readers: [BorrowedFd<'a>; 2],
}

/// Why there is no process that starts plugins.
#[derive(Debug, thiserror::Error)]
pub enum SpawnerError {
    /// No pair of sockets.
    #[error("failed to make a socket for the process that starts plugins")]
    Socket(#[source] io::Error),
    /// No file for the locks of pods.
    #[error("failed to open `{}`, by which plugins of one pod wait for each other", path.display())]
    PodLocks {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It could not be forked.
    #[error("failed to fork the process that starts plugins")]
    Fork(#[source] io::Error),
    /// Forking here would copy a process whose threads hold locks.
    #[error("the process that starts plugins is forked before all threads, and there are {threads}")]
    Threads {
        /// How many there are.
        threads: usize,
    },
}

/// Forks the process that starts plugins, which are files of `dirs`; `locks` is a file of the state directory. Call it first
/// of all in `main`; in the child it does not return.
///
/// # Errors
/// See [`SpawnerError`].
pub fn fork(dirs: &[PathBuf], locks: &Path) -> Result<Spawner, SpawnerError> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
    if threads != 1 {
        return Err(SpawnerError::Threads { threads });
    }
    let locks = open(locks)?;
    let (ours, theirs) = pair(SockType::SeqPacket).map_err(SpawnerError::Socket)?;
    match fork::fork().map_err(SpawnerError::Fork)? {
        Forked::Child => {
            drop(ours);
            fork::stand_apart();
            serve(theirs, &Allowed::new(dirs), &locks);
            std::process::exit(0)
        }
        Forked::Parent => Ok(Spawner { socket: Arc::new(ours) }),
    }
}

fn open(locks: &Path) -> Result<PodLocks, SpawnerError> {
    PodLocks::open(locks).map_err(|cause| SpawnerError::PodLocks { path: locks.to_owned(), cause })
}

fn pair(kind: SockType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?)
}

// === impl Spawner ===

impl Spawner {
    /// Starts plugins as [`fork`] does, but from this process, on threads of it. For tests, and for programs that give no
    /// rights up.
    ///
    /// # Errors
    /// When there is no socket, no file for locks or no thread.
    pub fn in_process(dirs: &[PathBuf], locks: &Path) -> Result<Self, SpawnerError> {
        let (ours, theirs) = pair(SockType::SeqPacket).map_err(SpawnerError::Socket)?;
        let (allowed, locks) = (Allowed::new(dirs), open(locks)?);
        let server = thread::Builder::new().name("spawner".to_owned()).spawn(move || serve(theirs, &allowed, &locks));
        server.map_err(SpawnerError::Fork)?;
        Ok(Self { socket: Arc::new(ours) })
    }

    /// Whether the process is gone.
    pub(crate) fn is_gone(&self) -> bool {
        !matches!(look(self.socket.as_fd()), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits until the process is gone.
    pub(crate) async fn gone(&self) {
        let watched = self.socket.try_clone().and_then(Ready::register);
        match watched {
            // However the wait ends, plugins cannot be started any more.
            Ok(socket) => drop(socket.read(look).await),
            Err(error) => {
                error!(%error, "the process that starts plugins cannot be watched");
                std::future::pending().await
            }
        }
    }

    /// Asks for a run of `program`, an absolute path, with `env` as all of its environment. Whether the caller waits is its
    /// own affair: `limit` is for a plugin whose daemon has died.
    pub(crate) async fn run(
        &self,
        program: &OsStr,
        env: &[(&str, &OsStr)],
        limit: Duration,
        stdio: Stdio<'_>,
    ) -> io::Result<Run> {
        let (ours, theirs) = pair(SockType::Stream)?;
        let packet = serve::encode(limit, program, env);
        let socket = Arc::clone(&self.socket);
        let Stdio { stdin, stdout, stderr, readers: [out, err] } = stdio;
        let given = [stdin, stdout, stderr, out.try_clone_to_owned()?, err.try_clone_to_owned()?, theirs];
        off_reactor(move || send(socket.as_fd(), &packet, &given.each_ref().map(|fd| fd.as_fd()))).await.map_err(
            |error| match error {
                WireError::Os(errno) => errno.into(),
                WireError::Closed | WireError::Truncated | WireError::TooLong { .. } => gone(),
            },
        )?;
        let call = std::os::unix::net::UnixStream::from(ours);
        call.set_nonblocking(true)?;
        Ok(Run { call: UnixStream::from_std(call)? })
    }
}

// === impl Run ===

impl Run {
    /// Waits for the end of the plugin itself; others of its group may go on.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let mut word = [0; 5];
        self.call.read_exact(&mut word).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => gone(),
            _ => error,
        })?;
        let [kind, a, b, c, d] = word;
        let number = i32::from_ne_bytes([a, b, c, d]);
        match kind {
            ENDED => Ok(ExitStatus::from_raw(number)),
            NOT_STARTED => Err(io::Error::from_raw_os_error(number)),
            DENIED => Err(io::Error::other(Denied::of(number))),
            _ => Err(gone()),
        }
    }

    /// Says that the run is over, so that nothing of it is killed.
    pub(crate) async fn over(mut self) -> io::Result<()> {
        self.call.write_all(&[OVER]).await
    }

    /// Has the plugin killed, and all of its process group.
    pub(crate) fn kill(self) {
        // There is room for the one byte, and a server that is gone kills nobody. The kernel is asked, not tokio: that one says that there is
        // no room until its reactor has heard of some, and the word would be lost.
        let _ = socket::send(self.call.as_raw_fd(), &[KILL], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }
}

/// Looks at the socket without a wait, whatever the mode of its description, which senders share.
fn look(socket: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)?)
}

fn gone() -> io::Error {
    io::Error::other("the process that starts plugins is gone; restart tapmanager")
}

#[cfg(test)]
mod tests;
