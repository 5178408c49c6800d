//! One change of one record, in the form of the disk and in that of memory.

use std::sync::Arc;

use proto::tap::PodId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vmspec::{ContainerId, plan};

use super::feed::Record;
use super::{Seen, StoreError, Unread};
use crate::model::{CONTAINER_VERSION, Container, SANDBOX_VERSION, Sandbox};

/// Kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Sandboxes,
    Containers,
    Facts,
    /// Lines of the log that cannot be read, by their checksums.
    LogKept,
}

/// Names one record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) table: Table,
    pub(super) name: String,
}

#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) key: Key,
    /// JSON; `None` is a removal.
    pub(super) value: Option<Vec<u8>>,
    view: View,
}

/// What memory shows after it.
#[derive(Debug, Clone)]
enum View {
    Sandbox(Arc<Sandbox>),
    NoSandbox(PodId),
    Container(Arc<Container>),
    NoContainer(ContainerId),
    Fact,
    Nothing,
}

// === impl Table ===

impl Table {
    /// As it is called in the database.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::Containers => "containers",
            Self::Facts => "facts",
            Self::LogKept => "log_kept",
        }
    }

    /// The one of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Sandboxes, Self::Containers, Self::Facts, Self::LogKept].into_iter().find(|table| table.name() == name)
    }

    pub(super) fn key(self, name: impl Into<String>) -> Key {
        Key { table: self, name: name.into() }
    }
}

// === impl Change ===

impl Change {
    pub(super) fn sandbox(sandbox: Arc<Sandbox>) -> Result<Self, StoreError> {
        let key = Table::Sandboxes.key(sandbox.id.as_str());
        Ok(Self { key, value: Some(encode(sandbox.as_ref())?), view: View::Sandbox(sandbox) })
    }

    pub(super) fn no_sandbox(id: PodId) -> Self {
        Self { key: Table::Sandboxes.key(id.as_str()), value: None, view: View::NoSandbox(id) }
    }

    pub(super) fn container(container: Arc<Container>) -> Result<Self, StoreError> {
        let key = Table::Containers.key(container.id.to_string());
        Ok(Self { key, value: Some(encode(container.as_ref())?), view: View::Container(container) })
    }

    pub(super) fn no_container(id: ContainerId) -> Self {
        Self { key: Table::Containers.key(id.to_string()), value: None, view: View::NoContainer(id) }
    }

    /// The sandbox that this makes or changes.
    pub(super) fn as_sandbox(&self) -> Option<&Sandbox> {
        match &self.view {
            View::Sandbox(sandbox) => Some(sandbox),
            _ => None,
        }
    }

    /// A record goes that memory does not show.
    pub(super) fn removal(key: Key) -> Self {
        Self { key, value: None, view: View::Nothing }
    }

    pub(super) fn fact<T: Serialize>(name: &str, value: &T) -> Result<Self, StoreError> {
        Ok(Self { key: Table::Facts.key(name), value: Some(encode(value)?), view: View::Fact })
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(StoreError::Encode)
}

/// Why something that was written down cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// A newer release wrote it.
    #[error("version {found} is not known, {known} is the newest")]
    Newer { found: String, known: String },
    /// It is not what any release writes.
    #[error("{0}")]
    Other(String),
}

/// A kind of record that has a version.
pub(super) trait Versioned: DeserializeOwned {
    /// The one that this release writes.
    const VERSION: u32;

    /// Brings a record of version `from`, which is older, to the next version.
    fn upgrade(record: &mut Value, from: u64);
}

impl Versioned for Sandbox {
    const VERSION: u32 = SANDBOX_VERSION;

    fn upgrade(_record: &mut Value, _from: u64) {}
}

impl Versioned for Container {
    const VERSION: u32 = CONTAINER_VERSION;

    fn upgrade(record: &mut Value, from: u64) {
        let id = record.get("id").cloned();
        let Some(machine) = record.get_mut("machine") else { return };
        match (from, id, machine.as_object_mut()) {
            // The machine had the container's id.
            (1, Some(id), Some(machine)) => drop(machine.insert("id".into(), id)),
            (2, ..) => *machine = plan::of_fields(machine),
            _ => {}
        }
    }
}

/// A record of this release or an earlier one.
pub(super) fn parse_record<T: Versioned>(mut record: Value) -> Result<T, Problem> {
    let newest = u64::from(T::VERSION);
    match record.get("version").and_then(Value::as_u64) {
        Some(version @ 1..) if version <= newest => {
            (version..newest).for_each(|from| T::upgrade(&mut record, from));
            record["version"] = newest.into();
        }
        Some(0) | None => return Err(Problem::Other("it has no version".into())),
        Some(found) => return Err(Problem::Newer { found: found.to_string(), known: newest.to_string() }),
    }
    serde_json::from_value(record).map_err(|error| Problem::Other(error.to_string()))
}

// === impl Seen ===

impl Seen {
    /// Shows what is so after a change, and tells those who listen.
    pub(super) fn take(&mut self, change: &Change) {
        match &change.view {
            View::Sandbox(sandbox) => {
                let before = self.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
                self.feed.tell(Record::Sandbox { before, now: Some(sandbox.clone()) });
            }
            View::NoSandbox(id) => {
                let before = self.sandboxes.remove(id);
                self.feed.tell(Record::Sandbox { before, now: None });
            }
            View::Container(container) => {
                let before = self.containers.insert(container.id, container.clone());
                self.feed.tell(Record::Container { before, now: Some(container.clone()) });
            }
            View::NoContainer(id) => {
                let before = self.containers.remove(id);
                self.feed.tell(Record::Container { before, now: None });
            }
            View::Nothing => {}
            View::Fact => {
                let value = change.value.clone().unwrap_or_default();
                self.facts.insert(change.key.name.clone(), value);
            }
        }
    }

    pub(super) fn insert_sandbox(&mut self, sandbox: Sandbox) {
        self.sandboxes.insert(sandbox.id.clone(), Arc::new(sandbox));
    }

    pub(super) fn insert_container(&mut self, container: Container) {
        self.containers.insert(container.id, Arc::new(container));
    }

    /// The record of this key, if it cannot be read.
    pub(super) fn not_ours(&self, key: &Key) -> Option<&Unread> {
        self.unread.iter().find(|unread| unread.is(key))
    }

    /// All that is shown, as the changes that would make it.
    pub(super) fn as_changes(&self) -> Vec<Change> {
        let sandboxes = self.sandboxes.values().map(|sandbox| Change::sandbox(sandbox.clone()));
        let containers = self.containers.values().map(|container| Change::container(container.clone()));
        let facts = self.facts.iter().map(|(name, value)| {
            Ok(Change { key: Table::Facts.key(name), value: Some(value.clone()), view: View::Fact })
        });
        // They were encoded when they were put.
        sandboxes.chain(containers).chain(facts).filter_map(Result::ok).collect()
    }
}

// === impl Unread ===

impl Unread {
    pub(super) fn new(table: Table, key: String, problem: &Problem, line: Option<String>) -> Self {
        let newer = matches!(problem, Problem::Newer { .. });
        Self { table: table.name(), key, problem: problem.to_string(), line, newer }
    }

    /// Its table and its key, for people.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.table, self.key)
    }

    pub(super) fn is(&self, key: &Key) -> bool {
        self.table == key.table.name() && self.key == key.name
    }
}
