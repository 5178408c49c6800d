//! Allocations: a file for each VF that a container has, with all that is needed to put the VF back.
//!
//! Called by [`super`]. A file is written before anything of its VF is changed, and removed when everything is as it
//! was. So wherever a plugin was killed, the file is there, and DEL, GC or the next ADD go by it.
//!
//! Invariant: whoever writes or removes the file of a VF holds the VF's lock.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sriov::claim::Saved;
use sriov::settings::{Kind, Wanted};
use sriov::{Mac, PciAddr};

use super::failure::{Code, Failure};
use super::lock::{self, Lock};
use crate::durable::{self, Existing, Keep};

/// Version of the files.
const VERSION: u32 = 1;

/// Who has a VF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owner {
    /// Network, by its name.
    pub(super) network: String,
    /// `CNI_CONTAINERID`.
    pub(super) container: String,
    /// `CNI_IFNAME`.
    pub(super) ifname: String,
    /// `CNI_NETNS`.
    pub(super) netns: String,
    /// Namespace and name of the pod, if they were told.
    pub(super) pod: Option<String>,
}

/// A VF that a container has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Allocation {
    pub(super) version: Version,
    /// The boot of the node in which it was made.
    pub(super) boot: String,
    pub(super) owner: Owner,
    pub(super) vf: PciAddr,
    pub(super) pf: PciAddr,
    /// The VF's number there.
    pub(super) number: u32,
    /// What tells the VF from a later one at its address.
    pub(super) incarnation: u64,
    /// The driver that it has.
    pub(super) driver: String,
    /// What it was like; with a netdev unless it is on vfio-pci.
    pub(super) saved: Saved,
    /// What its PF shall lay down for it.
    pub(super) wanted: Wanted,
    /// From the end of the set-up on.
    pub(super) made: Option<Made>,
}

/// What a VF is like when it is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Made {
    /// Its address; `None` if nobody gave it one.
    pub(super) mac: Option<Mac>,
    /// Its MTU, if it is known.
    pub(super) mtu: Option<u32>,
    /// Settings that nobody asked for and its PF's driver does not have.
    pub(super) unsupported: Vec<Kind>,
}

/// The version of a file that this release writes; no other is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub(super) struct Version;

#[derive(Debug, thiserror::Error)]
#[error("its version is {theirs}, this program knows {VERSION}; install the newer release")]
pub(super) struct VersionError {
    theirs: u32,
}

/// A VF that has a file, and what that says.
pub(super) type Found = (PciAddr, Result<Allocation, Failure>);

/// The directory of allocations.
#[derive(Debug, Clone)]
pub(super) struct Store {
    dir: PathBuf,
    patience: Duration,
}

// === impl Owner ===

impl Owner {
    /// Whether it is this attachment.
    pub(super) fn is(&self, container: &str, ifname: &str) -> bool {
        (self.container.as_str(), self.ifname.as_str()) == (container, ifname)
    }

    /// In words.
    pub(super) fn told(&self) -> String {
        match &self.pod {
            Some(pod) => format!("pod `{pod}` (`{}`)", self.ifname),
            None => format!("container `{}` (`{}`)", self.container, self.ifname),
        }
    }
}

// === impl Store ===

impl Store {
    /// The one in `dir`, which need not be there.
    pub(super) fn new(dir: &Path, patience: Duration) -> Self {
        Self { dir: dir.to_owned(), patience }
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// If that fails.
    pub(super) fn prepare(&self) -> Result<(), Failure> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(Failure::because(Code::Io, format!("failed to make the directory `{}`", self.dir.display())))
    }

    /// See [`lock::wait`]. Makes the directory, as this comes first.
    pub(super) fn lock(&self, device: PciAddr) -> Result<Lock, Failure> {
        self.prepare()?;
        lock::wait(&self.dir, device, self.patience)
    }

    /// See [`lock::attempt`].
    pub(super) fn try_lock(&self, device: PciAddr) -> Result<Option<Lock>, Failure> {
        lock::attempt(&self.dir, device)
    }

    /// The allocation of `vf`, if it has one.
    ///
    /// # Errors
    /// If there is a file and it cannot be read: that is not none.
    pub(super) fn read(&self, vf: PciAddr) -> Result<Option<Allocation>, Failure> {
        let path = self.dir.join(name(vf));
        let text =
            || format!("allocation `{}` cannot be read; put the VF back by hand and remove the file", path.display());
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::because(Code::Io, text())(error)),
        };
        let allocation: Allocation = serde_json::from_slice(&bytes).map_err(Failure::because(Code::Io, text()))?;
        if allocation.vf == vf { Ok(Some(allocation)) } else { Err(Failure::new(Code::Io, text())) }
    }

    /// Every allocation, or why it cannot be read, in the order of the VFs.
    ///
    /// # Errors
    /// If the directory is there and cannot be read.
    pub(super) fn all(&self) -> Result<Vec<Found>, Failure> {
        let failed = || format!("failed to list `{}`", self.dir.display());
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Failure::because(Code::Io, failed())(error)),
        };
        let mut vfs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Failure::because(Code::Io, failed()))?;
            // Locks and temporary files have other names.
            vfs.extend(entry.file_name().to_str().and_then(|name| name.strip_suffix(".json")?.parse::<PciAddr>().ok()));
        }
        vfs.sort_unstable();
        // One that went meanwhile is none.
        Ok(vfs.into_iter().filter_map(|vf| Some((vf, self.read(vf).transpose()?))).collect())
    }

    /// Writes a first allocation.
    ///
    /// # Errors
    /// If there is one, or it cannot be written.
    pub(super) fn create(&self, allocation: &Allocation) -> Result<(), Failure> {
        self.write(allocation, Existing::Keep)
    }

    /// Replaces an allocation.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn replace(&self, allocation: &Allocation) -> Result<(), Failure> {
        self.write(allocation, Existing::Replace)
    }

    /// Removes an allocation; fine if there is none.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&self, vf: PciAddr) -> Result<(), Failure> {
        durable::remove(&self.dir, &name(vf))
            .map_err(Failure::because(Code::Io, format!("failed to forget that `{vf}` was allocated")))
    }

    fn write(&self, allocation: &Allocation, existing: Existing) -> Result<(), Failure> {
        let failed = || format!("failed to note that `{}` is allocated", allocation.vf);
        let bytes = serde_json::to_vec_pretty(allocation).map_err(Failure::because(Code::Io, failed()))?;
        let name = name(allocation.vf);
        durable::write(&self.dir, &name, &bytes, existing, Keep::ForGood)
            .map_err(Failure::because(Code::Io, failed()))?;
        let flushed = durable::flush(&self.dir, &name);
        if flushed.is_err() && existing == Existing::Keep {
            // Nothing is done by it, so nothing may be noted. What counts is why.
            let _ = durable::remove(&self.dir, &name);
        }
        flushed.map_err(Failure::because(Code::Io, failed()))
    }
}

fn name(vf: PciAddr) -> String {
    format!("{vf}.json")
}

// === impl Version ===

impl TryFrom<u32> for Version {
    type Error = VersionError;

    fn try_from(theirs: u32) -> Result<Self, Self::Error> {
        if theirs == VERSION { Ok(Self) } else { Err(VersionError { theirs }) }
    }
}

impl From<Version> for u32 {
    fn from(_: Version) -> Self {
        VERSION
    }
}

#[cfg(test)]
mod tests;
