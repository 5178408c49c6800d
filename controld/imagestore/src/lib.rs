//! The image store of `controld`: VM images by name, downloaded once, verified, kept by content.
//!
//! `controld` asks for an image by the name in a pod; the [`Store`] walks it through the rooms of this crate:
//!
//! ```text
//! name -> translate -> source (http) -> intake (hash, write) -> inspect -> store (publish, bind)
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `name` | the grammar of names, digests and ids |
//! | `translate` | rules from names to URLs |
//! | `source`, `http` | where bytes come from: a seam, and HTTP(S) behind it |
//! | `intake` | one pass over the bytes: hashes, part file, bounded memory |
//! | `inspect` | whether a file is an image that may be used |
//! | `store` | the directories, what is in them, names and leases |
//! | `flight`, `pull` | one download for all who ask for the same name, step by step |
//!
//! Knows no CRI type, no libvirt and no configuration file: [`Config`] is given.

mod config;
mod convert;
mod error;
mod flight;
mod http;
mod inspect;
mod intake;
mod name;
mod pull;
mod source;
mod store;
mod translate;

pub use config::{Config, Limits};
pub use convert::{ConvertError, ConvertLimits, Fault, ForeignFormat, SandboxError};
pub use error::ErrorKind;
pub use flight::Progress;
pub use http::{FetchError, HttpConfig, Timeouts};
pub use inspect::{
    Compression, DiskFormat, ImageInfo, InspectError, InspectOptions, Parent, ParentRef, Qcow2Error, Qcow2Summary,
    Refusal, Summary, inspect_path,
};
pub use intake::IntakeError;
pub use name::{Algorithm, Digest, ImageId, ImageName, ImageRef, NameError, Query, Version};
pub use pull::{DownloadError, PullError};
pub use source::LocatorError;
pub use store::{DiskError, Finding, FsUsage, Image, Store, StoreError};
pub use translate::{DirError, FileError, Problem, Protocol, RuleError, TranslateError};

/// What is fuzzed; not for use.
#[doc(hidden)]
pub mod exercise {
    pub use crate::inspect::exercise as inspect;
}
