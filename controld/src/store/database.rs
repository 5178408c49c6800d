//! The database file: its tables, reading them whole, and one transaction for a group of changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError};

use super::change::{Change, Key, Problem, Table, parse_record};
use super::log::checksum;
use super::{Seen, StoreError, Unread};

type Definition = TableDefinition<'static, &'static str, &'static [u8]>;

/// Lines of the log that cannot be read, by their checksums.
const LOG_KEPT: Definition = TableDefinition::new("log_kept");
/// The fact that says up to which number the database has the log.
const LOG_SEQ: &str = "log_seq";
/// The fact that counts the transactions.
const COMMITS: &str = "commits";

/// What the database lies on.
pub(super) trait Medium: fmt::Debug + Send + 'static {
    /// For messages.
    fn path(&self) -> &Path;
    /// Opens it, or makes it.
    fn open(&self) -> Result<Database, redb::Error>;
}

/// A file for root alone.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
}

impl File {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Medium for File {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> Result<Database, redb::Error> {
        // There are secrets in it: user-data of pods.
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        Ok(Database::builder().create_file(file)?)
    }
}

/// The database, and what is in it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) db: Database,
    pub(super) seen: Seen,
    /// Up to which number it has the log.
    pub(super) has_log_to: u64,
    /// Number of its last transaction; 0 if only releases that did not count have written it.
    pub(super) commits: u64,
    /// Lines of the log that earlier starts could not read, by their checksums.
    pub(super) kept: BTreeMap<String, Vec<u8>>,
}

/// Opens the database and reads it whole.
pub(super) fn read(medium: &impl Medium) -> Result<Opened, StoreError> {
    let db =
        medium.open().map_err(|cause| StoreError::Open { path: medium.path().to_owned(), cause: Arc::new(cause) })?;
    let failed = |cause| StoreError::Read(Box::new(cause));
    let mut seen = Seen::default();
    let (mut has_log_to, mut commits) = (0, 0);
    for (key, value) in contents(&db).map_err(failed)? {
        let record = || serde_json::from_slice(&value).map_err(|error| Problem::Other(error.to_string()));
        let problem = match key.table {
            Table::Sandboxes => record().and_then(parse_record).map(|sandbox| seen.insert_sandbox(sandbox)).err(),
            Table::Containers => {
                record().and_then(parse_record).map(|container| seen.insert_container(container)).err()
            }
            Table::Facts if key.name == LOG_SEQ => {
                has_log_to = serde_json::from_slice(&value).unwrap_or(0);
                None
            }
            Table::Facts if key.name == COMMITS => {
                commits = serde_json::from_slice(&value).unwrap_or(0);
                None
            }
            Table::Facts | Table::LogKept => {
                seen.facts.insert(key.name.clone(), value);
                None
            }
        };
        if let Some(problem) = problem {
            seen.unread.push(Unread::new(key.table, key.name, &problem, None));
        }
    }
    let kept = rows(&begin(&db).map_err(failed)?, LOG_KEPT).map_err(failed)?;
    Ok(Opened { db, seen, has_log_to, commits, kept })
}

/// All records and facts as they are.
pub(super) fn contents(db: &Database) -> Result<BTreeMap<Key, Vec<u8>>, redb::Error> {
    let read = begin(db)?;
    let mut all = BTreeMap::new();
    for table in [Table::Sandboxes, Table::Containers, Table::Facts] {
        let rows = rows(&read, definition(table))?;
        all.extend(rows.into_iter().map(|(name, value)| (table.key(name), value)));
    }
    Ok(all)
}

/// What is to be changed so that the database says what is `wanted`. Of what is there beside it only the `doubtful` goes,
/// and what cannot be read stays as it is.
pub(super) fn differences(
    db: &Database,
    wanted: Vec<Change>,
    unread: &[Unread],
    doubtful: &BTreeSet<Key>,
) -> Result<Vec<Change>, redb::Error> {
    let mut there = contents(db)?;
    let mut changes = wanted;
    changes.retain(|change| there.remove(&change.key) != change.value);
    changes.extend(there.into_keys().filter(|key| doubtful.contains(key)).map(Change::removal));
    changes.retain(|change| unread.iter().all(|unread| !unread.is(&change.key)));
    Ok(changes)
}

/// One transaction, the one of this `number`, durable when this returns. `log_to` says up to which number the changes have the
/// log; `kept` are lines of it that cannot be read.
pub(super) fn commit<'a>(
    db: &Database,
    changes: impl IntoIterator<Item = &'a Change>,
    kept: &[Vec<u8>],
    log_to: u64,
    number: u64,
) -> Result<(), redb::Error> {
    let write = db.begin_write()?;
    // First: a change may be that one of them goes.
    for line in kept {
        write.open_table(LOG_KEPT)?.insert(checksum(line).as_str(), line.as_slice())?;
    }
    for change in changes {
        let mut table = write.open_table(definition(change.key.table))?;
        let name = change.key.name.as_str();
        match &change.value {
            Some(value) => drop(table.insert(name, value.as_slice())?),
            None => drop(table.remove(name)?),
        }
    }
    for (counter, value) in [(LOG_SEQ, log_to), (COMMITS, number)] {
        write.open_table(definition(Table::Facts))?.insert(counter, value.to_string().as_bytes())?;
    }
    Ok(write.commit()?)
}

const fn definition(table: Table) -> Definition {
    TableDefinition::new(table.name())
}

fn begin(db: &Database) -> Result<ReadTransaction, redb::Error> {
    Ok(db.begin_read()?)
}

fn rows(read: &ReadTransaction, table: Definition) -> Result<BTreeMap<String, Vec<u8>>, redb::Error> {
    let table = match read.open_table(table) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut rows = BTreeMap::new();
    for row in table.iter()? {
        let (name, value) = row?;
        rows.insert(name.value().to_owned(), value.value().to_owned());
    }
    Ok(rows)
}
