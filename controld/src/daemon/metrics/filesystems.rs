//! Room on the file systems that fill up: of the image store, and of the state directory, where disks of pods grow.
//!
//! A scrape waits for nobody, so they are looked at from time to time while metrics are served. One that hangs has no figures, and
//! costs one thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::off_reactor;
use nix::sys::statvfs::statvfs;
use tokio::time::timeout;

/// How long a file system has for its answer until its last one counts no more.
const ANSWERS: Duration = Duration::from_secs(10);

/// What is known. Clones share it.
#[derive(Debug, Clone)]
pub struct FileSystems(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Each directory by what the metrics call it.
    dirs: [(&'static str, PathBuf); 2],
    rooms: Mutex<BTreeMap<&'static str, Room>>,
}

/// Of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) size: u64,
    /// For anybody but root, as kubelet counts it.
    pub(super) free: u64,
}

impl FileSystems {
    pub(in crate::daemon) fn new(images: PathBuf, state: PathBuf) -> Self {
        Self(Arc::new(Inner { dirs: [("images", images), ("state", state)], rooms: Mutex::default() }))
    }

    /// Looks for ever.
    pub(super) async fn keep(self) {
        let [images, state] = self.0.dirs.each_ref().map(|(name, dir)| self.watch(name, dir));
        tokio::join!(images, state);
    }

    async fn watch(&self, name: &'static str, dir: &Path) {
        let mut turns = super::turns();
        loop {
            turns.tick().await;
            let dir = dir.to_owned();
            let mut look = pin!(off_reactor(move || room(&dir)));
            match timeout(ANSWERS, &mut look).await {
                Ok(found) => self.note(name, found),
                Err(_elapsed) => {
                    self.note(name, None);
                    let found = look.await;
                    self.note(name, found);
                }
            }
        }
    }

    fn note(&self, name: &'static str, found: Option<Room>) {
        let mut rooms = self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(room) => rooms.insert(name, room),
            None => rooms.remove(name),
        };
    }

    /// As of the last look.
    pub(super) fn known(&self) -> BTreeMap<&'static str, Room> {
        self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn room(dir: &Path) -> Option<Room> {
    let found = statvfs(dir).inspect_err(|error| tracing::debug!(%error, dir = %dir.display(), "file system not read"));
    let found = found.ok()?;
    let unit = found.fragment_size();
    Some(Room { size: found.blocks() * unit, free: found.blocks_available() * unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_known_of_what_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let known = FileSystems::new(dir.path().to_owned(), dir.path().join("gone"));
        assert_eq!(known.known(), BTreeMap::new());
        let keep = tokio::spawn(known.clone().keep());
        let told = async {
            while known.known().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        timeout(ANSWERS, told).await.expect("looked at once");
        keep.abort();
        let rooms = known.known();
        let room = rooms["images"];
        assert!(room.size > 0 && room.free <= room.size, "{room:?}");
        assert_eq!(rooms.get("state"), None, "one that is not there");
    }
}
