//! Claims of VFs on disk: one file for each VF in `<state_dir>/claims`, such as `0000:3b:02.1.json`.
//!
//! Called by the claims of VFs, by the port [`Notes`], and read as a whole at the start.
//!
//! - A note outlives a power failure once it is written ([`durable`]): the VF is changed right afterwards.
//! - A file is named by its VF alone, as its address is displayed. No part of a path comes from elsewhere.
//! - A file that does not parse, names another VF or comes from a newer release is reported and never changed: its VF
//!   cannot be claimed until a person has looked at it.
//! - Writers see to it that there is one at a time for each VF.
//!
//! All functions block on the disk: call them off the reactor.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use common::Reason;
use sriov::PciAddr;
use sriov::claim::{Cause, Claim, Notes};

use crate::durable::{self, Existing, Keep};

/// Longest file that is read. A claim has some kilobytes, most of them addresses and routes.
const MAX_FILE: u64 = 1 << 20;
const SUFFIX: &str = ".json";

/// The directory of notes.
#[derive(Debug, Clone)]
pub(crate) struct ClaimNotes {
    dir: PathBuf,
    /// The VF whose note was read or written last by this value, and so is one that is understood. A clone of what nothing
    /// was read by knows of none.
    understood: Option<PciAddr>,
}

/// A file that is left alone.
#[derive(Debug, thiserror::Error)]
#[error("note `{}` of a claim is not understood and left alone; if no guest has the VF, put it back and remove the file", path.display())]
pub(crate) struct UnreadableNote {
    /// The file.
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
    #[error("it is no note by its name")]
    Name,
    #[error("it has more than {MAX_FILE} bytes")]
    TooLong,
    #[error("it is about `{vf}`")]
    OtherVf { vf: PciAddr },
}

// === impl ClaimNotes ===

impl ClaimNotes {
    /// The notes in `state_dir`, whose directory is made if there is none. Half-written files that a crash left are removed.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, Reason> {
        let notes = Self::peek(state_dir);
        let failed = |cause: io::Error| notes.unusable(cause);
        DirBuilder::new().recursive(true).mode(0o700).create(&notes.dir).map_err(failed)?;
        for name in notes.names()?.iter().filter(|name| is_temp(name)) {
            durable::remove(&notes.dir, name)
                .map_err(|cause| Reason::new("failed to remove a note that was never finished").with(cause))?;
        }
        Ok(notes)
    }

    /// The notes in `state_dir`, to be looked at only.
    pub(crate) fn peek(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("claims"), understood: None }
    }

    /// Every claim that is noted, in the order of VFs, and every file that is not understood.
    ///
    /// # Errors
    /// If the directory cannot be read. One that is not there holds nothing.
    pub(crate) fn all(&self) -> Result<(Vec<Claim>, Vec<UnreadableNote>), Reason> {
        let (mut claims, mut unreadable) = (Vec::new(), Vec::new());
        for name in self.names()? {
            let path = self.dir.join(&name);
            let read = match vf_of(&name) {
                // Not in place yet: what it was to replace holds.
                None if is_temp(&name) => continue,
                None => Err(UnreadableCause::Name),
                Some(vf) => read(&path, vf),
            };
            match read {
                Ok(claim) => claims.extend(claim),
                Err(cause) => unreadable.push(UnreadableNote { path, cause }),
            }
        }
        claims.sort_by_key(Claim::vf);
        Ok((claims, unreadable))
    }

    /// Forgets the claim of a VF; fine if there is none.
    ///
    /// # Errors
    /// If the note is not understood, which is never removed here, or the disk fails.
    pub(crate) fn remove(&self, vf: PciAddr) -> Result<(), Reason> {
        let failed = || Reason::new(format!("failed to remove the note of `{vf}`"));
        self.read(vf).map_err(|cause| failed().with(cause))?;
        durable::remove(&self.dir, &file_name(vf)).map_err(|cause| failed().with(cause))
    }

    fn read(&self, vf: PciAddr) -> Result<Option<Claim>, UnreadableNote> {
        let path = self.dir.join(file_name(vf));
        read(&path, vf).map_err(|cause| UnreadableNote { path, cause })
    }

    fn names(&self) -> Result<Vec<String>, Reason> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|cause| self.unusable(cause))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(|cause| self.unusable(cause))?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn unusable(&self, cause: io::Error) -> Reason {
        Reason::new(format!("failed to open the directory `{}` of claims", self.dir.display())).with(cause)
    }
}

impl Notes for ClaimNotes {
    fn noted(&mut self, vf: PciAddr) -> Result<Option<Claim>, Cause> {
        self.understood = None;
        let noted = self.read(vf)?;
        self.understood = Some(vf);
        Ok(noted)
    }

    fn flush(&mut self, claim: &Claim) -> Result<(), Cause> {
        let vf = claim.vf();
        // A note that nobody understands is not overwritten, either.
        if self.understood != Some(vf) {
            self.noted(vf)?;
        }
        let (name, bytes) = (file_name(vf), serde_json::to_vec_pretty(claim)?);
        durable::write(&self.dir, &name, &bytes, Existing::Replace, Keep::ForGood)?;
        // Its bytes are on the disk already.
        Ok(durable::flush_names(&self.dir)?)
    }
}

fn file_name(vf: PciAddr) -> String {
    format!("{vf}{SUFFIX}")
}

/// The VF that a file is about, by its name. There is one name for each.
fn vf_of(name: &str) -> Option<PciAddr> {
    let vf = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (file_name(vf) == name).then_some(vf)
}

fn is_temp(name: &str) -> bool {
    durable::name_of_temp(name).and_then(vf_of).is_some()
}

/// The claim in a file; `None` if there is no file.
fn read(path: &Path, vf: PciAddr) -> Result<Option<Claim>, UnreadableCause> {
    let bytes = match read_bounded(path) {
        Err(UnreadableCause::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let claim: Claim = serde_json::from_slice(&bytes)?;
    if claim.vf() == vf { Ok(Some(claim)) } else { Err(UnreadableCause::OtherVf { vf: claim.vf() }) }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, UnreadableCause> {
    durable::read(path, MAX_FILE)?.ok_or(UnreadableCause::TooLong)
}

#[cfg(test)]
mod tests;
