//! One plugin at a time for each pod, also across daemons. A plugin that a dead daemon started may still run when the
//! next daemon has a command for the same pod, and an ADD and a DEL side by side leave half of each.
//!
//! The lock is on one byte of one file, which stands for the pod (fcntl_locking(2), open file description locks). The
//! kernel releases it when the descriptor is closed, for whatever reason; plugins do not inherit the descriptor. Two
//! pods may share a byte, and then wait for each other.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// The file whose bytes stand for pods.
#[derive(Debug)]
pub(super) struct PodLocks {
    file: File,
}

/// Held while a plugin runs.
#[derive(Debug)]
pub(super) struct PodLock {
    _lock: File,
}

impl PodLocks {
    /// Makes the file, and the folders that it needs.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Ok(Self { file })
    }

    /// Waits until no other plugin runs for the pod: as long as that one may run.
    pub(super) fn wait(&self, pod: &OsStr) -> io::Result<PodLock> {
        // An open file description of its own: those of one do not exclude each other.
        let lock = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        let byte = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: place(pod),
            l_len: 1,
            l_pid: 0,
        };
        loop {
            match fcntl(&lock, FcntlArg::F_OFD_SETLKW(&byte)) {
                Ok(_) => return Ok(PodLock { _lock: lock }),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// The pod's byte: FNV-1a, which is the same in all releases, without the sign.
fn place(pod: &OsStr) -> i64 {
    let hash = pod
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The last byte of all is no place: a lock's end has to be a number too.
    (hash >> 2).cast_signed()
}
