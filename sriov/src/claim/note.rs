//! What is noted of a claim, and the port for the notes.
//!
//! Called by the other modules of [`super`]; `tapmanager`'s journal implements [`Notes`] and
//! keeps them as JSON. A change of meaning raises the
//! version; a field or a word that this release does not know makes a note unreadable, and nothing is done by it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::world::{Cause, Netdev};
use crate::address::PciAddr;
use crate::device::{Function, Seen};
use crate::policy::Arrival;
use crate::settings::{Kind, VfSettings, Wanted};

/// Version of the notes.
pub const FORMAT: u32 = 1;
const VERSION: u32 = FORMAT;

/// How far a claim is. See [`super`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It was looked at and may be taken.
    Observed,
    /// What it was like is known.
    Saved,
    /// It has the guest's settings.
    Taken,
    /// vfio-pci has it.
    Bound,
    /// The guest has it, or may have.
    InUse,
    /// It is being given back.
    Rebinding,
    /// It is as it was.
    Restored,
}

/// A VF that is taken for a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub(super) version: Version,
    pub(super) step: Step,
    /// The boot of the node in which it was taken.
    pub(super) boot: String,
    /// Whose it is, in the caller's words.
    pub(super) owner: String,
    pub(super) vf: PciAddr,
    pub(super) pf: PciAddr,
    /// The VF's number there.
    pub(super) number: u32,
    /// What tells the VF from a later one at its address.
    pub(super) incarnation: u64,
    pub(super) arrival: Arrival,
    /// All VFs that the same guest gets.
    pub(super) together: BTreeSet<PciAddr>,
    /// The IOMMU group as it was.
    pub(super) group: u32,
    /// The driver that it had.
    pub(super) driver: String,
    /// The override that it had.
    pub(super) driver_override: Option<String>,
    pub(super) wanted: Wanted,
    /// From [`Step::Saved`] on.
    pub(super) saved: Option<Saved>,
    /// Wanted settings that the driver has not, none of them asked for.
    pub(super) unsupported: Vec<Kind>,
    /// Whether it has to be reset before anything else uses it.
    pub(super) reset: bool,
    /// From [`Step::Restored`] on.
    pub(super) outcome: Option<Outcome>,
}

/// What a VF was like, as far as a claim changes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// What its PF laid down for it.
    pub settings: VfSettings,
    /// Its netdev, if it came with one.
    pub netdev: Option<Netdev>,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Where the VF is.
    pub end: End,
    /// It should have been reset, and the kernel knows no way to.
    pub unreset: bool,
}

/// Where a VF is after its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It was never changed.
    Untouched,
    /// Where it was, as it was.
    AsBefore,
    /// Its netdev is in the host's namespace, down and under the name that the kernel gave it, as the pod's
    /// namespace is gone. All else is as it was.
    OnHost,
    /// Nowhere: the PF's VFs were taken away (`sriov_numvfs`), or the node was booted. If there is one at its address, it
    /// is another one and was left alone.
    Vanished,
}

/// Where claims are noted, one note for each VF.
pub trait Notes {
    /// What is noted of this VF; `None` if nothing is.
    ///
    /// # Errors
    /// If there is a note that cannot be read: that is not none.
    fn noted(&mut self, vf: PciAddr) -> Result<Option<Claim>, Cause>;

    /// Replaces what is noted of the claim's VF. It outlives a power failure when this returns.
    ///
    /// # Errors
    /// If it may not. Either note may be found afterwards, but a whole one.
    fn flush(&mut self, claim: &Claim) -> Result<(), Cause>;
}

/// The version of a note that this release writes; no other is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub(super) struct Version;

#[derive(Debug, thiserror::Error)]
#[error("the note's version is {theirs}, this program knows {VERSION}; install the newer release")]
pub(super) struct VersionError {
    theirs: u32,
}

// === impl Claim ===

impl Claim {
    /// How far it is.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// The VF.
    #[must_use]
    pub const fn vf(&self) -> PciAddr {
        self.vf
    }

    /// Its PF and its number there.
    #[must_use]
    pub const fn pf(&self) -> (PciAddr, u32) {
        (self.pf, self.number)
    }

    /// Whose it is, in the words of the request.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// How the VF came.
    #[must_use]
    pub const fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// What the VF was like; `None` before [`Step::Saved`].
    #[must_use]
    pub const fn saved(&self) -> Option<&Saved> {
        self.saved.as_ref()
    }

    /// What the VF shall have for the guest.
    #[must_use]
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Settings that a guest's VF should have and does not, since its PF's driver cannot; known from [`Step::Taken`] on.
    #[must_use]
    pub fn unsupported(&self) -> &[Kind] {
        &self.unsupported
    }

    /// How it ended; `None` before [`Step::Restored`].
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Whether `seen` at the VF's address is the VF that was claimed.
    pub(super) fn is_of(&self, seen: &Seen) -> bool {
        let function = Function::Virtual { pf: self.pf, number: self.number };
        seen.incarnation == self.incarnation && seen.function == function
    }
}

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
