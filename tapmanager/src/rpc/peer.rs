//! Who is at the other end of a connection, as the kernel says. Called where a connection is accepted.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use common::Reason;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use procfs::process::Process;
use proto::tap::ProcessId;

/// The process that connected. Credentials are those of the moment of connect(2).
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its user, in our user namespace.
    pub(crate) uid: u32,
    /// Its process, in our process namespace; `None` if it cannot be seen from there, or is gone.
    pub(crate) pid: Option<i32>,
    /// The same, and never another with its number. `None` before Linux 6.5.
    pub(crate) pidfd: Option<OwnedFd>,
}

/// A file that processes run, told apart by device and inode: a path says nothing, as mount namespaces differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Executable {
    path: PathBuf,
}

impl Peer {
    /// At the other end of a connected socket.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
        let pid = Some(credentials.pid()).filter(|pid| *pid > 0);
        let (pid, pidfd) = match getsockopt(socket, sockopt::PeerPidfd) {
            Ok(pidfd) => (pid, Some(pidfd)),
            Err(Errno::ENOPROTOOPT) => (pid, None),
            // It has ended, and its number may be another's by now.
            Err(Errno::ESRCH | Errno::EINVAL | Errno::ENODATA) => (None, None),
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self { uid: credentials.uid(), pid, pidfd })
    }

    /// Its process, as others can tell it from a later one with its number; `None` if it is gone, or cannot be seen.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        let pid = self.pid?;
        let started = Process::new(pid).and_then(|process| process.stat()).ok()?.starttime;
        // If it had ended before it was looked at, that was another one's start.
        (!self.has_ended()).then_some(ProcessId { pid, started })
    }

    fn has_ended(&self) -> bool {
        let ended = |pidfd: &OwnedFd| poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        self.pidfd.as_ref().is_some_and(|pidfd| !matches!(ended(pidfd), Ok(0)))
    }
}

impl Executable {
    /// The file at `path`, as it is at each check: an upgrade may replace it.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Checks that `peer` runs it now. Reads `/proc`; blocks if the file's disk does.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), Reason> {
        let unseen = "the peer's process is not visible to tapmanager; run both in one process namespace";
        let pid = peer.pid.ok_or(Reason::new(unseen))?;
        // Follows the kernel's link to the very file, whatever its name has become.
        let theirs = identity(Path::new(&format!("/proc/{pid}/exe")))?;
        if theirs != identity(&self.path)? {
            return Err(Reason::new(format!("the peer does not run `{}`", self.path.display())));
        }
        // If it had ended before it was looked at, that was another one with its number.
        if peer.has_ended() { Err(Reason::new("the peer has ended")) } else { Ok(()) }
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Reason> {
    let failed = || Reason::new(format!("failed to examine `{}`", path.display()));
    let metadata = fs::metadata(path).map_err(|cause| failed().with(cause))?;
    Ok((metadata.dev(), metadata.ino()))
}
