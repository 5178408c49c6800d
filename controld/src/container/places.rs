//! Who is at work in which directory of a checkpoint. One may be a file server's that does not answer: then a thread there does not come
//! back, and as little does one more that is sent after it. Who makes or removes a checkpoint has its place here first.
//!
//! So each checkpoint has one thread in its directory at a time, and each file system as many checkpoints as leave threads for all else.
//! A thread keeps its place until it ends, also if nobody waits for it any more: what comes after it finds nothing half done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::keyed_mutex::KeyGuard;
use common::{KeyedMutex, off_reactor};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use vmspec::error::{Error, Kind, Result};

use super::tally::Tally;
use crate::disks::looks::{Look, Looks};

/// Checkpoints at one file system, and at all.
const MOST: (usize, usize) = (8, 32);
/// Memories that libvirt writes to one file system at a time: it has four calls for all, of which one that hangs keeps its own.
const WRITES: usize = 2;

/// What the checkpoints of a node share.
#[derive(Debug)]
pub struct Checkpoints {
    looks: Looks,
    /// Of who asks where a path leads.
    ways: Looks,
    /// Of who has libvirt write.
    writes: Looks,
    turns: KeyedMutex,
    closing: CancellationToken,
    tally: Tally,
}

/// The right to work for one checkpoint, as long as this, a thread of it or its open files are there.
#[derive(Debug)]
pub(super) struct Place(Arc<(KeyGuard, Look)>);

/// Open files, whose end may wait for a file server as well: they are closed on a thread that has their place.
#[derive(Debug)]
pub(super) struct Open<T: Send + 'static>(Option<(T, Place)>);

// === impl Checkpoints ===

impl Checkpoints {
    /// None is made yet; they are to count here.
    #[must_use]
    pub fn new(tally: Tally) -> Self {
        let (of_one, most) = MOST;
        let looks = || Looks::new(of_one, most);
        Self {
            looks: looks(),
            ways: looks(),
            writes: Looks::new(WRITES, most),
            turns: KeyedMutex::default(),
            closing: CancellationToken::new(),
            tally,
        }
    }

    /// Where they count.
    pub(super) const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What gives one checkpoint up; [`Self::close`] does, too.
    pub(super) fn token(&self) -> CancellationToken {
        self.closing.child_token()
    }

    /// Gives all up, those to come as well.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// Waits for the place of the checkpoint of this name, whose files are, or will be, in `dirs`.
    ///
    /// # Errors
    /// When an earlier thread of it has not ended `within` that time, or others have all places.
    pub(super) async fn place(&self, name: String, dirs: Vec<PathBuf>, within: Duration) -> Result<Place> {
        self.among(&self.looks, name, dirs, within).await
    }

    /// Waits for a place to ask where a path leads. By a link that may be to what hangs, which is not to take the places where the link is.
    ///
    /// # Errors
    /// As of [`Self::place`].
    pub(super) async fn way(&self, path: &str, within: Duration) -> Result<Place> {
        self.among(&self.ways, path.to_owned(), vec![path.into()], within).await
    }

    /// Waits for the turn to have libvirt write to a file. Its call keeps that until it ends.
    ///
    /// # Errors
    /// When others have all turns of the file system, and none has ended `within` that time.
    pub(super) async fn write(&self, file: &Path, within: Duration) -> Result<Look> {
        let late = |_elapsed| {
            let what =
                "as many memories as may be are being written to the checkpoint's file system, which is slow, or hangs";
            Error::new(Kind::Deadline, what)
        };
        timeout(within, self.writes.begin(vec![file.to_owned()])).await.map_err(late)
    }

    async fn among(&self, looks: &Looks, name: String, dirs: Vec<PathBuf>, within: Duration) -> Result<Place> {
        let had = async { (self.turns.lock(name).await, looks.begin(dirs).await) };
        let late = |_elapsed| {
            let what = "the checkpoint's directory was not looked at: earlier work there, or on the same file system, has not come to an end; \
                        many checkpoints are being made, or a file system of the node hangs";
            Error::new(Kind::Deadline, what)
        };
        Ok(Place(Arc::new(timeout(within, had).await.map_err(late)?)))
    }
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self::new(Tally::default())
    }
}

// === impl Place ===

impl Place {
    /// Work that has the place until it ends, wherever it runs.
    pub(super) fn holding<T, W: FnOnce() -> T>(&self, work: W) -> impl FnOnce() -> T + use<T, W> {
        let place = Self(self.0.clone());
        move || {
            let _place = place;
            work()
        }
    }

    /// Files that have the place until they are closed.
    pub(super) fn keep<T: Send + 'static>(&self, files: T) -> Open<T> {
        Open(Some((files, Self(self.0.clone()))))
    }

    /// Works on files, and says `what` has not happened if that does not end in time.
    ///
    /// # Errors
    /// Those of the work; that it has not ended, or was given up: then it may go on.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        what: &str,
        deadline: Duration,
        unwanted: &CancellationToken,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let working = off_reactor(self.holding(work));
        let late = |_elapsed| Error::new(Kind::Deadline, format!("{what} within {} s", deadline.as_secs()));
        let done = timeout(deadline, unwanted.run_until_cancelled(working)).await.map_err(late)?;
        done.unwrap_or_else(|| Err(given_up()))
    }
}

