//! The image store of `controld`: downloads VM images by name, once, verifies them, and keeps them by their digest.
//!
//! Two storeys, which stand on a crate of their own. Each knows those below it, and none above it:
//!
//! ```text
//! storage   where images lie: Store, pull, ingest, content
//!    |
//! sources   where they come from: translation rules, providers, HTTP
//!    |
//! vmimage   what they are: names, digests, inspection, decompression, conversion
//! ```
//!
//! `controld` calls [`Store::pull`] with the name in a pod, and `storage::pull` takes the steps:
//!
//! 1. [`vmimage::name`], `sources::translate`: reads the name, and looks for a rule that gives it a URL.
//! 2. [`provider`]: asks the source what it has under that name, and which digests it promises.
//! 3. [`net`], `storage::ingest`: downloads the image; decompresses, hashes and writes it in the same pass.
//! 4. [`vmimage::inspect`]: decides whether it is a disk image that may be used.
//! 5. `storage::content`: publishes the file under its digest, and gives it the name.
//!
//! Knows no CRI type, no libvirt and no configuration file: the caller makes the [`Config`].

mod sources;
mod storage;
#[cfg(test)]
mod threats;

pub use sources::net::{FetchError, NetConfig, Timeouts};
pub use sources::provider::{Feed, Upload};
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub use sources::translate::exercise as exercise_translation;
pub use sources::translate::{DirError, Mappings, Notice, Origin, OriginKind, Problem, Protocol, TranslateError};
pub use sources::{net, provider};
pub use storage::config::{Config, HandlerConfig, Layers, Limits, Offline};
pub use storage::content::{
    Binding, Details, DiskError, Finding, FsUsage, GcOptions, GcReport, Gone, Image, Keepers, Layer, Name, Removed,
    Verdict, Verified,
};
pub use storage::fit::Unfit;
pub use storage::ingest::IngestError;
pub use storage::pull::{DownloadError, Downloads, LayerError, Phase, Progress, PullError};
pub use storage::store::{CATALOGUE, Found, ProviderInfo, PullRequest, Store, StoreError};
