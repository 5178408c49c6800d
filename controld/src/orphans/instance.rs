//! Whose things are ours, and whether all of them are on record.
//!
//! Machines, disks and networks carry the mark of the controld that made them, its instance. A record is written before its
//! thing is made and goes after the thing is gone, so in a normal life nothing of ours is without one. If something is,
//! records were lost: the database was moved away, put back from a copy, or cannot be read in full. Then the thing's owner
//! is not known, and nothing but a person's word removes it.
//!
//! To notice, each start has a number, the epoch. It is kept twice: as a fact of the database, and in the file `instance`
//! beside it. It is raised in the database first. So a database that is behind the file is not the one that the last
//! life worked with; one that is ahead by one is what a crash between the two leaves.
//!
//! A life is long, and both may be put back from copies. So the folders of disks tell too: in each is the epoch, and the number
//! of the database's last transaction, when a container was given it (`owner.json`). What has a larger one than the
//! database is younger than the database.

use std::path::{Path, PathBuf};

use common::Chain;
use common::small_file::{self, SmallFileError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::{Store, StoreError};
use crate::volumes::Owner;

/// Version of the file.
pub const FORMAT: u32 = 1;
const VERSION: u32 = FORMAT;
/// Its name, beside the database.
const FILE: &str = "instance";
const INSTANCE: &str = "instance";
const EPOCH: &str = "epoch";
const PUT_BACK: &str = "the database is older than disks of pods: a copy was put back";

/// Who this controld is, and how far its records can be relied on.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    note: Note,
    /// What things carry. Of a start that could not be noted they carry the number of the one before: a larger one than the
    /// database's would look like a copy that was put back.
    carried: u64,
    /// Why records may be missing.
    doubt: Option<String>,
    /// The file can be written: what is there is ours, or nothing.
    writable: bool,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: u32,
    instance: Uuid,
    epoch: u64,
    /// What was made in this epoch or later is on record.
    records_since: u64,
    /// Since records were lost, all that was without one has been marked.
    settled: bool,
}

/// What the database says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    instance: Option<Uuid>,
    epoch: Option<u64>,
    commits: u64,
}

/// The largest numbers in what we have made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Made {
    epoch: u64,
    commits: u64,
}

/// Why a start could not be noted.
#[derive(Debug, thiserror::Error)]
enum InstanceError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file failed.
    #[error(transparent)]
    Note(#[from] SmallFileError),
}

// === impl Instance ===

impl Instance {
    /// Begins a new epoch of the instance whose state is in `dir`, and which has made what has these `owners`. The first start
    /// there makes the instance.
    ///
    /// # Errors
    /// When the file cannot be read, or a newer release wrote it.
    pub async fn begin(dir: &Path, store: &Store, owners: &[Owner]) -> Result<Self, SmallFileError> {
        let path = dir.join(FILE);
        let known = Known { instance: store.fact(INSTANCE), epoch: store.fact(EPOCH), commits: store.commits() };
        let (noted, unread) = match small_file::read::<Note>(&path, VERSION) {
            Ok(noted) => (noted, None),
            Err(error @ (SmallFileError::Io(_) | SmallFileError::Newer { .. })) => return Err(error),
            Err(error) => (None, Some(Chain(&error).to_string())),
        };
        let made = Made::by(noted.as_ref().map(|noted| noted.instance).or(known.instance), owners);
        let (note, doubt) = next(noted, known, made);
        // Whatever database there is, what it comes to have from now on is younger than all that was made.
        store.count_on_from(made.commits);
        let (carried, writable) = (note.epoch, unread.is_none());
        let mut begun = Self { path, note, carried, writable, doubt: unread.or(doubt.map(str::to_owned)) };
        // A full disk is no reason to stay away from machines that run. The next start finds what this one found.
        if let Err(error) = begun.write(store).await {
            let why = Chain(&error).to_string();
            tracing::error!(error = why, "this start is not noted; nothing that is on no record is removed");
            begun.doubt.get_or_insert(format!("this start could not be noted: {why}"));
            begun.carried = known.epoch.unwrap_or(0);
        }
        Ok(begun)
    }

