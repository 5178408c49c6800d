//! The records: what pods and containers there are, on disk and in memory.
//!
//! Reads come from memory. One thread owns the database ([`writer`]) and writes changes in groups. How a change goes there:
//! - containers and facts: durable before they are seen.
//! - sandboxes: first to a log ([`log`]), which a killed daemon leaves and a power cut may take; then they are seen; the
//!   database follows within moments. What a power cut takes is not missed: the networks are gone then too, and their
//!   addresses are given back by tapmanager's own records.
//! - what must go on while nothing can be written (an end, a stop, a removal) is seen at once, and written when it can be.
//!
//! Beside them is in memory alone how long starts took ([`moments`]).
//!
//! A record that does not parse is left where it is, reported ([`Store::unread`]), neither shown nor changed nor deleted. Where
//! there is one of a newer release, nothing is opened: its pod would be made anew beside it, with other disks.

pub mod boot;
mod change;
pub(crate) mod created;
mod database;
mod failure;
pub mod feed;
mod log;
mod look;
pub mod moments;
mod replay;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use common::Chain;
use proto::tap::PodId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, oneshot};
use vmspec::{ContainerId, MachineId};

use self::change::{Change, Key, Table};
use self::database::{File, Medium, Opened};
pub use self::failure::is_disk_full;
use self::feed::{Feed, Shown};
use self::log::Log;
pub use self::log::VERSION as LINE_VERSION;
pub use self::look::Recorded;
use self::moments::{Moments, Of};
use self::writer::{Order, Writer};
use crate::model::{Container, Sandbox};

