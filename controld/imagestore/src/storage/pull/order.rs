//! What is to be pulled, and how.

use std::collections::BTreeSet;

use super::login::fingerprint;
use crate::formats::inspect::DiskFormat;
use crate::sources::provider::Want;
use crate::storage::config::Layers;
use crate::storage::content::Key;

/// What is to be pulled, and how.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The name, and for which handler.
    pub(crate) key: Key,
    /// The handler's own name.
    pub(crate) handler: String,
    /// The handler's platform, and the credentials of the one who asks.
    pub(crate) want: Want,
    /// The only provider that may be asked, if one is named.
    pub(crate) provider: Option<String>,
    /// Translation files that hold for the handler; all if none are named.
    pub(crate) translations: Option<BTreeSet<String>>,
    /// Providers that may be asked for the handler; all if none are named.
    pub(crate) providers: Option<BTreeSet<String>>,
    /// Formats that the handler takes; all if none are named.
    pub(crate) formats: Option<BTreeSet<DiskFormat>>,
    /// Whether to download also what did not change.
    pub(crate) force: bool,
    /// What to do about what an image stands on.
    pub(crate) layers: Layers,
}

/// Tells apart what may come out differently: the flight that an order shares with others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) key: Key,
    /// Digest of the login, and all else.
    how: String,
}

impl Order {
    pub(crate) fn ticket(&self) -> Ticket {
        let Self { key, want, provider, force, layers, .. } = self;
        Ticket { key: key.clone(), how: format!("{} {provider:?} {force} {layers:?}", fingerprint(want)) }
    }
}
