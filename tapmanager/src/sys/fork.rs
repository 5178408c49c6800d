//! Forks this process. Called by [`crate::spawner`] while there is one thread.

#![expect(unsafe_code, reason = "fork(2)")]

use std::fs::OpenOptions;
use std::io::{self, Write as _};

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

/// Leaves the parent's session, so that a terminal's signals reach only the daemon, takes a name of its own, and gives up what the
/// daemon's unit asks of the OOM killer for it: what is started from here inherits that, and is to go before the daemon.
pub(crate) fn stand_apart() {
    // Neither can fail in a process that was just forked.
    let _ = setsid();
    let _ = nix::sys::prctl::set_name(c"tap-spawner");
    // Without /proc nothing else works either, and says so.
    let _ = OpenOptions::new().write(true).open("/proc/self/oom_score_adj").and_then(|mut score| score.write_all(b"0"));
}
