//! What the daemon must remember about each pod to undo it: one JSON file per pod in `<state_dir>/pods`.
//!
//! Called by the pods' actors: one write before a pod is touched (intent), one after each network that was added, one
//! at the end (result) and one when it is being taken away; and once at the start. An actor is the only writer of its
//! pod's files.
//!
//! - The daemon replaces a file as a whole ([`durable`]), so a crash of the daemon leaves none half written.
//! - The intent outlives a power failure, which takes links and namespaces with it: it names all that has to be undone
//!   then. What is written later only has to outlive the daemon: it goes unflushed to the end of a note, `POD.note`,
//!   beside `POD.json`. Each line of it is a whole record, and the last whole one holds; what a power failure tore is
//!   as good as not there.
//! - Records of earlier releases are read as well. [`first`] reads those of the first release. The second release
//!   replaced the one record of a note each time. A pod that an earlier release attached keeps notes in that release's
//!   form, so that a downgrade still finds its pods. For the same reason a record has the oldest version that can say
//!   what it says.
//! - The daemon does not start on files of a newer release.
//! - It never changes a file that does not parse or names another pod. It reports the file, and the pod cannot be attached
//!   until a person has looked at it. The same goes for a note that cannot be
//!   read.
//! - The directory is read once; lists come from memory.
//!
//! All functions block on the disk: call them off the reactor.

mod first;
mod record;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use proto::tap::{PodId, PodPhase};
use serde::Deserialize;

use crate::durable::{self, DurableError, Existing, Keep};
use first::{FIRST, FirstRecord};
pub(crate) use record::{Attachment, FORMAT, Failing, Record};
use record::{SECOND, THIRD, VERSION};

/// A note that is longer is begun anew with its next line, in bytes: a DEL that fails is noted again and again.
const MAX_NOTE: u64 = 64 << 10;
/// Longest file that is read. Ours have some kilobytes; a plugin's result may have some more.
const MAX_FILE: u64 = 4 << 20;
const SUFFIX: &str = ".json";
const NOTE_SUFFIX: &str = ".note";

/// Records by pod.
pub(crate) type Records = BTreeMap<PodId, Record>;

/// What the directory holds.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Every pod whose file is sound.
    pub(crate) records: Records,
    /// Every other file, with the reason.
    pub(crate) unreadable: Vec<Unreadable>,
}

/// A file that is left alone.
#[derive(Debug, thiserror::Error)]
#[error("journal file `{}` is not understood and left alone", path.display())]
pub(crate) struct Unreadable {
    pub(crate) path: PathBuf,
    #[source]
    cause: UnreadableCause,
}

#[derive(Debug, thiserror::Error)]
enum UnreadableCause {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it is no journal file by its name")]
    Name,
    #[error("it has more than {MAX_FILE} bytes")]
    TooLong,
    #[error("its version is {theirs}, this program knows {VERSION}; install the newer release")]
    Version { theirs: u32 },
    #[error("it is about pod `{}`", pod.as_str())]
    OtherPod { pod: PodId },
    #[error("its pod is attached, but has no network")]
    NoNetwork,
}

impl Unreadable {
    /// Whether a newer release wrote it.
    pub(crate) const fn is_newer(&self) -> bool {
        matches!(self.cause, UnreadableCause::Version { theirs } if theirs > VERSION)
    }

    /// The pod that it is about, by its name.
    pub(crate) fn pod(&self) -> Option<PodId> {
        let name = self.path.file_name()?.to_str()?;
        pod_of(name).or_else(|| pod_of_note(name))
    }
}

impl UnreadableCause {
    /// Whether it is that there is no such file.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Why the journal does not take a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The directory cannot be used.
    #[error("failed to open journal `{}`", path.display())]
    Open {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// There is a file of the pod that no actor knows.
    #[error("journal has a file of pod `{}` that was not understood; see the log of the start", pod.as_str())]
    Occupied { pod: PodId },
    /// The record does not become JSON.
    #[error("failed to encode the record of pod `{}`", pod.as_str())]
    Encode {
        pod: PodId,
        #[source]
        cause: serde_json::Error,
    },
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DurableError),
}

