//! The thread that owns the database: takes changes in, writes them in groups, and goes on after the disk failed.
//!
//! redb refuses everything after its first I/O error until it is opened again. So that is what is done: closed, opened,
//! what is there compared with what memory shows, written. If that fails too, changes that somebody waits for are refused
//! and forgotten; the others wait here, and it is tried again with the next change, or after [`RETRY`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use common::Chain;
use redb::Database;
use tokio::sync::oneshot;

use super::change::{Change, Key};
use super::database::{self, Medium};
use super::replay::Replay;
use super::{Shared, StoreError, Trouble};

/// How long changes that nobody waits for wait for others, to share one flush with them.
const LINGER: Duration = Duration::from_millis(100);
/// After this a database that could not be written is tried again: nothing tells when a disk has room.
const RETRY: Duration = Duration::from_secs(2);

type Reply = oneshot::Sender<Result<(), StoreError>>;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Order {
    /// A change that somebody waits for; seen once it is durable, refused otherwise.
    Durable { change: Change, reply: Reply },
    /// A change that is seen already; kept until it can be written. `seq` is its number in the log, if it is there.
    Kept { change: Change, seq: Option<u64> },
    /// To write what is kept.
    Flush { reply: Reply },
}

/// What somebody waits for.
#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<(Change, Reply)>,
    flushes: Vec<Reply>,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Writer {
    medium: Box<dyn Medium>,
    /// `None` after a failure, until it could be opened again.
    db: Option<Database>,
    shared: Arc<Shared>,
    inbox: Receiver<Order>,
    /// What is seen and not written yet.
    pending: BTreeMap<Key, Change>,
    /// Lines of the log that cannot be read, to be kept.
    kept: Vec<Vec<u8>>,
    /// Refused, but the disk failed in a way that may have written them.
    doubtful: BTreeSet<Key>,
    /// Number of the last line of the log that is written or pending.
    log_to: u64,
    /// Number of the last transaction that was tried.
    tried: u64,
    /// When pending changes are written at the latest. `None` if nothing is pending and the log is empty.
    due: Option<Instant>,
}

impl Writer {
    /// A writer of this database that has yet to write what the log had beyond it.
    pub(super) fn new(
        medium: Box<dyn Medium>,
        db: Database,
        shared: Arc<Shared>,
        inbox: Receiver<Order>,
        replay: Replay,
    ) -> Self {
        let Replay { changes, kept, log_to, empty_log } = replay;
        let pending = changes.into_iter().map(|change| (change.key.clone(), change)).collect();
        let due = (!empty_log).then(Instant::now);
        Self { medium, db: Some(db), shared, inbox, pending, kept, doubtful: BTreeSet::new(), log_to, tried: 0, due }
    }

