//! Tells followers that something has changed in a directory, as a console log that has grown: one inotify descriptor and one thread
//! for all of a watcher's.
//!
//! inotify instances are few per user (128 by default), watches are many; so all directories share one instance. All of
//! root's daemons share these limits: where one is reached, followers look each [`POLL`] until inotify can be had.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::sync::Notify;

/// How often a follower looks that nothing tells.
const POLL: Duration = Duration::from_secs(1);

/// The one watcher of the process. Clones share it.
#[derive(Debug, Clone)]
pub struct Watcher(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: fn() -> nix::Result<Inotify>,
    /// None until it can be had.
    inotify: Mutex<Option<Arc<Inotify>>>,
    watched: Mutex<HashMap<WatchDescriptor, Arc<Signal>>>,
    polled: Mutex<Polled>,
}

/// Watches that poll.
#[derive(Debug, Default)]
struct Polled {
    number: usize,
    /// Why the last of them does.
    cause: Option<io::Error>,
}

/// What a follower waits on. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    watcher: Watcher,
    dir: PathBuf,
    /// None if it polls.
    told: Option<Told>,
}

#[derive(Debug)]
struct Told {
    inotify: Arc<Inotify>,
    descriptor: WatchDescriptor,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    changed: Notify,
    /// Files of which this is what happened last.
    closed: Mutex<HashSet<OsString>>,
}

impl Watcher {
    /// Starts the watcher's thread, now or as soon as inotify can be had.
    #[must_use]
    pub fn start() -> Self {
        Self::with(|| Inotify::init(InitFlags::IN_CLOEXEC))
    }

    /// A watcher of a process that never gets an inotify instance, for tests.
    #[must_use]
    pub fn without_inotify() -> Self {
        Self::with(|| Err(Errno::EMFILE))
    }

    fn with(open: fn() -> nix::Result<Inotify>) -> Self {
        let watcher = Self(Arc::new(Shared {
            open,
            inotify: Mutex::default(),
            watched: Mutex::default(),
            polled: Mutex::default(),
        }));
        if let Err(error) = watcher.inotify() {
            tracing::warn!(%error, "no inotify; what is followed is looked at each second{}", advice(&error));
        }
        watcher
    }

    /// Watches the files of `dir`.
    ///
    /// # Errors
    /// When the directory is not there.
    pub fn watch(&self, dir: &Path) -> io::Result<Watch> {
        let told = match self.tell(dir) {
            Ok(told) => Some(told),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(error) => {
                let mut polled = self.polled();
                if polled.number == 0 {
                    tracing::warn!(%error, dir = %dir.display(), "directory not watched; it is looked at each second{}", advice(&error));
                }
                polled.number += 1;
                polled.cause = Some(error);
                None
            }
        };
        Ok(Watch { watcher: self.clone(), dir: dir.to_owned(), told })
    }

