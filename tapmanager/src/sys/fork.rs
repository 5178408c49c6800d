//! Forks this process. Called by [`crate::spawner`] while there is one thread.

#![expect(unsafe_code, reason = "fork(2)")]

use std::io;

use nix::unistd::{ForkResult, fork as fork_now, setsid};

/// Which of the two this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one.
    Parent,
}

/// Forks. The caller has made sure that there are no other threads.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: the child of a process with one thread may do all that its parent may.
    match unsafe { fork_now() }? {
        ForkResult::Child => Ok(Forked::Child),
        ForkResult::Parent { .. } => Ok(Forked::Parent),
    }
}

/// Leaves the parent's session, so that a terminal's signals reach only the daemon, and takes a name of its own.
pub(crate) fn stand_apart() {
    // Neither can fail in a process that was just forked.
    let _ = setsid();
    let _ = nix::sys::prctl::set_name(c"tap-spawner");
}
