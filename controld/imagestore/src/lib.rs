//! The image store of `controld`: downloads VM images by name, once, verifies them, and keeps them by their digest.
//!
//! Three storeys. Each knows those below it, and none above it:
//!
//! ```text
//! storage   where images lie: Store, pull, ingest, content
//!    |
//! sources   where they come from: names, translation rules, providers, HTTP
//!    |
//! formats   what they are: inspection, decompression, conversion
//!    |
//! digest, error
//! ```
//!
//! `controld` calls [`Store::pull`] with the name in a pod, and `storage::pull` takes the steps:
//!
//! 1. `sources::name`, `sources::translate`: reads the name, and looks for a rule that gives it a URL.
//! 2. [`provider`]: asks the source what it has under that name, and which digests it promises.
//! 3. [`net`], `storage::ingest`: downloads the image; decompresses, hashes and writes it in the same pass.
//! 4. `formats::inspect`: decides whether it is a disk image that may be used.
//! 5. `storage::content`: publishes the file under its digest, and gives it the name.
//!
//! Knows no CRI type, no libvirt and no configuration file: the caller makes the [`Config`].

mod digest;
mod error;
mod formats;
mod sources;
mod storage;
#[cfg(test)]
mod threats;

pub use digest::{Algorithm, Digest, DigestError, ImageId};
pub use error::ErrorKind;
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub use formats::convert::exercise as exercise_conversion;
pub use formats::convert::{
    ChainFile, ConvertError, ConvertLimits, Converter, Fault, ForeignFormat, Place, SandboxError,
};
pub use formats::declared::Declared;
#[doc(hidden)]
pub use formats::decode::confine as confine_decoder;
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub use formats::decode::exercise as exercise_decoder;
pub use formats::decode::{DecodeError, run_apart as run_decoder};
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub use formats::inspect::exercise as exercise_inspection;
pub use formats::inspect::{
    Compression, DiskFormat, ImageInfo, InspectError, InspectOptions, Parent, ParentRef, Qcow2Error, Qcow2Summary,
    Refusal, Summary, inspect_path,
};
pub use formats::tar;
pub use sources::name::{ImageName, ImageRef, Query, Version};
pub use sources::net::{FetchError, NetConfig, Timeouts};
pub use sources::provider::{Feed, IMPORT, Upload};
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub use sources::translate::exercise as exercise_translation;
pub use sources::translate::{DirError, Mappings, Notice, Origin, OriginKind, Problem, Protocol, TranslateError};
pub use sources::{net, provider};
pub use storage::config::{Config, HandlerConfig, Layers, Limits, Offline};
pub use storage::content::{
    Binding, Details, DiskError, Finding, FsUsage, GcOptions, GcReport, Gone, Image, Keepers, Layer, MIN_PREFIX, Name,
    Removed, Verdict, Verified,
};
pub use storage::fit::Unfit;
pub use storage::ingest::IngestError;
pub use storage::pull::{DownloadError, Downloads, LayerError, Phase, Progress, PullError};
pub use storage::store::{CATALOGUE, Found, ProviderInfo, PullRequest, Store, StoreError};
