//! What has to be right before the daemon touches anything. Called once at the start.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rustix::thread::CapabilitySet;

use super::{DaemonError, NewerCause, NewerError};
use crate::config::Config;
use crate::confinement::KEPT;
use crate::instance::{InstanceError, InstanceId};
use crate::journal::{Journal, Loaded, Unreadable};

const TUN: &str = "/dev/net/tun";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Held while the daemon runs; the kernel lets go of it however the daemon ends.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: Flock<File>,
}

/// Checks that the kernel lets us do our work.
pub(super) fn probe() -> Result<(), DaemonError> {
    let held = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    for (capability, name, purpose) in KEPT {
        if !held.contains(capability) {
            return Err(DaemonError::Permission {
                missing: format!("{name} is missing ({purpose})"),
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

/// Reads the journal and this daemon's identity, of which the second part says why it will not last.
///
/// # Errors
/// When a newer release has written something of it. Nothing is changed then: the pods are to be found by that release.
pub(super) fn read_state(
    journal: &Journal,
    state_dir: &Path,
) -> Result<(Loaded, (InstanceId, Option<InstanceError>)), DaemonError> {
    let newer = |cause| Err(DaemonError::Newer(NewerError(cause)));
    let mut loaded = journal.load()?;
    if let Some(at) = loaded.unreadable.iter().position(Unreadable::is_newer) {
        return newer(NewerCause::Journal(loaded.unreadable.swap_remove(at)));
    }
    match InstanceId::of(state_dir)? {
        (_, Some(error)) if error.is_newer() => newer(NewerCause::Instance(error)),
        identity => Ok((loaded, identity)),
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
    use common::Chain;

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
    fn state_of_a_newer_release_is_refused_and_stays_as_it_is() {
        for (file, text, told) in [
            ("pods/p1.json", r#"{"version":5}"#, "its version is 5, this program knows 4"),
            ("pods/p1.json", r#"{"version":5,"of":"a later time"}"#, "remove its pods by it first"),
            ("instance", r#"{"version":2,"instance":{}}"#, "its version is 2, this program knows 1"),
        ] {
            let dir = tempfile::tempdir().expect("tempdir");
            let journal = Journal::open(dir.path()).expect("journal");
            std::fs::write(dir.path().join(file), text).expect("written");
            let error = read_state(&journal, dir.path()).expect_err("an older release works with it");
            let said = Chain(&error).to_string();
            assert!(said.contains("a newer release's; install that release again") && said.contains(told), "{said}");
            assert_eq!(std::fs::read_to_string(dir.path().join(file)).expect("there"), text);
        }
    }

    #[test]
    fn damaged_state_is_told_and_worked_without() {
        let dir = tempfile::tempdir().expect("tempdir");
        let journal = Journal::open(dir.path()).expect("journal");
        for (file, text) in [("pods/p1.json", r#"{"version":0}"#), ("instance", "{")] {
            std::fs::write(dir.path().join(file), text).expect("written");
        }
        let (loaded, (_, unkept)) = read_state(&journal, dir.path()).expect("works");
        assert_eq!((loaded.unreadable.len(), unkept.is_some()), (1, true));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("deep"), "a file").expect("write");
        let error = prepare(&config(dir.path())).expect_err("in the way");
        assert!(error.to_string().contains("deep/state"), "{error}");
    }
}