    /// The database first: see above.
    async fn write(&self, store: &Store) -> Result<(), InstanceError> {
        store.put_fact(INSTANCE, &self.note.instance).await?;
        store.put_fact(EPOCH, &self.note.epoch).await?;
        if self.writable {
            small_file::write(&self.path, &self.note)?;
        }
        Ok(())
    }

    /// The mark that our things carry.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.note.instance
    }

    /// The number of this start, which things carry too.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.carried
    }

    /// Why records may be missing; `None` if they are all there as far as can be told from here.
    #[must_use]
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// Whether a thing that was made by `instance` in `epoch`, an earlier one, would be on record if it still had an owner.
    #[must_use]
    pub fn would_be_on_record(&self, instance: Uuid, epoch: u64) -> bool {
        self.doubt.is_none()
            && instance == self.note.instance
            && (self.note.records_since..self.note.epoch).contains(&epoch)
    }

    /// One as a test wants it.
    #[cfg(test)]
    pub(crate) fn of_test(id: Uuid, records_since: u64, epoch: u64, doubt: Option<&str>) -> Self {
        let note = Note { version: VERSION, instance: id, epoch, records_since, settled: true };
        Self { path: PathBuf::new(), note, carried: epoch, doubt: doubt.map(str::to_owned), writable: false }
    }

    /// Notes that all that is without a record has been marked as such, so that the next start need not doubt.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn settle(&self) -> Result<(), SmallFileError> {
        if self.note.settled || !self.writable {
            return Ok(());
        }
        small_file::write(&self.path, &Note { settled: true, ..self.note.clone() })
    }
}

/// Whether there is a file in `dir`.
///
/// # Errors
/// When it cannot be read.
pub fn is_noted(dir: &Path) -> Result<bool, SmallFileError> {
    Ok(small_file::read::<Note>(&dir.join(FILE), VERSION)?.is_some())
}

/// What the file is to say from now on, and why records may be missing. Pure but for the id of a new instance.
fn next(noted: Option<Note>, known: Known, made: Made) -> (Note, Option<&'static str>) {
    let Some(noted) = noted else {
        let epoch = known.epoch.unwrap_or(0).max(made.epoch) + 1;
        let instance = known.instance.unwrap_or_else(Uuid::new_v4);
        // The first release kept no epoch: its database comes without one, and rightly so.
        let doubt = match known.epoch {
            Some(_lost) => Some("the file `instance` is missing beside the database"),
            None => made.is_beyond(known).then_some(PUT_BACK),
        };
        let note = Note { version: VERSION, instance, epoch, records_since: epoch, settled: doubt.is_none() };
        return (note, doubt);
    };
    let doubt = match (known.instance, known.epoch) {
        (None, _) | (_, None) => Some("the database is new: the one of the last start is gone"),
        (Some(other), _) if other != noted.instance => Some("the database is of another instance"),
        (_, Some(epoch)) if epoch < noted.epoch => {
            Some("the database is older than the last start: a copy was put back")
        }
        (_, Some(epoch)) if epoch > noted.epoch + 1 => Some("the file `instance` is older than the database"),
        _ if made.is_beyond(known) => Some(PUT_BACK),
        _ if !noted.settled => Some("records were lost before the last start"),
        _ => None,
    };
    // The epoch after the file's is free, also if a crash left it in the database: nothing was made in it.
    let last = if doubt.is_none() { noted.epoch } else { noted.epoch.max(known.epoch.unwrap_or(0)).max(made.epoch) };
    let epoch = last + 1;
    let records_since = if doubt.is_none() { noted.records_since } else { epoch };
    (Note { epoch, records_since, settled: doubt.is_none(), ..noted }, doubt)
}

impl Made {
    /// Of what has these owners, what `instance` has made.
    fn by(instance: Option<Uuid>, owners: &[Owner]) -> Self {
        let ours = || owners.iter().filter(|owner| Some(owner.instance) == instance);
        Self {
            epoch: ours().map(|owner| owner.epoch).max().unwrap_or(0),
            commits: ours().map(|owner| owner.commits).max().unwrap_or(0),
        }
    }

    /// Whether that is younger than the database.
    fn is_beyond(self, known: Known) -> bool {
        self.epoch > known.epoch.unwrap_or(0) || self.commits > known.commits
    }
}

#[cfg(test)]
mod tests;
