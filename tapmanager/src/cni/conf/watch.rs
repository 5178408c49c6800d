//! Keeps the networks of a directory in memory, and knows when they have changed. Called by [`crate::cni::Cni`].
//!
//! There is no background task. Each question first reads what the kernel has reported since the last one (inotify), so
//! an answer is never older than its question, and costs two system calls if nothing changed. What the kernel does not
//! report (a file behind a link to elsewhere, a directory of another machine) is seen within [`MAX_AGE`]. Without
//! inotify every question reads the files.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Chain;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tracing::{info, warn};

use super::dir::{ConfError, Networks};

/// How long an answer of the memory holds if the kernel reports no change.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The networks of a directory.
#[derive(Debug)]
pub(in crate::cni) struct ConfWatch {
    dir: PathBuf,
    max_age: Duration,
    snapshot: Option<Snapshot>,
    /// How often the files were read.
    #[cfg(test)]
    reads: usize,
}

#[derive(Debug)]
struct Snapshot {
    networks: Arc<Networks>,
    at: Instant,
    /// None if the directory cannot be watched.
    watched: Option<Watched>,
    /// Nothing has happened to them that was noticed.
    current: bool,
}

#[derive(Debug)]
struct Watched {
    changes: Inotify,
    /// Device and inode: the directory itself may be replaced.
    identity: (u64, u64),
}

impl ConfWatch {
    /// Nothing is read or watched yet.
    pub(in crate::cni) const fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            max_age: MAX_AGE,
            snapshot: None,
            #[cfg(test)]
            reads: 0,
        }
    }

    /// The directory.
    pub(in crate::cni) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The networks if they have not changed. Takes note of it if they have, and reads nothing.
    pub(in crate::cni) fn unchanged(&mut self) -> Option<Arc<Networks>> {
        let quiet = |snapshot: &Snapshot| {
            snapshot.at.elapsed() < self.max_age
                && snapshot.watched.as_ref().is_some_and(|watched| watched.is_quiet(&self.dir))
        };
        // What the kernel reported is told once.
        self.snapshot =
            self.snapshot.take().map(|snapshot| Snapshot { current: snapshot.current && quiet(&snapshot), ..snapshot });
        self.snapshot.as_ref().filter(|snapshot| snapshot.current).map(|snapshot| Arc::clone(&snapshot.networks))
    }

    /// The networks as they are now. Blocks on the disk if they have changed.
    pub(in crate::cni) fn networks(&mut self) -> Result<Arc<Networks>, ConfError> {
        if let Some(networks) = self.unchanged() {
            return Ok(networks);
        }
        #[cfg(test)]
        {
            self.reads += 1;
        }
        // Watched before it is read, so that no change in between is missed.
        let watched = Watched::of(&self.dir).ok();
        let at = Instant::now();
        let networks = match Networks::read(&self.dir) {
            Ok(networks) => Arc::new(networks),
            Err(error) => {
                self.snapshot = None;
                return Err(error);
            }
        };
        self.tell(&networks);
        self.snapshot = Some(Snapshot { networks: Arc::clone(&networks), at, watched, current: true });
        Ok(networks)
    }

    /// Logs what is new.
    fn tell(&self, now: &Networks) {
        let before = self.snapshot.as_ref().map(|snapshot| &*snapshot.networks);
        if before.is_none_or(|before| before.lists != now.lists) {
            let names: Vec<_> = now.lists.iter().map(super::NetworkList::name).collect();
            info!(networks = names.join(", "), "network configurations, the default network first");
        }
        let words = |networks: &Networks| networks.broken.iter().map(|e| Chain(&**e).to_string()).collect::<Vec<_>>();
        let known = before.map(words).unwrap_or_default();
        for error in words(now).iter().filter(|error| !known.contains(error)) {
            warn!(%error, "a network configuration is not used");
        }
    }
}

impl Watched {
    fn of(dir: &Path) -> io::Result<Self> {
        let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let what = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        changes.add_watch(dir, what)?;
        let identity = identity(dir)?;
        // Those with plugins of a network.
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                changes.add_watch(&path, what)?;
            }
        }
        Ok(Self { changes, identity })
    }

    fn is_quiet(&self, dir: &Path) -> bool {
        let nothing = matches!(self.changes.read_events(), Err(Errno::EAGAIN));
        nothing && identity(dir).is_ok_and(|identity| identity == self.identity)
    }
}

fn identity(dir: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::metadata(dir)?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests;
