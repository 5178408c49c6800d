//! What one download has to do. Several orders may share it.

use std::sync::Arc;

use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::digest::ImageId;
use vmimage::inspect::{DiskFormat, Expected, Policy};

use super::find::Found;
use super::login::fingerprint;
use super::order::Order;
use super::origin::{giver, place};
use crate::sources::net::{Resume, Validators};
use crate::sources::provider::{Choice, Promise, Provider, RemoteImage};
use crate::storage::config::Layers;
use crate::storage::content::{Giver, Part, PartialFile};

/// What is to be downloaded.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) remote: RemoteImage,
    pub(super) giver: Giver,
    /// Those of the source, and those of the name and its rule.
    pub(super) promises: Vec<Promise>,
    /// What is here of the same source, and what it was recognised by.
    pub(super) known: Option<(ImageId, Validators)>,
    pub(super) expected: Expected,
    /// What it is made qcow2 from once it is here.
    pub(super) foreign: Option<ForeignFormat>,
    /// Identity of the bytes: a broken-off download of the same key is gone on with.
    pub(super) key: String,
    /// Identity of the download: orders with the same one share it.
    pub(super) flight: String,
}

impl Job {
    pub(super) fn new(
        order: &Order,
        found: &Found,
        promises: Vec<Promise>,
        known: Option<(ImageId, Validators)>,
        policy: Policy,
    ) -> Self {
        let Found { choice: Choice { provider, image: remote }, declared, .. } = found;
        let layered = order.layers != Layers::Refuse;
        let expected = match *declared {
            // What is converted is qcow2 by then, and stands on nothing.
            Some(Declared::Foreign(_)) => Expected { declared: Some(DiskFormat::Qcow2), ..policy.into() },
            Some(Declared::Kept(format)) => Expected { declared: Some(format), layered, ..policy.into() },
            None => Expected { layered, ..policy.into() },
        };
        let key = format!("{} {} {promises:?} {declared:?}", place(found), order.want.platform);
        let flight = format!("{key} {} {layered} {}", order.force, fingerprint(&order.want));
        let (provider, remote) = (provider.clone(), remote.clone());
        Self { provider, remote, giver: giver(found), promises, known, expected, foreign: found.foreign(), key, flight }
    }

    /// Whether the whole can be told from any other bytes, wherever they came from.
    pub(super) fn has_strong_promise(&self) -> bool {
        self.promises.iter().any(|promise| promise.hash.alg().is_strong())
    }

    /// The same without what is known.
    pub(super) fn anew(&self) -> Self {
        let Self { provider, remote, giver, promises, expected, foreign, key, flight, .. } = self;
        let (provider, remote, giver) = (provider.clone(), remote.clone(), giver.clone());
        let promises = promises.clone();
        let (key, flight) = (key.clone(), flight.clone());
        Self { provider, remote, giver, promises, known: None, expected: *expected, foreign: *foreign, key, flight }
    }

    /// What is known is recognised by these.
    pub(super) fn validators(&self) -> Validators {
        self.known.as_ref().map(|(_, validators)| validators.clone()).unwrap_or_default()
    }

    /// Where a partial can be gone on with, if it can.
    pub(super) fn resume(&self, partial: &PartialFile) -> Option<Resume> {
        let at = Part::frontier(partial);
        let record = partial.record();
        let recognised = record.etag.is_some() || self.has_strong_promise();
        let same_size = self.remote.size.is_none_or(|size| record.total == Some(size));
        let some = at > 0 && recognised && same_size && self.remote.unpack.is_none();
        some.then(|| Resume { at, etag: record.etag.clone(), total: record.total })
    }
}
