//! Locks between plugins that run at once: one for each PF, held while its VFs are chosen and set up or put back, and
//! one for each VF, held for as long as a command works on it.
//!
//! Called by [`super`]. Order: who holds a VF may wait for its PF. Who holds a PF never waits for a VF. A lock's file
//! stays, for removing it would let two have it; the kernel releases the lock of a plugin that is killed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use sriov::PciAddr;

use super::failure::{Code, Failure};

/// How long a plugin waits for another one. Work on a PF takes milliseconds to seconds, and runtimes give a plugin a
/// minute or more.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Flock<File>,
}

/// Takes the lock of `device` in `dir` as soon as no other plugin has it.
///
/// # Errors
/// If that is not within `patience`.
pub(super) fn wait(dir: &Path, device: PciAddr, patience: Duration) -> Result<Lock, Failure> {
    let file = open(dir, device)?;
    let failed = |errno: Errno| Failure::because(Code::Io, format!("failed to lock `{device}`"))(errno);
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => return Ok(Lock { _file: file }),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(failed(errno)),
    };
    // The call has no deadline of its own. A thread that comes too late finds nobody, and lets go.
    let (done, outcome) = mpsc::sync_channel(1);
    let waiting = thread::Builder::new().name("lock".to_owned()).spawn(move || {
        let _ = done.send(Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno));
    });
    waiting.map_err(Failure::because(Code::Io, format!("failed to wait for the lock of `{device}`")))?;
    match outcome.recv_timeout(patience) {
        Ok(Ok(file)) => Ok(Lock { _file: file }),
        Ok(Err(errno)) => Err(failed(errno)),
        Err(_) => Err(Failure::new(
            Code::TryAgain,
            format!(
                "another virtlet-sriov has worked on `{device}` for {} s; look what it waits for",
                patience.as_secs()
            ),
        )),
    }
}

/// Takes the lock of `device` in `dir`; `None` if another plugin has it.
///
/// # Errors
/// If its file cannot be opened or locked.
pub(super) fn attempt(dir: &Path, device: PciAddr) -> Result<Option<Lock>, Failure> {
    match Flock::lock(open(dir, device)?, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(Some(Lock { _file: file })),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(Failure::because(Code::Io, format!("failed to lock `{device}`"))(errno)),
    }
}

fn open(dir: &Path, device: PciAddr) -> Result<File, Failure> {
    let path = dir.join(format!("{device}.lock"));
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&path);
    opened.map_err(Failure::because(Code::Io, format!("failed to open `{}`", path.display())))
}