    /// How many console logs are polled and why, if any is.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let polled = self.polled();
        let cause = polled.cause.as_ref().filter(|_| polled.number > 0)?;
        Some(format!(
            "{} console logs are looked at each second, as inotify does not tell of them: {cause}{}",
            polled.number,
            advice(cause)
        ))
    }

    fn tell(&self, dir: &Path) -> io::Result<Told> {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CLOSE_WRITE;
        let inotify = self.inotify()?;
        let signal = Arc::new(Signal::default());
        let mut watched = self.watched();
        let descriptor = inotify.add_watch(dir, flags)?;
        watched.insert(descriptor, signal.clone());
        drop(watched);
        Ok(Told { inotify, descriptor, signal })
    }

    /// The instance; made, with the thread that reads it, if there is none yet.
    fn inotify(&self) -> io::Result<Arc<Inotify>> {
        let mut there = self.0.inotify.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inotify) = &*there {
            return Ok(inotify.clone());
        }
        let inotify = Arc::new((self.0.open)()?);
        let (watcher, read) = (self.clone(), inotify.clone());
        std::thread::Builder::new().name("watch".into()).spawn(move || watcher.read(&read))?;
        *there = Some(inotify.clone());
        Ok(inotify)
    }

    fn read(&self, inotify: &Inotify) {
        // The thread ends with the process; an error here would mean the descriptor is gone.
        while let Ok(events) = inotify.read_events() {
            let watched = self.watched();
            for event in events {
                let overflow = event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                for (_, signal) in watched.iter().filter(|(wd, _)| overflow || **wd == event.wd) {
                    if let Some(name) = &event.name {
                        if event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
                            signal.closed().insert(name.clone());
                        } else if event.mask.contains(AddWatchFlags::IN_MODIFY) {
                            signal.closed().remove(name);
                        }
                    }
                    signal.changed.notify_one();
                }
            }
        }
        tracing::error!(fd = ?inotify.as_fd(), "inotify ended; nothing is followed any more");
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, Arc<Signal>>> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn polled(&self) -> MutexGuard<'_, Polled> {
        self.0.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits for a change; one that came since the last wait counts. Returns each [`POLL`] where nothing tells.
    pub async fn changed(&mut self) {
        if let Some(told) = &self.told {
            return told.signal.changed.notified().await;
        }
        tokio::time::sleep(POLL).await;
        if let Ok(told) = self.watcher.tell(&self.dir) {
            self.told = Some(told);
            self.watcher.polled().number -= 1;
        }
    }

    /// Whether something tells of changes; else it is looked.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the last thing that happened to a file was that its writer closed it. Where nothing tells, that is not known.
    #[must_use]
    pub fn writer_closed(&self, name: impl AsRef<OsStr>) -> bool {
        self.told.as_ref().is_some_and(|told| told.signal.closed().contains(name.as_ref()))
    }
}

impl Signal {
    fn closed(&self) -> MutexGuard<'_, HashSet<OsString>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(told) = &self.told else {
            self.watcher.polled().number -= 1;
            return;
        };
        self.watcher.watched().remove(&told.descriptor);
        // Fails only if the directory, and its watch with it, is gone.
        let _ = told.inotify.rm_watch(told.descriptor);
    }
}

/// Which limit to raise.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => "; raise `fs.inotify.max_user_instances`",
        Some(Errno::ENOSPC) => "; raise `fs.inotify.max_user_watches`",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_inotify_a_watch_polls_until_it_can_be_had() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir().expect("tempdir");
        // The start, the watch and the first look find none.
        let watcher = Watcher::with(|| match TRIES.fetch_add(1, Ordering::SeqCst) {
            0..3 => Err(Errno::EMFILE),
            _ => Inotify::init(InitFlags::IN_CLOEXEC),
        });
        assert_eq!(watcher.trouble(), None, "nothing is followed yet");
        let mut watch = watcher.watch(dir.path()).expect("watches");
        let trouble = watcher.trouble().expect("it polls");
        assert!(
            trouble.starts_with("1 console logs") && trouble.contains("fs.inotify.max_user_instances"),
            "{trouble}"
        );
        watch.changed().await;
        assert!(watch.told.is_none() && watcher.trouble().is_some());
        watch.changed().await;
        assert!(watch.told.is_some() && watcher.trouble().is_none());
        std::fs::write(dir.path().join("serial.log"), "text").expect("written");
        watch.changed().await;
    }

    #[tokio::test]
    async fn a_file_is_closed_by_its_own_writer_alone() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut watch = Watcher::start().watch(dir.path()).expect("watches");
        let mut open = File::create(dir.path().join("serial.log")).expect("made");
        std::fs::write(dir.path().join("end"), "0").expect("written");
        while !watch.writer_closed("end") {
            watch.changed().await;
        }
        assert!(!watch.writer_closed("serial.log"));
        open.write_all(b"text").expect("written");
        drop(open);
        while !watch.writer_closed("serial.log") {
            watch.changed().await;
        }
    }

    #[test]
    fn a_watch_that_polls_is_no_trouble_once_it_has_ended() {
        let dir = tempfile::tempdir().expect("tempdir");
        let watcher = Watcher::without_inotify();
        let watches = [watcher.watch(dir.path()), watcher.watch(dir.path())];
        assert!(watcher.trouble().is_some_and(|trouble| trouble.starts_with("2 ")));
        drop(watches);
        assert_eq!(watcher.trouble(), None);
    }
}
