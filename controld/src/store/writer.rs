//! The thread that owns the database: takes changes in, writes them in groups, and goes on after the disk failed.
//!
//! redb refuses everything after its first I/O error until it is opened again. So that is what is done: closed, opened,
//! what is there compared with what memory shows, written. If that fails too, changes that somebody waits for are refused
//! and forgotten; the others wait here, and it is tried again with the next change, or after [`RETRY`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use redb::Database;
use tokio::sync::oneshot;

use super::change::{Change, Key};
use super::database::{self, Medium};
use super::replay::Replay;
use super::{Shared, StoreError, Trouble};
use crate::error::Chain;

/// How long changes that nobody waits for wait for others, to share one flush with them.
const LINGER: Duration = Duration::from_millis(100);
/// After this a database that could not be written is tried again: nothing tells when a disk has room.
const RETRY: Duration = Duration::from_secs(2);

/// A change on its way to the writer.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) change: Change,
    /// Its number in the log, if it is there.
    pub(super) seq: Option<u64>,
    pub(super) fate: Fate,
}

/// What becomes of a change that cannot be written, and when it is seen.
#[derive(Debug)]
pub(super) enum Fate {
    /// Somebody waits for it; seen once it is durable, refused otherwise.
    Durable(oneshot::Sender<Result<(), StoreError>>),
    /// Seen already; kept until it can be written.
    Kept,
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
    /// When pending changes are written at the latest.
    due: Option<Instant>,
}

type Waiting = (Change, oneshot::Sender<Result<(), StoreError>>);

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
        Self { medium, db: Some(db), shared, inbox, pending, kept, doubtful: BTreeSet::new(), log_to, due }
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
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.write(Vec::new());
                    return;
                }
            };
            if !waiting.is_empty() || self.due.is_some_and(|due| due <= Instant::now()) {
                self.write(waiting);
            }
        }
    }

    /// Takes all that has come; gives what somebody waits for.
    fn take_in(&mut self, first: Order) -> Vec<Waiting> {
        let mut waiting: Vec<Waiting> = Vec::new();
        for Order { change, seq, fate } in std::iter::once(first).chain(self.inbox.try_iter()) {
            self.log_to = self.log_to.max(seq.unwrap_or(0));
            match fate {
                Fate::Durable(reply) => waiting.push((change, reply)),
                Fate::Kept => {
                    self.due.get_or_insert_with(|| Instant::now() + LINGER);
                    self.pending.insert(change.key.clone(), change);
                }
            }
        }
        waiting
    }

    /// Writes all that is pending and what is waited for, and answers.
    fn write(&mut self, waiting: Vec<Waiting>) {
        // Once with the database as it is, once opened anew.
        let again = self.db.is_some();
        let mut written = self.transact(&waiting);
        if again && written.is_err() {
            written = self.transact(&waiting);
        }
        match written {
            Ok(()) => {
                self.due = None;
                self.pending.clear();
                self.kept.clear();
                self.doubtful.clear();
                self.shared.log().committed(self.log_to);
                self.trouble(None);
                for (change, reply) in waiting {
                    self.shared.seen().take(&change);
                    // A caller that is gone does not want its answer.
                    let _ = reply.send(Ok(()));
                }
            }
            Err(cause) => {
                self.due = Some(Instant::now() + RETRY);
                self.trouble(Some(cause.clone()));
                for (change, reply) in waiting {
                    self.doubtful.insert(change.key);
                    let _ = reply.send(Err(StoreError::Write(cause.clone())));
                }
            }
        }
    }

    /// One transaction; the database is closed if it fails.
    fn transact(&mut self, waiting: &[Waiting]) -> Result<(), Arc<redb::Error>> {
        let db = match self.db.take() {
            Some(db) => db,
            None => self.open_again()?,
        };
        // In this order: what is waited for is younger.
        let changes = self.pending.values().chain(waiting.iter().map(|(change, _)| change));
        database::commit(&db, changes, &self.kept, self.log_to)?;
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
