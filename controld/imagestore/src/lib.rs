//! The image store of `controld`: VM images by name, downloaded once, verified, kept by content.
//!
//! `controld` asks for an image by the name in a pod; the [`Store`] walks it through the rooms of this crate:
//!
//! ```text
//! name -> translate -> provider (net) -> intake (hash, write) -> inspect -> shelf (publish, bind)
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `name` | the grammar of names |
//! | `digest` | digests, and ids of images |
//! | `translate` | rules from names to URLs |
//! | [`provider`] | where images are: a seam, and one module for each kind of source behind it |
//! | [`net`] | HTTP(S) for all of them |
//! | `intake` | one pass over the bytes: hashes, part file, bounded memory |
//! | `declared` | what a rule or a source says that an image is |
//! | `inspect` | whether a file is an image that may be used |
//! | `convert` | images of other formats, made qcow2 in a sandbox |
//! | `shelf` | the directories, what is in them, names and leases |
//! | `pull` | one download for all who ask for the same name, step by step |
//! | `store` | the front of it all, as callers have it |
//!
//! Knows no CRI type, no libvirt and no configuration file: [`Config`] is given.

mod config;
mod convert;
mod declared;
mod decode;
mod digest;
mod error;
mod inspect;
mod intake;
mod name;
pub mod net;
pub mod provider;
mod pull;
mod shelf;
mod store;
#[cfg(test)]
mod threats;
mod translate;

pub use config::{Config, HandlerConfig, Layers, Limits, Offline};
#[doc(hidden)]
pub use convert::exercise as exercise_conversion;
pub use convert::{ConvertError, ConvertLimits, Converter, Fault, ForeignFormat, SandboxError};
pub use declared::Declared;
#[doc(hidden)]
pub use decode::confine as confine_decoder;
#[doc(hidden)]
pub use decode::exercise as exercise_decoder;
pub use decode::{DecodeError, run_apart as run_decoder};
pub use digest::{Algorithm, Digest, DigestError, ImageId};
pub use error::ErrorKind;
#[doc(hidden)]
pub use inspect::exercise as exercise_inspection;
pub use inspect::{
    Compression, DiskFormat, ImageInfo, InspectError, InspectOptions, Parent, ParentRef, Qcow2Error, Qcow2Summary,
    Refusal, Summary, inspect_path,
};
pub use intake::IntakeError;
pub use name::{ImageName, ImageRef, NameError, Query, Version};
pub use net::{FetchError, NetConfig, Timeouts};
pub use provider::LocatorError;
pub use pull::{DownloadError, LayerError, Phase, Progress, PullError};
pub use shelf::{
    Binding, Details, DiskError, Finding, FsUsage, GcOptions, GcReport, Gone, Image, Keepers, Layer, MIN_PREFIX, Name,
    Removed, Verdict, Verified,
};
pub use store::{Found, ProviderInfo, PullRequest, Store, StoreError};
#[doc(hidden)]
pub use translate::exercise as exercise_translation;
pub use translate::{
    DirError, FileError, Mappings, Notice, Origin, OriginKind, Problem, Protocol, RuleError, TemplateError,
    TranslateError,
};