// === impl Open ===

impl<T: Send + 'static> Open<T> {
    /// The files, which are there until the end.
    pub(super) fn files(&self) -> Result<&T> {
        self.0.as_ref().map(|(files, _)| files).ok_or_else(given_up)
    }
}

impl<T: Send + 'static> Drop for Open<T> {
    fn drop(&mut self) {
        if let Some(files) = self.0.take() {
            drop(spawn_blocking(move || drop(files)));
        }
    }
}

pub(super) fn given_up() -> Error {
    let why = "the checkpoint was given up: its caller has left, its VM is to stop, or controld goes down";
    Error::new(Kind::State, why)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use tokio::task::JoinHandle;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    async fn place(checkpoints: &Arc<Checkpoints>, name: &str, dir: Option<&str>) -> Place {
        checkpoints.place(name.to_owned(), dir.map(PathBuf::from).into_iter().collect(), SOON).await.expect("a place")
    }

    fn waiting(checkpoints: &Arc<Checkpoints>, name: &'static str, dir: &'static str) -> JoinHandle<Place> {
        let checkpoints = checkpoints.clone();
        tokio::spawn(async move { place(&checkpoints, name, Some(dir)).await })
    }

    #[tokio::test]
    async fn what_hangs_costs_one_thread_and_is_not_overtaken() {
        let (checkpoints, wanted) = (Arc::new(Checkpoints::default()), CancellationToken::new());
        let (answer, hangs) = channel::<()>();
        let first = place(&checkpoints, "one", Some("/proc")).await;
        let late = first.work("not done", Duration::ZERO, &wanted, move || Ok(hangs.recv().is_ok())).await;
        assert_eq!(late.expect_err("it hangs").kind(), Kind::Deadline);
        drop(first);
        let again = waiting(&checkpoints, "one", "/proc");
        drop(place(&checkpoints, "two", Some("/proc")).await);
        assert!(!again.is_finished(), "a thread is there");
        answer.send(()).expect("it waits");
        again.await.expect("it has ended");
    }

    #[tokio::test]
    async fn what_hangs_when_it_is_closed_has_its_place_still() {
        struct Hanging(Receiver<()>);
        impl Drop for Hanging {
            fn drop(&mut self) {
                // Its end is the test's.
                let _ = self.0.recv();
            }
        }
        let checkpoints = Arc::new(Checkpoints::default());
        let (answer, hangs) = channel::<()>();
        let first = place(&checkpoints, "one", Some("/proc")).await;
        drop(first.keep(Hanging(hangs)));
        drop(first);
        let again = waiting(&checkpoints, "one", "/proc");
        drop(place(&checkpoints, "two", Some("/proc")).await);
        assert!(!again.is_finished(), "a thread is there");
        answer.send(()).expect("it waits");
        again.await.expect("it is closed");
    }

    #[tokio::test]
    async fn one_file_system_has_so_many_and_no_more() {
        let checkpoints = Arc::new(Checkpoints::default());
        let mut places = Vec::new();
        for nth in 0..MOST.0 {
            places.push(place(&checkpoints, &nth.to_string(), Some("/proc")).await);
        }
        let more = waiting(&checkpoints, "more", "/proc");
        drop(place(&checkpoints, "elsewhere", None).await);
        assert!(!more.is_finished(), "all are taken");
        places.pop();
        more.await.expect("one is free again");
    }

    #[tokio::test]
    async fn who_asks_for_a_way_that_hangs_takes_no_place_where_it_begins() {
        let checkpoints = Arc::new(Checkpoints::default());
        let mut ways = Vec::new();
        for nth in 0..MOST.0 {
            ways.push(checkpoints.way(&format!("/proc/{nth}"), SOON).await.expect("a place"));
        }
        let late = checkpoints.way("/proc/0", Duration::ZERO).await.expect_err("one is asked for already");
        assert_eq!(late.kind(), Kind::Deadline);
        drop(place(&checkpoints, "one", Some("/proc")).await);
    }

    #[tokio::test]
    async fn a_file_system_that_hangs_leaves_turns_to_write_to_others() {
        let checkpoints = Arc::new(Checkpoints::default());
        let write = |file: &'static str| {
            let checkpoints = checkpoints.clone();
            async move { checkpoints.write(Path::new(file), Duration::from_millis(50)).await }
        };
        let mut hanging = Vec::new();
        for _ in 0..WRITES {
            hanging.push(write("/proc/memory").await.expect("a turn"));
        }
        assert_eq!(write("/proc/memory").await.expect_err("both are taken").kind(), Kind::Deadline);
        write("/sys/memory").await.expect("another file system");
        hanging.pop();
        write("/proc/memory").await.expect("one is free again");
    }

    #[tokio::test]
    async fn what_is_not_wanted_any_more_is_not_begun_or_waited_for() {
        let checkpoints = Arc::new(Checkpoints::default());
        let (token, place) = (checkpoints.token(), place(&checkpoints, "one", Some("/proc")).await);
        checkpoints.close();
        let given_up = place.work("not done", SOON, &token, || -> Result<()> { panic!("it is begun") }).await;
        assert_eq!(given_up.expect_err("controld goes down").kind(), Kind::State);
    }
}
