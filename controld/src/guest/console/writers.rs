//! Which consoles' logs have a writer on this node beside controld.
//!
//! `/proc` says it, and only names are read there: the files that pods have open may be of a file system that never answers. All
//! machines share one look, as all of them lose their virtlogd at once.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::off_reactor;
use procfs::process::{FDPermissions, FDTarget, Process, all_processes};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::SERIAL_LOG;
use crate::hypervisor::process::gone_is_none;

/// A look at all processes takes milliseconds.
const LOOK_DEADLINE: Duration = Duration::from_secs(20);
/// For so long a look is good for all machines.
const FRESH: Duration = Duration::from_millis(500);

/// Which consoles' logs other processes have open to write them, by the name of the log's directory: a virtlogd with another root may have
/// another path to it.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<Option<(Instant, Written)>>);

type Written = Arc<HashSet<OsString>>;

impl Writers {
    /// As of now, or of a moment ago.
    pub(super) async fn now(&self) -> io::Result<Written> {
        let mut known = self.0.lock().await;
        if let Some((_, written)) = known.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(written.clone());
        }
        let look = timeout(LOOK_DEADLINE, off_reactor(written_by_others)).await;
        let written = Arc::new(look.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??);
        *known = Some((Instant::now(), written.clone()));
        Ok(written)
    }
}

/// The consoles' logs that other processes have open to write them. Only names are read, in `/proc`: the files of a pod may be of a file
/// system that never answers.
fn written_by_others() -> io::Result<HashSet<OsString>> {
    let own = i32::try_from(std::process::id()).ok();
    let mut written = HashSet::new();
    // One that has ended meanwhile writes nothing.
    for process in all_processes().map_err(io::Error::other)? {
        let Some(process) = gone_is_none(process.map(Some))? else { continue };
        if Some(process.pid) == own {
            continue;
        }
        written.extend(written_by(&process)?);
    }
    Ok(written)
}

fn written_by(process: &Process) -> io::Result<Vec<OsString>> {
    let Some(open) = gone_is_none(process.fd().map(Some))? else { return Ok(Vec::new()) };
    let mut logs = Vec::new();
    for fd in open {
        let Some(fd) = gone_is_none(fd.map(Some))? else { continue };
        let is_writer = fd.mode().contains(FDPermissions::WRITE);
        if let FDTarget::Path(path) = fd.target
            && is_writer
            && path.file_name().is_some_and(|name| name == SERIAL_LOG)
            && let Some(dir) = path.parent().and_then(Path::file_name)
        {
            logs.push(dir.to_owned());
        }
    }
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_writes_a_log_is_found_by_its_directory() {
        let dir = tempfile::tempdir().expect("tempdir");
        let log = || OpenOptions::new().create(true).append(true).open(dir.path().join(SERIAL_LOG)).expect("opens");
        let is_written = || written_by_others().expect("looked").contains(dir.path().file_name().expect("name"));
        let _own = log();
        assert!(!is_written(), "this process does not count");
        let mut virtlogd = Command::new("cat").stdin(Stdio::piped()).stdout(log()).spawn().expect("starts");
        assert!(is_written());
        virtlogd.kill().expect("killed");
        virtlogd.wait().expect("ended");
        assert!(!is_written());
    }
}