    /// Works until the last handle is gone, then writes what is left.
    pub(super) fn run(mut self) {
        loop {
            let first = match self.due {
                None => self.inbox.recv().map_err(|_closed| RecvTimeoutError::Disconnected),
                Some(due) => self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            let waiting = match first {
                Ok(first) => self.take_in(first),
                Err(RecvTimeoutError::Timeout) => Waiting::default(),
                Err(RecvTimeoutError::Disconnected) => {
                    if self.due.is_some() {
                        self.write(Waiting::default());
                    }
                    return;
                }
            };
            let flush = !waiting.flushes.is_empty();
            if !waiting.changes.is_empty() || self.due.is_some_and(|due| flush || due <= Instant::now()) {
                self.write(waiting);
            } else {
                waiting.flushes.into_iter().for_each(|reply| answer(reply, Ok(())));
            }
        }
    }

    /// Takes all that has come; gives what somebody waits for.
    fn take_in(&mut self, first: Order) -> Waiting {
        let mut waiting = Waiting::default();
        for order in std::iter::once(first).chain(self.inbox.try_iter()) {
            match order {
                Order::Durable { change, reply } => waiting.changes.push((change, reply)),
                Order::Flush { reply } => waiting.flushes.push(reply),
                Order::Kept { change, seq } => {
                    self.log_to = self.log_to.max(seq.unwrap_or(0));
                    self.due.get_or_insert_with(|| Instant::now() + LINGER);
                    self.pending.insert(change.key.clone(), change);
                }
            }
        }
        waiting
    }

    /// Writes all that is pending and what is waited for, and answers.
    fn write(&mut self, waiting: Waiting) {
        // Once with the database as it is, once opened anew.
        let again = self.db.is_some();
        let mut written = self.measured(&waiting.changes);
        if again && written.is_err() {
            written = self.measured(&waiting.changes);
        }
        match written {
            Ok(()) => {
                self.pending.clear();
                self.kept.clear();
                self.doubtful.clear();
                let emptied = self.shared.log().committed(self.log_to);
                self.due = (!emptied).then(|| Instant::now() + RETRY);
                self.trouble(None);
                for (change, reply) in waiting.changes {
                    self.shared.seen().take(&change);
                    answer(reply, Ok(()));
                }
                waiting.flushes.into_iter().for_each(|reply| answer(reply, Ok(())));
            }
            Err(cause) => {
                self.due = Some(Instant::now() + RETRY);
                self.trouble(Some(cause.clone()));
                for (change, reply) in waiting.changes {
                    self.doubtful.insert(change.key);
                    answer(reply, Err(StoreError::Write(cause.clone())));
                }
                waiting.flushes.into_iter().for_each(|reply| answer(reply, Err(StoreError::Write(cause.clone()))));
            }
        }
    }

    /// One transaction, of which account is kept.
    fn measured(&mut self, waiting: &[(Change, Reply)]) -> Result<(), Arc<redb::Error>> {
        let began = Instant::now();
        let written = self.transact(waiting);
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.writes.nanos.fetch_add(nanos, Ordering::Relaxed);
        if written.is_err() {
            self.shared.writes.failed.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    /// One transaction; the database is closed if it fails.
    fn transact(&mut self, waiting: &[(Change, Reply)]) -> Result<(), Arc<redb::Error>> {
        let db = match self.db.take() {
            Some(db) => db,
            None => self.open_again()?,
        };
        // In this order: what is waited for is younger.
        let changes = self.pending.values().chain(waiting.iter().map(|(change, _)| change));
        // One that fails may be there all the same: no other has its number.
        self.tried = self.tried.max(self.shared.commits.load(Ordering::SeqCst)) + 1;
        database::commit(&db, changes, &self.kept, self.log_to, self.tried)?;
        self.shared.commits.fetch_max(self.tried, Ordering::SeqCst);
        self.db = Some(db);
        Ok(())
    }

    /// Opens the database and finds out what of the last transaction is there after all.
    fn open_again(&mut self) -> Result<Database, Arc<redb::Error>> {
        let db = self.medium.open()?;
        let (wanted, unread) = {
            let seen = self.shared.seen();
            (seen.as_changes(), seen.unread.clone())
        };
        for change in database::differences(&db, wanted, &unread, &self.doubtful)? {
            // What is pending was seen before it came here, so it is not older than what memory shows.
            self.pending.entry(change.key.clone()).or_insert(change);
        }
        Ok(db)
    }

    fn trouble(&self, cause: Option<Arc<redb::Error>>) {
        let mut trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (trouble.as_mut(), cause) {
            (None, None) => {}
            (None, Some(cause)) => {
                tracing::error!(error = %Chain(&cause), "database cannot be written; it is tried again and again");
                *trouble = Some(Trouble { since: SystemTime::now(), cause });
            }
            (Some(trouble), Some(cause)) => trouble.cause = cause,
            (Some(_), None) => {
                tracing::info!("database is written again");
                *trouble = None;
            }
        }
    }
}

/// A caller that is gone does not want its answer.
fn answer(reply: Reply, answer: Result<(), StoreError>) {
    let _ = reply.send(answer);
}
