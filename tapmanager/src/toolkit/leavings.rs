//! Removes directories of private daemons once their pod is detached. Called by [`super::private`] at each start.
//!
//! A tool that is killed, or cannot detach its pod, leaves its daemon's directory, so that a person can run the daemon
//! again and try once more. After that the directory is of no use, and the next call of the tool removes it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};

use super::error::ToolError;
use super::tell;

/// Where its namespaces are.
pub(super) const NETNS_DIR: &str = "netns";
/// Where its journal is.
pub(super) const STATE_DIR: &str = "state";
/// What its directory's name begins with; the process id of the tool follows.
pub(super) const PREFIX: &str = "tapmanager-";

/// Removes the directories below `base` whose tool and daemon are gone and whose journal is empty.
pub(super) fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let dir = entry.path();
        if is_over(&dir)
            && let Err(error) = remove(&dir)
        {
            tell(&format!("tapmanager: left behind: {}\n", error.line()));
        }
    }
}

/// Removes the directory of a daemon that has no pod any more.
pub(super) fn remove(dir: &Path) -> Result<(), ToolError> {
    // The daemon binds the directory of its namespaces to itself, and leaves that, as `ip netns` does.
    let netns_dir = dir.join(NETNS_DIR);
    match umount2(&netns_dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        // Not mounted, or not even made.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(errno) => return Err(io_at("unmount", &netns_dir, errno.into())),
    }
    fs::remove_dir_all(dir).map_err(|cause| io_at("remove", dir, cause))
}

fn is_over(dir: &Path) -> bool {
    let tool = dir.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
    let ours = fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
    let ended = tool.is_some_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH));
    ours && ended && !is_locked(&dir.join(STATE_DIR)) && has_no_record(&dir.join(STATE_DIR))
}

/// Whether a daemon works in it.
fn is_locked(state_dir: &Path) -> bool {
    let Ok(file) = File::open(state_dir.join("lock")) else { return false };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

fn has_no_record(state_dir: &Path) -> bool {
    fs::read_dir(state_dir.join("pods")).is_ok_and(|mut records| records.next().is_none())
}

pub(super) fn io_at(action: &'static str, path: &Path, cause: io::Error) -> ToolError {
    ToolError::Dir { action, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any process has.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn a_directory_goes_once_its_tool_its_daemon_and_its_pod_are_gone() {
        let base = tempfile::tempdir().expect("tempdir");
        let make = |name: String| {
            let dir = base.path().join(name);
            fs::create_dir_all(dir.join(STATE_DIR).join("pods")).expect("made");
            fs::write(dir.join(STATE_DIR).join("lock"), "").expect("written");
            dir
        };
        let over = make(format!("{PREFIX}{NOBODY}"));
        let in_use = make(format!("{PREFIX}{}", std::process::id()));
        let foreign = [make("tapmanager".to_owned()), make(format!("x{PREFIX}{NOBODY}"))];
        let record = over.join(STATE_DIR).join("pods/p1.json");
        fs::write(&record, "{}").expect("written");
        sweep(base.path());
        assert!(over.exists(), "a pod is on record");
        fs::remove_file(record).expect("removed");
        let daemon = File::open(over.join(STATE_DIR).join("lock")).expect("opens");
        let daemon = Flock::lock(daemon, FlockArg::LockExclusive).expect("locked");
        sweep(base.path());
        assert!(over.exists(), "a daemon works in it");
        drop(daemon);
        sweep(base.path());
        assert!(!over.exists());
        assert!(in_use.exists() && foreign.iter().all(|dir| dir.exists()));
    }
}
