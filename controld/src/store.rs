//! The database: what pods and containers there are, on disk and in memory.
//!
//! Reads come from memory; a change is one transaction, durable before it is seen. A record that does not parse is left
//! where it is, reported, and neither shown nor deleted: it may be a newer release's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::tap::PodId;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{Container, ContainerId, RECORD_VERSION, Sandbox};

const SANDBOXES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sandboxes");
const CONTAINERS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("containers");
/// Facts about the node: boot id, accelerator verdict, emulator fingerprint.
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");

/// Why the database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened.
    #[error("failed to open database `{}`", path.display())]
    Open {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Box<redb::Error>,
    },
    /// A transaction failed; nothing of it was kept.
    #[error("failed to write the database")]
    Write(#[source] Box<redb::Error>),
    /// It cannot be read.
    #[error("failed to read the database")]
    Read(#[source] Box<redb::Error>),
    /// A record does not become JSON.
    #[error("failed to encode a record")]
    Encode(#[source] serde_json::Error),
    /// The task that wrote was cancelled, at shutdown.
    #[error("database is shutting down")]
    Closed,
}

/// Handle to the database; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    db: Arc<Database>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    sandboxes: BTreeMap<PodId, Arc<Sandbox>>,
    containers: BTreeMap<ContainerId, Arc<Container>>,
}

impl Store {
    /// Opens or makes the database and reads it whole. The second value names records that do not parse.
    ///
    /// # Errors
    /// When the file cannot be opened, another process holds it, or it is damaged.
    pub fn open(path: &Path) -> Result<(Self, Vec<String>), StoreError> {
        let failed = |cause: redb::Error| StoreError::Open { path: path.to_owned(), cause: Box::new(cause) };
        let db = Database::create(path).map_err(|cause| failed(cause.into()))?;
        let begin = db.begin_write().map_err(|cause| failed(cause.into()))?;
        for table in [SANDBOXES, CONTAINERS, FACTS] {
            begin.open_table(table).map_err(|cause| failed(cause.into()))?;
        }
        begin.commit().map_err(|cause| failed(cause.into()))?;

        let mut unread = Vec::new();
        let mut seen = Seen::default();
        for sandbox in read_all::<Sandbox>(&db, SANDBOXES, &mut unread)? {
            seen.sandboxes.insert(sandbox.id.clone(), Arc::new(sandbox));
        }
        for container in read_all::<Container>(&db, CONTAINERS, &mut unread)? {
            seen.containers.insert(container.id, Arc::new(container));
        }
        Ok((Self { db: Arc::new(db), seen: Arc::new(Mutex::new(seen)) }, unread))
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

    /// Containers of a sandbox.
    #[must_use]
    pub fn containers_of(&self, sandbox: &PodId) -> Vec<Arc<Container>> {
        self.seen().containers.values().filter(|container| container.sandbox == *sandbox).cloned().collect()
    }

    /// Writes a sandbox, then shows it.
    ///
    /// # Errors
    /// When it could not be made durable; then nothing has changed.
    pub async fn put_sandbox(&self, sandbox: Sandbox) -> Result<Arc<Sandbox>, StoreError> {
        let sandbox = Arc::new(sandbox);
        self.write(SANDBOXES, sandbox.id.to_string(), Some(encode(sandbox.as_ref())?)).await?;
        self.seen().sandboxes.insert(sandbox.id.clone(), sandbox.clone());
        Ok(sandbox)
    }

    /// Writes a container, then shows it.
    ///
    /// # Errors
    /// When it could not be made durable; then nothing has changed.
    pub async fn put_container(&self, container: Container) -> Result<Arc<Container>, StoreError> {
        let container = Arc::new(container);
        self.write(CONTAINERS, container.id.to_string(), Some(encode(container.as_ref())?)).await?;
        self.seen().containers.insert(container.id, container.clone());
        Ok(container)
    }

    /// Shows a container that could not be made durable.
    pub fn show_container(&self, container: Container) {
        self.seen().containers.insert(container.id, Arc::new(container));
    }

    /// Forgets a sandbox; fine if absent.
    ///
    /// # Errors
    /// When that could not be made durable; then it is still there.
    pub async fn remove_sandbox(&self, id: &PodId) -> Result<(), StoreError> {
        self.write(SANDBOXES, id.to_string(), None).await?;
        self.seen().sandboxes.remove(id);
        Ok(())
    }

    /// Forgets a container; fine if absent.
    ///
    /// # Errors
    /// When that could not be made durable; then it is still there.
    pub async fn remove_container(&self, id: ContainerId) -> Result<(), StoreError> {
        self.write(CONTAINERS, id.to_string(), None).await?;
        self.seen().containers.remove(&id);
        Ok(())
    }

    /// A fact about the node. One that does not parse counts as absent: facts can be found out again.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn fact<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let failed = |cause: redb::Error| StoreError::Read(Box::new(cause));
        let read = self.db.begin_read().map_err(|cause| failed(cause.into()))?;
        let table = read.open_table(FACTS).map_err(|cause| failed(cause.into()))?;
        let value = table.get(name).map_err(|cause| failed(cause.into()))?;
        Ok(value.and_then(|bytes| serde_json::from_slice(bytes.value()).ok()))
    }

    /// Writes a fact about the node.
    ///
    /// # Errors
    /// When it could not be made durable.
    pub async fn put_fact<T: Serialize + Sync>(&self, name: &str, value: &T) -> Result<(), StoreError> {
        self.write(FACTS, name.to_owned(), Some(encode(value)?)).await
    }

    async fn write(
        &self,
        table: TableDefinition<'static, &'static str, &'static [u8]>,
        key: String,
        value: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let db = self.db.clone();
        // A commit waits for the disk.
        tokio::task::spawn_blocking(move || {
            let failed = |cause: redb::Error| StoreError::Write(Box::new(cause));
            let write = db.begin_write().map_err(|cause| failed(cause.into()))?;
            {
                let mut table = write.open_table(table).map_err(|cause| failed(cause.into()))?;
                match value {
                    Some(value) => table.insert(key.as_str(), value.as_slice()).map(drop),
                    None => table.remove(key.as_str()).map(drop),
                }
                .map_err(|cause| failed(cause.into()))?;
            }
            write.commit().map_err(|cause| failed(cause.into()))
        })
        .await
        .map_err(|_cancelled| StoreError::Closed)?
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing between lock and unlock can panic half way through a change.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(StoreError::Encode)
}

/// Only the version, so that a newer record is told from a damaged one.
#[derive(serde::Deserialize)]
struct VersionOnly {
    version: u32,
}

fn read_all<T: DeserializeOwned>(
    db: &Database,
    table: TableDefinition<'_, &'static str, &'static [u8]>,
    unread: &mut Vec<String>,
) -> Result<Vec<T>, StoreError> {
    let failed = |cause: redb::Error| StoreError::Read(Box::new(cause));
    let read = db.begin_read().map_err(|cause| failed(cause.into()))?;
    let table = read.open_table(table).map_err(|cause| failed(cause.into()))?;
    let mut records = Vec::new();
    for entry in table.iter().map_err(|cause| failed(cause.into()))? {
        let (key, value) = entry.map_err(|cause| failed(cause.into()))?;
        let parsed = serde_json::from_slice::<VersionOnly>(value.value())
            .map_err(|error| error.to_string())
            .and_then(|record| match record.version {
                RECORD_VERSION => Ok(()),
                newer => Err(format!("version {newer} is not {RECORD_VERSION}")),
            })
            .and_then(|()| serde_json::from_slice(value.value()).map_err(|error| error.to_string()));
        match parsed {
            Ok(record) => records.push(record),
            Err(problem) => unread.push(format!("record `{}`: {problem}", key.value())),
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests;
