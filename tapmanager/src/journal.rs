//! What the daemon must remember about each pod to undo it: one JSON file per pod in `<state_dir>/pods`.
//!
//! Called by the pods' actors, one write before a pod is touched (intent) and one after (result), and once at the
//! start. An actor is the only writer of its pod's file.
//!
//! - A file is replaced as a whole ([`durable`]), so it is never torn by us.
//! - A file that does not parse, names another pod, or comes from a newer release is never touched: it is reported,
//!   and its pod cannot be attached until somebody has looked at it.
//! - The directory is read once; lists come from memory.
//!
//! All functions block on the disk: call them off the reactor.

pub(crate) mod durable;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use proto::tap::{Attach, PodId, PodNet, PodPhase};
use serde::{Deserialize, Serialize};

use crate::cni::NetworkList;
use durable::{DurableError, Existing};

/// Version of the files. Any change of meaning raises it.
const VERSION: u32 = 1;
/// Longest file that is read. Ours have some kilobytes; a plugin's result may have some more.
const MAX_FILE: u64 = 4 << 20;
const SUFFIX: &str = ".json";

/// One pod, as written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: u32,
    /// How far it was when this was written.
    pub(crate) phase: PodPhase,
    /// What was asked for.
    pub(crate) request: Attach,
    /// File of the pod's namespace. It is ours from the intent on: it did not exist before.
    pub(crate) netns: PathBuf,
    /// The network configuration of ADD, because DEL has to use the same.
    pub(crate) network: NetworkList,
    /// The plugins' final result, verbatim, for DEL.
    pub(crate) result: Option<serde_json::Value>,
    /// What the pod was given.
    pub(crate) net: Option<PodNet>,
    /// How many times in a row DEL failed for want of a plugin.
    pub(crate) plugin_missing: u32,
}

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

impl Record {
    /// The intent to attach `request`'s pod.
    pub(crate) const fn intent(request: Attach, netns: PathBuf, network: NetworkList) -> Self {
        Self {
            version: VERSION,
            phase: PodPhase::Attaching,
            request,
            netns,
            network,
            result: None,
            net: None,
            plugin_missing: 0,
        }
    }

    /// The pod.
    pub(crate) const fn pod(&self) -> &PodId {
        &self.request.pod
    }
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

    /// Reads every file.
    pub(crate) fn load(&self) -> Result<Loaded, JournalError> {
        let failed = |cause| JournalError::Open { path: self.dir.clone(), cause };
        let mut loaded = Loaded::default();
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        for path in paths {
            match read(&path) {
                Ok(Found::Record(record)) => {
                    loaded.records.insert(record.pod().clone(), *record);
                }
                Ok(Found::Temp) => {}
                Err(cause) => loaded.unreadable.push(Unreadable { path, cause }),
            }
        }
        Ok(loaded)
    }

    /// Removes what a crash in the middle of a write left: files that bear exactly the name that we give them.
    pub(crate) fn sweep(&self) -> Result<(), JournalError> {
        let failed = |cause| JournalError::Open { path: self.dir.clone(), cause };
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(name) = name.to_str().filter(|name| is_temp(name)) {
                durable::remove(&self.dir, name)?;
            }
        }
        Ok(())
    }

    /// Writes the first record of a pod. A file of that pod must not exist.
    pub(crate) fn create(&self, record: &Record) -> Result<(), JournalError> {
        self.write(record, Existing::Keep)
    }

    /// Writes a later record of a pod.
    pub(crate) fn replace(&self, record: &Record) -> Result<(), JournalError> {
        self.write(record, Existing::Replace)
    }

    /// Forgets a pod; fine if it is unknown.
    pub(crate) fn remove(&self, pod: &PodId) -> Result<(), JournalError> {
        Ok(durable::remove(&self.dir, &file_name(pod))?)
    }

    fn write(&self, record: &Record, existing: Existing) -> Result<(), JournalError> {
        let pod = record.pod();
        let bytes =
            serde_json::to_vec_pretty(record).map_err(|cause| JournalError::Encode { pod: pod.clone(), cause })?;
        durable::write(&self.dir, &file_name(pod), &bytes, existing).map_err(|error| {
            if error.is_occupied() { JournalError::Occupied { pod: pod.clone() } } else { error.into() }
        })
    }
}

enum Found {
    Record(Box<Record>),
    /// Not yet in place when we were killed: what it was to replace still holds.
    Temp,
}

fn file_name(pod: &PodId) -> String {
    format!("{}{SUFFIX}", pod.as_str())
}

fn pod_of(name: &str) -> Option<PodId> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

fn is_temp(name: &str) -> bool {
    durable::name_of_temp(name).and_then(pod_of).is_some()
}

fn read(path: &Path) -> Result<Found, UnreadableCause> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(UnreadableCause::Name)?;
    if is_temp(name) {
        return Ok(Found::Temp);
    }
    let pod = pod_of(name).ok_or(UnreadableCause::Name)?;
    let bytes = read_bounded(path)?;
    let VersionOnly { version } = serde_json::from_slice(&bytes)?;
    if version != VERSION {
        return Err(UnreadableCause::Version { theirs: version });
    }
    let record: Record = serde_json::from_slice(&bytes)?;
    if *record.pod() != pod {
        return Err(UnreadableCause::OtherPod { pod: record.request.pod });
    }
    if record.phase == PodPhase::Attached && record.net.is_none() {
        return Err(UnreadableCause::NoNetwork);
    }
    Ok(Found::Record(Box::new(record)))
}

/// Neither a link nor a fifo in the directory may lead us away or hold us up.
fn read_bounded(path: &Path) -> Result<Vec<u8>, UnreadableCause> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file: File = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE { Err(UnreadableCause::TooLong) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
