//! Tells followers that their console log has grown: one inotify descriptor and one thread for all machines.
//!
//! inotify instances are few per user (128 by default), watches are many; so all directories share one instance.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::sync::Notify;

/// The one watcher of the process. Clones share it.
#[derive(Debug, Clone)]
pub struct Watcher {
    inotify: Arc<Inotify>,
    watched: Arc<Mutex<HashMap<WatchDescriptor, Arc<Signal>>>>,
}

/// What a follower waits on. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    watcher: Watcher,
    descriptor: WatchDescriptor,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    changed: Notify,
    writer_closed: AtomicBool,
}

impl Watcher {
    /// Starts the watcher's thread.
    ///
    /// # Errors
    /// When inotify is not to be had; `fs.inotify.max_user_instances` may be too low.
    pub fn start() -> io::Result<Self> {
        let inotify = Arc::new(Inotify::init(InitFlags::IN_CLOEXEC)?);
        let watcher = Self { inotify, watched: Arc::default() };
        let reader = watcher.clone();
        std::thread::Builder::new().name("console-watch".into()).spawn(move || reader.read())?;
        Ok(watcher)
    }

    /// Watches the files of `dir`.
    ///
    /// # Errors
    /// When the directory is not there, or `fs.inotify.max_user_watches` is reached.
    pub fn watch(&self, dir: &Path) -> io::Result<Watch> {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CLOSE_WRITE;
        let signal = Arc::new(Signal::default());
        let mut watched = self.watched();
        let descriptor = self.inotify.add_watch(dir, flags)?;
        watched.insert(descriptor, signal.clone());
        drop(watched);
        Ok(Watch { watcher: self.clone(), descriptor, signal })
    }

    fn read(&self) {
        // The thread ends with the process; an error here would mean the descriptor is gone.
        while let Ok(events) = self.inotify.read_events() {
            let watched = self.watched();
            for event in events {
                let overflow = event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                for (_, signal) in watched.iter().filter(|(wd, _)| overflow || **wd == event.wd) {
                    let closed = event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE);
                    if closed || event.mask.contains(AddWatchFlags::IN_MODIFY) {
                        signal.writer_closed.store(closed, Ordering::Release);
                    }
                    signal.changed.notify_one();
                }
            }
        }
        tracing::error!(fd = ?self.inotify.as_fd(), "inotify ended; console logs are no longer followed");
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, Arc<Signal>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits for a change; one that came since the last wait counts.
    pub async fn changed(&self) {
        self.signal.changed.notified().await;
    }

    /// Whether the last thing that happened was that the writer closed its file.
    #[must_use]
    pub fn writer_closed(&self) -> bool {
        self.signal.writer_closed.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watcher.watched().remove(&self.descriptor);
        // Fails only if the directory, and its watch with it, is gone.
        let _ = self.watcher.inotify.rm_watch(self.descriptor);
    }
}
