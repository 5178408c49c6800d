//! Chooses the version of the CNI specification for a network's plugins. Called by [`super::Cni`] before each command.
//!
//! A command after an ADD uses the version of that ADD. Otherwise, if the configuration names one version, that is it:
//! plugins would refuse any other. If it names several (`cniVersions`, 1.1.0), the runtime asks the plugins, and takes
//! the newest that it and all of them speak. It keeps a plugin's answer for as long as the plugin's file is the same.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::version::SpecVersion;

/// What plugins answered to VERSION, by their executables.
#[derive(Debug, Default)]
pub(super) struct VersionCache(Mutex<HashMap<PathBuf, (Stamp, Vec<SpecVersion>)>>);

/// What changes when an executable is replaced or written to: device, inode, length, and change of content in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    file: (u64, u64),
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let changed = (meta.mtime(), meta.mtime_nsec());
        Ok(Self { file: (meta.dev(), meta.ino()), len: meta.len(), changed })
    }
}

impl VersionCache {
    /// The answer of the executable, if it gave one since it had the stamp.
    pub(super) fn get(&self, path: &Path, stamp: Stamp) -> Option<Vec<SpecVersion>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(path).filter(|(then, _)| *then == stamp).map(|(_, versions)| versions.clone())
    }

    /// Takes note of an answer. The stamp is that of before the question.
    pub(super) fn note(&self, path: PathBuf, stamp: Stamp, versions: Vec<SpecVersion>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, (stamp, versions));
    }
}

/// The versions in a plugin's answer to VERSION that this runtime speaks too; `None` if it is no such answer.
pub(super) fn spoken_in(answer: &Value) -> Option<Vec<SpecVersion>> {
    let listed = answer.get("supportedVersions")?.as_array()?;
    Some(listed.iter().filter_map(|version| SpecVersion::parse(version.as_str()?)).collect())
}

/// The newest of `choice` that all of `spoken` hold.
pub(super) fn newest_common(choice: &[SpecVersion], spoken: &[Vec<SpecVersion>]) -> Option<SpecVersion> {
    choice.iter().copied().filter(|version| spoken.iter().all(|versions| versions.contains(version))).max()
}

#[cfg(test)]
mod tests;
