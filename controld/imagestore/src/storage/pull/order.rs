//! What is to be pulled, and how.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use url::Url;
use vmimage::digest::hex;
use vmimage::inspect::DiskFormat;

use super::login::fingerprint;
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
    /// Where the image is, if the one who asks says so: no rule and no provider is asked then.
    pub(crate) url: Option<Url>,
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
        let Self { key, want, url, provider, force, layers, .. } = self;
        // It may hold a secret.
        let url = url.as_ref().map(|url| hex(&Sha256::digest(url.as_str())));
        Ticket { key: key.clone(), how: format!("{} {url:?} {provider:?} {force} {layers:?}", fingerprint(want)) }
    }
}
