//! What has to be right before the daemon touches anything. Called once at the start.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use caps::CapSet;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::DaemonError;
use crate::config::Config;
use crate::confinement::KEPT;

const TUN: &str = "/dev/net/tun";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Held while the daemon runs; the kernel lets go of it however the daemon ends.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: Flock<File>,
}

/// Checks that the kernel lets us do our work.
pub(super) fn probe() -> Result<(), DaemonError> {
    for (capability, purpose) in KEPT {
        if !caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false) {
            return Err(DaemonError::Permission {
                missing: format!("{capability} is missing ({purpose})"),
                remedy: "run tapmanager as root, with that capability in its bounding set",
                cause: None,
            });
        }
    }
    if let Err(cause) = OpenOptions::new().read(true).write(true).open(TUN) {
        return Err(DaemonError::Permission {
            missing: format!("`{TUN}` cannot be opened"),
            remedy: "load the kernel module `tun`, and allow the device in the unit or container of tapmanager",
            cause: Some(cause),
        });
    }
    Ok(())
}

/// This boot of the node: what the kernel draws anew at each.
pub(super) fn boot_id() -> Result<String, DaemonError> {
    match std::fs::read_to_string(BOOT_ID) {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(cause) => Err(DaemonError::Permission {
            missing: format!("`{BOOT_ID}` cannot be read"),
            remedy: "mount /proc for tapmanager",
            cause: Some(cause),
        }),
    }
}

/// Makes the directories, and makes sure that no other daemon works on them.
pub(super) fn prepare(config: &Config) -> Result<StateLock, DaemonError> {
    ensure_dir(&config.state_dir, 0o700)?;
    ensure_dir(&config.run_dir, 0o755)?;
    lock(&config.state_dir)
}

fn lock(state_dir: &Path) -> Result<StateLock, DaemonError> {
    let path = state_dir.join("lock");
    let failed = |cause| DaemonError::Directory { path: path.clone(), cause };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => Ok(StateLock { _file: file }),
        Err((_, Errno::EWOULDBLOCK)) => Err(DaemonError::Locked { path: state_dir.to_owned() }),
        Err((_, errno)) => Err(failed(io::Error::from(errno))),
    }
}

fn ensure_dir(path: &Path, mode: u32) -> Result<(), DaemonError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|cause| DaemonError::Directory { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> Config {
        Config { state_dir: dir.join("deep/state"), run_dir: dir.join("run"), ..Config::default() }
    }

    #[test]
    fn a_second_daemon_on_the_same_state_is_refused_while_the_first_lives() {
        let dir = tempfile::tempdir().expect("tempdir");
        let config = config(dir.path());
        let first = prepare(&config).expect("first");
        let error = prepare(&config).expect_err("second");
        assert!(matches!(error, DaemonError::Locked { .. }), "{error}");
        drop(first);
        prepare(&config).expect("after the first");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("deep"), "a file").expect("write");
        let error = prepare(&config(dir.path())).expect_err("in the way");
        assert!(error.to_string().contains("deep/state"), "{error}");
    }
}
