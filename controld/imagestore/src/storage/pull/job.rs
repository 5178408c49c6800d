//! What a flight of an artifact downloads.

use std::sync::Arc;

use crate::digest::ImageId;
use crate::formats::convert::ForeignFormat;
use crate::formats::inspect::Expected;
use crate::sources::net::{Resume, Validators};
use crate::sources::provider::{Promise, Provider, RemoteImage};
use crate::storage::content::{Part, PartialFile};

/// What is to be downloaded.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) remote: RemoteImage,
    /// Those of the source, and those of the name and its rule.
    pub(super) promises: Vec<Promise>,
    /// What is here of the same source, and what it was recognised by.
    pub(super) known: Option<(ImageId, Validators)>,
    pub(super) expected: Expected,
    /// What it is made qcow2 from once it is here.
    pub(super) foreign: Option<ForeignFormat>,
    /// Identity of all that.
    pub(super) key: String,
}

impl Job {
    /// Whether the whole can be told from any other bytes, wherever they came from.
    pub(super) fn has_strong_promise(&self) -> bool {
        self.promises.iter().any(|promise| promise.hash.alg().is_strong())
    }

    /// The same without what is known.
    pub(super) fn anew(&self) -> Self {
        let Self { provider, remote, promises, expected, foreign, key, .. } = self;
        let (provider, remote, promises) = (provider.clone(), remote.clone(), promises.clone());
        Self { provider, remote, promises, known: None, expected: *expected, foreign: *foreign, key: key.clone() }
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