/// The directory of records.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    dir: PathBuf,
}

/// Only the version, so that a newer file is called newer whatever else it holds.
#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

impl Journal {
    /// The journal in `state_dir`, whose directory is made if there is none.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, JournalError> {
        let dir = state_dir.join("pods");
        match DirBuilder::new().recursive(true).mode(0o700).create(&dir) {
            Ok(()) => Ok(Self { dir }),
            Err(cause) => Err(JournalError::Open { path: dir, cause }),
        }
    }

    /// The journal in `state_dir`, to be looked at only.
    pub(crate) fn peek(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("pods") }
    }

    /// The newest version that a release has to know to understand every file; `None` if there is no file. Of what cannot be read this
    /// is ours.
    pub(crate) fn newest(&self) -> Option<u32> {
        let is_empty = match fs::read_dir(&self.dir) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_empty {
            return None;
        }
        match self.load() {
            Ok(Loaded { records, unreadable }) if unreadable.is_empty() => {
                records.values().map(Record::version).max().or(Some(FORMAT))
            }
            _ => Some(FORMAT),
        }
    }

    /// Reads every file.
    pub(crate) fn load(&self) -> Result<Loaded, JournalError> {
        let mut loaded = Loaded::default();
        for path in self.paths()? {
            match read(&path) {
                Ok(Found::Record(record)) => match self.noted(*record) {
                    Ok(record) => drop(loaded.records.insert(record.pod().clone(), record)),
                    Err(unreadable) => loaded.unreadable.push(unreadable),
                },
                Ok(Found::Aside) => {}
                // Gone since it was listed.
                Err(cause) if cause.is_absence() => {}
                Err(cause) => loaded.unreadable.push(Unreadable { path, cause }),
            }
        }
        Ok(loaded)
    }

    /// Reads the record of one pod; `None` if there is none.
    pub(crate) fn read(&self, pod: &PodId) -> Result<Option<Record>, Unreadable> {
        let path = self.dir.join(file_name(pod));
        match read(&path) {
            Ok(Found::Record(record)) => self.noted(*record).map(Some),
            Ok(Found::Aside) => Ok(None),
            Err(cause) if cause.is_absence() => Ok(None),
            Err(cause) => Err(Unreadable { path, cause }),
        }
    }

    /// Whether there is a file of the pod, understood or not, or there may be one: only the kernel's word that there is none
    /// counts as none.
    pub(crate) fn has(&self, pod: &PodId) -> bool {
        let found = fs::symlink_metadata(self.dir.join(file_name(pod)));
        !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Removes what a crash in the middle of a write left: files that bear exactly the name that we give them, and
    /// notes that belong to no record. Returns how many.
    pub(crate) fn sweep(&self) -> Result<usize, JournalError> {
        let mut swept = 0;
        for path in self.paths()? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let stray = is_temp(name) || pod_of_note(name).is_some_and(|pod| !self.has(&pod));
            if stray {
                durable::remove(&self.dir, name)?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Writes the first record of a pod. A file of that pod must not exist. It outlives the daemon when this returns,
    /// and a power failure once [`Self::flush`] has returned.
    pub(crate) fn create(&self, record: &Record) -> Result<(), JournalError> {
        self.write(record, &file_name(record.pod()), Existing::Keep, Keep::ForThisBoot)
    }

    /// Makes the first record of a pod outlive a power failure.
    pub(crate) fn flush(&self, pod: &PodId) -> Result<(), JournalError> {
        Ok(durable::flush(&self.dir, &file_name(pod))?)
    }

    /// Writes a later record of a pod so that it outlives the daemon.
    pub(crate) fn note(&self, record: &Record) -> Result<(), JournalError> {
        let name = note_name(record.pod());
        if record.version < THIRD {
            return self.write(record, &name, Existing::Replace, Keep::ForThisBoot);
        }
        let line =
            serde_json::to_vec(record).map_err(|cause| JournalError::Encode { pod: record.pod().clone(), cause })?;
        Ok(durable::append(&self.dir, &name, &line, MAX_NOTE)?)
    }

    /// Forgets a pod; fine if it is unknown.
    pub(crate) fn remove(&self, pod: &PodId) -> Result<(), JournalError> {
        // The note first: without its file it would be nothing.
        durable::remove(&self.dir, &note_name(pod))?;
        Ok(durable::remove(&self.dir, &file_name(pod))?)
    }

    fn paths(&self) -> Result<Vec<PathBuf>, JournalError> {
        let failed = |cause| JournalError::Open { path: self.dir.clone(), cause };
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        Ok(paths)
    }

    /// What was noted of the pod since `first`, its record, was written; `first` if nothing was, or nothing whole. A note that
    /// cannot be read is not none: it may say that the pod stands.
    fn noted(&self, first: Record) -> Result<Record, Unreadable> {
        let pod = first.pod();
        let path = self.dir.join(note_name(pod));
        let note = match read_bounded(&path) {
            Ok(note) => note,
            Err(cause) if cause.is_absence() => return Ok(first),
            Err(cause) => return Err(Unreadable { path, cause }),
        };
        let last = || note.split(|byte| *byte == b'\n').rev().find_map(|line| understood(line, pod).ok());
        // As earlier releases have it: one record, on many lines.
        let noted = understood(&note, pod).ok().or_else(last);
        Ok(noted.unwrap_or(first))
    }

    fn write(&self, record: &Record, name: &str, existing: Existing, keep: Keep) -> Result<(), JournalError> {
        let pod = record.pod();
        let bytes =
            serde_json::to_vec_pretty(record).map_err(|cause| JournalError::Encode { pod: pod.clone(), cause })?;
        durable::write(&self.dir, name, &bytes, existing, keep).map_err(|error| {
            if error.is_occupied() { JournalError::Occupied { pod: pod.clone() } } else { error.into() }
        })
    }
}

enum Found {
    Record(Box<Record>),
    /// Not yet in place when we were killed, so what it was to replace still holds; or a note, which is looked at with
    /// its record.
    Aside,
}

fn file_name(pod: &PodId) -> String {
    format!("{}{SUFFIX}", pod.as_str())
}

fn note_name(pod: &PodId) -> String {
    format!("{}{NOTE_SUFFIX}", pod.as_str())
}

fn pod_of(name: &str) -> Option<PodId> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

fn pod_of_note(name: &str) -> Option<PodId> {
    name.strip_suffix(NOTE_SUFFIX)?.parse().ok()
}

fn is_temp(name: &str) -> bool {
    durable::name_of_temp(name).and_then(|name| pod_of(name).or_else(|| pod_of_note(name))).is_some()
}

fn read(path: &Path) -> Result<Found, UnreadableCause> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(UnreadableCause::Name)?;
    if is_temp(name) || pod_of_note(name).is_some() {
        return Ok(Found::Aside);
    }
    let pod = pod_of(name).ok_or(UnreadableCause::Name)?;
    understood(&read_bounded(path)?, &pod).map(|record| Found::Record(Box::new(record)))
}

fn understood(bytes: &[u8], pod: &PodId) -> Result<Record, UnreadableCause> {
    let VersionOnly { version } = serde_json::from_slice(bytes)?;
    let record: Record = match version {
        VERSION | THIRD | SECOND => serde_json::from_slice(bytes)?,
        FIRST => serde_json::from_slice::<FirstRecord>(bytes)?.into(),
        theirs => return Err(UnreadableCause::Version { theirs }),
    };
    if record.pod() != pod {
        return Err(UnreadableCause::OtherPod { pod: record.request.pod });
    }
    if record.phase == PodPhase::Attached && record.net.is_none() {
        return Err(UnreadableCause::NoNetwork);
    }
    Ok(record)
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, UnreadableCause> {
    durable::read(path, MAX_FILE)?.ok_or(UnreadableCause::TooLong)
}

#[cfg(test)]
mod tests;