/// Why a record was not written or not read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be opened.
    #[error("failed to open database `{}`", path.display())]
    Open {
        path: PathBuf,
        #[source]
        cause: Arc<redb::Error>,
    },
    /// The log beside it cannot be opened.
    #[error("failed to open `{}`, the log of the database", path.display())]
    Log {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// A newer release has written it. Nothing was changed.
    #[error(
        "database `{}` has records of a newer release; install that release again, or remove their pods by it first", path.display()
    )]
    Newer {
        path: PathBuf,
        /// One of them.
        #[source]
        record: Unread,
    },
    /// There is no thread to write with.
    #[error("failed to start the thread of the database")]
    Thread(#[source] std::io::Error),
    /// There is another one.
    #[error("another controld runs on `{}`; stop it, or set another `state_dir`", path.display())]
    Held {
        /// The log, which the other one has locked.
        path: PathBuf,
    },
    /// A transaction failed; nothing of it was kept.
    #[error("failed to write the database")]
    Write(#[source] Arc<redb::Error>),
    /// It cannot be read.
    #[error("failed to read the database")]
    Read(#[source] Box<redb::Error>),
    /// A record does not become JSON.
    #[error("failed to encode a record")]
    Encode(#[source] serde_json::Error),
    /// The record of that key is not ours to change.
    #[error("a record that cannot be read is left alone")]
    Unread(#[source] Unread),
    /// The thread that writes has ended, at shutdown.
    #[error("database is shutting down")]
    Closed,
}

/// A record that does not parse. It stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("record `{key}` of `{table}` cannot be read: {problem}")]
pub struct Unread {
    /// Where it lies: `sandboxes`, `containers`, or `log_kept` for a line of the log.
    pub table: &'static str,
    /// What it is filed under.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// The line of the log that says it and cannot be read, by its checksum; it hides the record.
    #[serde(skip)]
    line: Option<String>,
    /// A newer release wrote it.
    #[serde(skip)]
    newer: bool,
}

/// The database cannot be written for now. Tried again by itself.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Since when.
    pub since: SystemTime,
    pub cause: Arc<redb::Error>,
}

/// Handle to the records; clones share them. When the last one goes, what is not in the database yet is written.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    moments: Moments,
    orders: Option<Sender<Order>>,
    writer: Option<JoinHandle<()>>,
}

/// What the writer and the callers have in common. Locked in this order: `log`, `seen`; `trouble` alone.
#[derive(Debug)]
struct Shared {
    /// Held while a change is logged, shown and handed to the writer, so that all three have one order.
    log: Mutex<Log>,
    seen: Mutex<Seen>,
    trouble: Mutex<Option<Trouble>>,
    /// Number of the last transaction, which the database has too.
    commits: AtomicU64,
    writes: Writes,
}

/// What writing the database has cost since the start.
#[derive(Debug, Default)]
struct Writes {
    nanos: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Seen {
    sandboxes: BTreeMap<PodId, Arc<Sandbox>>,
    containers: BTreeMap<ContainerId, Arc<Container>>,
    /// As JSON.
    facts: BTreeMap<String, Vec<u8>>,
    unread: Vec<Unread>,
    feed: Feed,
}

impl Store {
    /// Opens or makes the database at `path`, and the log beside it, both for root alone, and reads them whole.
    ///
    /// # Errors
    /// When a file cannot be opened, another process has them, the database is damaged, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_on(File::new(path), &path.with_extension("log"))
    }

    fn open_on(medium: impl Medium, log: &Path) -> Result<Self, StoreError> {
        // The lock first: the database has one of its own, but gives it up when it is opened again after a failure.
        let (mut log, found) = Log::open(log)?;
        let Opened { db, mut seen, has_log_to, commits, kept } = database::read(&medium)?;
        let replay = replay::replay(&mut seen, kept, found, has_log_to)?;
        if let Some(record) = seen.unread.iter().find(|unread| unread.newer) {
            return Err(StoreError::Newer { path: medium.path().to_owned(), record: record.clone() });
        }
        log.go_on_from(has_log_to);
        let shared = Arc::new(Shared {
            log: Mutex::new(log),
            seen: Mutex::new(seen),
            trouble: Mutex::new(None),
            commits: AtomicU64::new(commits),
            writes: Writes::default(),
        });
        let (orders, inbox) = channel();
        let writer = Writer::new(Box::new(medium), db, shared.clone(), inbox, replay);
        let thread = std::thread::Builder::new().name("records".into()).spawn(move || writer.run());
        let thread = thread.map_err(StoreError::Thread)?;
        let moments = Moments::default();
        Ok(Self { inner: Arc::new(Inner { shared, moments, orders: Some(orders), writer: Some(thread) }) })
    }

    /// Records that do not parse. While there are any, what is on no record may be theirs.
    #[must_use]
    pub fn unread(&self) -> Vec<Unread> {
        self.seen().unread.clone()
    }

    /// Removes a record that cannot be read, for good, and all lines of the log that hide it.
    ///
    /// # Errors
    /// When that could not be made durable; then it is still there.
    pub async fn forget_unread(&self, unread: &Unread) -> Result<(), StoreError> {
        let Some(table) = Table::named(unread.table) else { return Ok(()) };
        let is_same = |other: &Unread| (other.table, &other.key) == (unread.table, &unread.key);
        let lines: Vec<_> =
            self.seen().unread.iter().filter(|other| is_same(other)).filter_map(|u| u.line.clone()).collect();
        // What hides the record goes after it: it must not be seen again if only half of this is done.
        let record = std::iter::once(table.key(unread.key.clone()));
        for key in record.chain(lines.into_iter().map(|line| Table::LogKept.key(line))) {
            let (reply, answer) = oneshot::channel();
            self.order(Order::Durable { change: Change::removal(key), reply });
            answer.await.unwrap_or(Err(StoreError::Closed))?;
        }
        self.seen().unread.retain(|other| !is_same(other));
        Ok(())
    }

    /// Waits until the database has all that is seen now.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Flush { reply });
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Number of the last transaction. It grows for ever: a database that has a smaller one than was seen is a copy of before.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.inner.shared.commits.load(Ordering::SeqCst)
    }

    /// How long transactions took in all, with those that failed, since this was opened.
    #[must_use]
    pub fn writing(&self) -> Duration {
        Duration::from_nanos(self.inner.shared.writes.nanos.load(Ordering::Relaxed))
    }

    /// Transactions that failed since this was opened; most are tried again.
    #[must_use]
    pub fn failed_writes(&self) -> u64 {
        self.inner.shared.writes.failed.load(Ordering::Relaxed)
    }

    /// Bytes of the log beside the database.
    #[must_use]
    pub fn log_len(&self) -> u64 {
        self.inner.shared.log().len()
    }

    /// Goes on counting transactions from `number`, if that is more.
    pub fn count_on_from(&self, number: u64) {
        self.inner.shared.commits.fetch_max(number, Ordering::SeqCst);
    }

    /// Each change of what is shown, from now on and until [`Self::end_changes`].
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Shown> {
        self.seen().feed.listen()
    }

    /// Lets all who listen to changes go: no shutdown waits for one that would listen for ever.
    pub fn end_changes(&self) {
        self.seen().feed.end();
    }

    /// When the parts of machines' starts began and ended, as far as this process has seen it.
    #[must_use]
    pub fn moments(&self) -> &Moments {
        &self.inner.moments
    }

    /// Whether, since when and why the database cannot be written.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.inner.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All sandboxes, in the order of their ids.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.seen().sandboxes.values().cloned().collect()
    }

    /// All containers, in the order of their ids.
    #[must_use]
    pub fn containers(&self) -> Vec<Arc<Container>> {
        self.seen().containers.values().cloned().collect()
    }

    /// The sandbox of this id.
    #[must_use]
    pub fn sandbox(&self, id: &PodId) -> Option<Arc<Sandbox>> {
        self.seen().sandboxes.get(id).cloned()
    }

    /// The container of this id.
    #[must_use]
    pub fn container(&self, id: ContainerId) -> Option<Arc<Container>> {
        self.seen().containers.get(&id).cloned()
    }

    /// The machines of all containers.
    #[must_use]
    pub fn machines(&self) -> BTreeSet<MachineId> {
        self.seen().containers.values().map(|container| container.machine.id).collect()
    }

    /// Containers of a sandbox.
    #[must_use]
    pub fn containers_of(&self, sandbox: &PodId) -> Vec<Arc<Container>> {
        self.seen().containers.values().filter(|container| container.sandbox == *sandbox).cloned().collect()
    }

    /// Logs a sandbox, then shows it. When it cannot be logged it must be durable.
    ///
    /// # Errors
    /// When neither worked; then nothing has changed.
    pub async fn put_sandbox(&self, sandbox: Sandbox) -> Result<Arc<Sandbox>, StoreError> {
        let sandbox = Arc::new(sandbox);
        let change = Change::sandbox(sandbox.clone())?;
        if let Some(change) = self.log_and_show(change)? {
            self.write(change).await?;
        }
        Ok(sandbox)
    }

    /// Shows a sandbox that is so whether or not it can be written. It is, as soon as it can be.
    pub fn show_sandbox(&self, sandbox: Sandbox) {
        self.show(Change::sandbox(Arc::new(sandbox)));
    }

    /// Forgets a sandbox; fine if absent. A record that cannot be removed now is removed as soon as it can be.
    ///
    /// # Errors
    /// When the record is not ours to remove.
    pub fn remove_sandbox(&self, id: &PodId) -> Result<(), StoreError> {
        let change = Change::no_sandbox(id.clone());
        self.ours(&change.key)?;
        self.show(Ok(change));
        self.moments().forget(&Of::Sandbox(id.clone()));
        Ok(())
    }

    /// Writes a container, then shows it.
    ///
    /// # Errors
    /// When it could not be made durable; then nothing has changed.
    pub async fn put_container(&self, container: Container) -> Result<Arc<Container>, StoreError> {
        let container = Arc::new(container);
        self.write(Change::container(container.clone())?).await?;
        Ok(container)
    }

    /// Shows a container that is so whether or not it can be written. It is, as soon as it can be.
    pub fn show_container(&self, container: Container) {
        self.show(Change::container(Arc::new(container)));
    }

    /// Forgets a container; fine if absent. A record that cannot be removed now is removed as soon as it can be.
    ///
    /// # Errors
    /// When the record is not ours to remove.
    pub async fn remove_container(&self, id: ContainerId) -> Result<(), StoreError> {
        if let Some(container) = self.container(id) {
            self.moments().forget(&Of::Machine(container.machine.id));
        }
        match self.write(Change::no_container(id)).await {
            Err(StoreError::Write(_)) => self.show(Ok(Change::no_container(id))),
            done => done?,
        }
        Ok(())
    }

    /// A fact about the node. One that does not parse counts as absent: facts can be found out again.
    #[must_use]
    pub fn fact<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(self.seen().facts.get(name)?).ok()
    }

    /// Writes a fact about the node.
    ///
    /// # Errors
    /// When it could not be made durable.
    pub async fn put_fact<T: Serialize + Sync>(&self, name: &str, value: &T) -> Result<(), StoreError> {
        self.write(Change::fact(name, value)?).await
    }

    /// Has the writer make a change durable, and show it then.
    async fn write(&self, change: Change) -> Result<(), StoreError> {
        self.ours(&change.key)?;
        let (reply, answer) = oneshot::channel();
        self.order(Order::Durable { change, reply });
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Logs and shows a change of a sandbox; gives it back when it cannot be logged, or the database is in trouble.
    fn log_and_show(&self, change: Change) -> Result<Option<Change>, StoreError> {
        self.ours(&change.key)?;
        if self.trouble().is_some() {
            return Ok(Some(change));
        }
        let mut log = self.inner.shared.log();
        match log.append(&change) {
            Ok(seq) => {
                self.show_inside(change, Some(seq));
                Ok(None)
            }
            Err(error) => {
                tracing::debug!(%error, "change not logged; it goes to the database itself");
                Ok(Some(change))
            }
        }
    }

    /// Shows a change at once; logs it if that is possible, and has it written when that is.
    fn show(&self, change: Result<Change, StoreError>) {
        let change = match change.and_then(|change| self.ours(&change.key).map(|()| change)) {
            Ok(change) => change,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "change not recorded");
                return;
            }
        };
        let mut log = self.inner.shared.log();
        let seq = match change.key.table {
            Table::Sandboxes => log.append(&change).ok(),
            Table::Containers | Table::Facts | Table::LogKept => None,
        };
        self.show_inside(change, seq);
    }

    /// To be called with the log locked.
    fn show_inside(&self, change: Change, seq: Option<u64>) {
        self.seen().take(&change);
        self.order(Order::Kept { change, seq });
    }

    fn order(&self, order: Order) {
        // Fails only at the very end, and then a durable change is told by its dropped answer.
        let _ = self.inner.orders.as_ref().map(|orders| orders.send(order));
    }

    fn ours(&self, key: &Key) -> Result<(), StoreError> {
        match self.seen().not_ours(key) {
            Some(unread) => Err(StoreError::Unread(unread.clone())),
            None => Ok(()),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.inner.shared.seen()
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing between lock and unlock can panic half way through a change.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A panic in there has been told by then.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
