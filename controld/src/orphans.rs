//! What carries our mark and is on no record: kept, told, and removed when a person says so.
//!
//! Records are written before what they are of, and go after it (see [`crate::orphans::instance`]). So a machine, a disk or a network
//! of ours without a record means that records were lost, and whose it is, is not known. It may be a pod's that runs. It is
//! listed in `Status` and by `virtletctl orphans`, and goes by `virtletctl forget`. If the lost records come back, what is on
//! them is no orphan any more. Until then a pod on record may have a machine that is not: see
//! [`Orphans::make_room`] and [`Orphans::clear`].
//!
//! [`Orphans::sweep`] looks at what is on the disk, at the start; [`Orphans::look`] asks libvirt, after each connection;
//! [`Orphans::left_by_a_kill`] is asked when tapmanager lists its pods.

mod consoles;
mod disks;
mod forget;
pub mod instance;
mod list;
mod machines;
mod networks;
pub mod owned;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::tap::PodSummary;

use self::instance::Instance;
use crate::config::Config;
use crate::hypervisor::{Hypervisor, Marked};
use crate::images::Images;
use crate::model::PodName;
use crate::store::Store;
use crate::tap::Tap;
use crate::volumes::Volumes;

/// What kind of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrphanKind {
    /// A machine at libvirt.
    Machine,
    /// The folder of a pod's disks.
    Disk,
    /// A pod's network at tapmanager.
    Network,
    /// The console log and socket of a machine.
    Console,
    /// What keeps an image.
    Lease,
    /// A record that cannot be read.
    Record,
}

/// A thing whose owner is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// What it is.
    pub kind: OrphanKind,
    /// Tells it from others of its kind.
    pub id: String,
    /// The pod that it seems to be of, as far as is known.
    pub pod: PodName,
    /// Since when it is known to be an orphan, in seconds since the epoch; 0 if that was not written down.
    pub since: u64,
    /// Why it is kept.
    pub why: String,
    /// Bytes of the disk; 0 if it takes none to speak of.
    pub bytes: u64,
    /// A machine that runs.
    pub runs: bool,
}

/// What the service looks at.
#[derive(Debug, Clone)]
pub struct Uses {
    pub config: Arc<Config>,
    pub store: Store,
    pub hypervisor: Hypervisor,
    pub tap: Tap,
    pub images: Images,
    pub volumes: Volumes,
    pub instance: Arc<Instance>,
}

/// The service. Clones share what was seen.
#[derive(Debug, Clone)]
pub struct Orphans {
    uses: Uses,
    known: Arc<Known>,
}

/// What was seen last.
#[derive(Debug, Default)]
pub struct Known {
    seen: Mutex<Seen>,
    /// The disks have all been looked at.
    swept: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    machines: Vec<Marked>,
    /// libvirt has told them in this life.
    looked: bool,
    networks: Vec<PodSummary>,
    /// All kinds, as of the last time that somebody looked.
    listed: Vec<Orphan>,
}

// === impl Orphans ===

impl Orphans {
    #[must_use]
    pub fn new(uses: Uses) -> Self {
        Self { uses, known: Arc::default() }
    }

    /// What was seen last.
    #[must_use]
    pub fn known(&self) -> &Arc<Known> {
        &self.known
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.known.seen()
    }

    /// libvirt was asked, and all machines are on record.
    #[cfg(test)]
    pub(crate) fn found_no_machines(&self) {
        self.seen().looked = true;
    }
}

// === impl Known ===

impl Known {
    /// What there was when somebody looked last.
    #[must_use]
    pub fn last_seen(&self) -> Vec<Orphan> {
        self.seen().listed.clone()
    }

    /// How many there are of each kind, also of those that nothing is of.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::from(OrphanKind::ALL.map(|kind| (kind.as_str(), 0)));
        for orphan in &self.seen().listed {
            *counts.entry(orphan.kind.as_str()).or_default() += 1;
        }
        counts
    }

    /// A line for people if there is anything.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let seen = self.seen();
        if seen.listed.is_empty() {
            return None;
        }
        let mut counts = BTreeMap::<OrphanKind, usize>::new();
        for orphan in &seen.listed {
            *counts.entry(orphan.kind).or_default() += 1;
        }
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
        Some(format!("things of unknown owner are kept ({}); `virtletctl orphans` lists them", counts.join(", ")))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl OrphanKind ===

impl OrphanKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 6] =
        [Self::Machine, Self::Disk, Self::Network, Self::Console, Self::Lease, Self::Record];

    /// Its name in commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Console => "console",
            Self::Lease => "lease",
            Self::Record => "record",
        }
    }
}

impl fmt::Display for OrphanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OrphanKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted() {
        let orphans = Known::default();
        assert_eq!(orphans.counts().values().sum::<u64>(), 0);
        let listed = [OrphanKind::Disk, OrphanKind::Machine, OrphanKind::Disk];
        orphans.seen().listed = listed.map(|kind| Orphan::new(kind, "a".into())).into();
        let counts = [("machine", 1), ("disk", 2), ("network", 0), ("console", 0), ("lease", 0), ("record", 0)];
        assert_eq!(orphans.counts(), counts.into());
    }
}
