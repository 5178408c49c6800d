//! The seam between the store and the places that images come from.
//!
//! A [`Provider`] says *what* is there and opens it. The store does the rest, in the same way for all of them: it
//! decompresses, hashes, compares with every promise, inspects and publishes. A provider writes no file and checks no
//! digest of an image's bytes, so none can forget to.
//!
//! ```text
//! rule's URL --- resolve(locator) --+
//!                                   +--> RemoteImage --- open(image, ask) --> Opened::{Unchanged, Artifact(body)}
//! bare name ---- find(name) --------+
//! ```
//!
//! To write one:
//! - Keep an [`Arc<net::Client>`](crate::sources::net::Client). It does redirects, proxies, TLS, denied addresses,
//!   deadlines and retries. `client.json(&request, limit)` and `client.small(&request, limit)` are
//!   for metadata, with any status and with validators for a conditional request; `client.open(&request, &ask)` is the
//!   whole of [`Provider::open`] for bytes behind a URL (conditions, ranges, lies about both).
//! - Say in [`RemoteImage::promises`] every digest that the source gives, and what each covers. The store checks them
//!   all, and takes one that covers the stored content for "is here already" before anything is downloaded.
//! - Leave compression alone: it is found by the bytes. A format around the disk (a tar layer) is an [`Unpack`].
//! - Errors are [`ProviderError`]: `Ok(None)` of [`Provider::find`] means that the source was asked and does not know
//!   the name. Anything else is an error, and ends the search: a public provider must not answer for a name that a
//!   private one, just now unreachable, may have.
//!
//! Invariants: texts in a [`RemoteImage`] other than its source hold no secret; [`RemoteImage::key`] differs whenever
//! other bytes may come.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use common::Chain;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use url::Url;

use crate::error::printable;
use crate::formats::declared::Declared;
use crate::sources::name::Version;
use crate::sources::net::{self, Ask, Auth, Opened};

mod config;
mod error;
mod file;
mod glance;
mod hash;
mod http;
mod lago;
mod locator;
mod memory;
mod mirror;
mod oci;
mod platform;
mod registry;
mod signature;
mod simplestreams;
mod source_url;
#[cfg(test)]
mod tests;
mod timestamp;
mod virt_builder;

pub use config::{Kind, Means, ProviderConfig, TransportConfig};
pub use error::ProviderError;
pub use file::LocalFiles;
pub use glance::{Glance, GlanceConfig};
pub use hash::{HashAlg, HashError, ImageHash};
pub use http::Http;
pub use lago::{Lago, LagoConfig};
pub use locator::Locator;
pub use oci::{LoginConfig, Oci, OciConfig, ReferenceError, TarError, login};
pub use platform::Platform;
pub use registry::{Choice, Registry};
pub use signature::{KeyRing, SignatureError, Verified, verify_clearsigned, verify_detached};
pub use simplestreams::{Simplestreams, SimplestreamsConfig};
pub use source_url::{ProxyLogin, ProxyUrl, SourceUrl};
pub use virt_builder::{Entry, Index, ReposError, Skipped, VirtBuilder, VirtBuilderConfig, parse_index};

/// For the fuzzer: what sources say, by kind of source.
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub mod exercise {
    pub use super::glance::exercise as glance;
    pub use super::lago::exercise as lago;
    pub use super::oci::exercise as oci;
    pub use super::simplestreams::exercise as simplestreams;
    pub use super::virt_builder::exercise as virt_builder;
}

/// How the bytes of an artifact are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// gzip, of one or more members.
    Gzip,
    /// xz, of one or more streams.
    Xz,
    /// Zstandard, of one or more frames.
    Zstd,
    /// bzip2, of one or more streams.
    Bzip2,
}

/// Which bytes a promised digest is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Covers {
    /// The artifact as it is hosted.
    Hosted,
    /// The artifact decompressed, with the archive that may be around the disk.
    Unpacked,
    /// The disk as it is stored.
    Content,
}

/// A digest that a source gave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promise {
    /// The digest.
    pub hash: ImageHash,
    /// Of what.
    pub covers: Covers,
}

/// What a provider can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// Lists images by the beginning of their name.
    pub search: bool,
    /// Opens from a place in the middle.
    pub range: bool,
    /// Tells whether something changed without sending it.
    pub conditional: bool,
    /// Its metadata are signed.
    pub signed: bool,
    /// Finds images by hash.
    pub by_hash: bool,
    /// Distinguishes platforms.
    pub platform: bool,
}

/// Which of several images of a name is the newer: the greater one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// A counter.
    Number(u64),
    /// A text that orders by its bytes.
    Serial(String),
}

/// What a source tells of an image.
#[derive(Debug, Clone, Default)]
pub struct ImageMetadata {
    /// The image's name at its provider.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// The provider's id.
    pub provider: String,
    /// Digests.
    pub promises: Vec<Promise>,
    /// The disk's format, as the source declares it.
    pub format: Option<Declared>,
    /// Bytes of the artifact.
    pub artifact_size: Option<u64>,
    /// Bytes of the disk that a guest sees.
    pub virtual_size: Option<u64>,
    /// What it runs on.
    pub platform: Platform,
    /// The system in libosinfo's words.
    pub osinfo: Option<String>,
    pub distro: Option<String>,
    /// Order among images of the name.
    pub revision: Option<Revision>,
    /// Seconds since 1970.
    pub created: Option<u64>,
    /// Hash or name of the image below it, as the source writes it.
    pub parent: Option<String>,
    /// Partition with the root file system.
    pub root_partition: Option<String>,
    /// Logical volume with the root file system.
    pub lvexpand: Option<String>,
    /// Bytes of disk that it needs.
    pub min_disk: Option<u64>,
    /// Bytes of memory that it needs.
    pub min_ram: Option<u64>,
    /// Notes for people, by language; the empty one is for everybody.
    pub notes: BTreeMap<String, String>,
    /// Not to be shown by a search.
    pub hidden: bool,
    /// Fingerprint of the key that signed these facts.
    pub signed_by: Option<String>,
    /// Anything else. May hold secrets (a root password): shown only on demand.
    pub extra: BTreeMap<String, String>,
}

/// What a caller wants beside the name.
#[derive(Debug, Clone, Default)]
pub struct Want {
    /// What it is to run on.
    pub platform: Platform,
    /// Credentials of the one who asks. They are for the origin that the name or its rule points to, and no other.
    pub auth: Option<Auth>,
    /// The registry that these are for, as pull secrets name it; empty if they are for whatever the name leads to.
    pub auth_server: String,
    /// Tag or digest of the name, for sources of which the URL or the bare name does not say which of several images is
    /// meant.
    pub version: Option<Version>,
}

impl Want {
    /// The credentials of the one who asks, unless they are for another server than this one (`host` or `host:port`).
    #[must_use]
    pub fn auth_for(&self, server: &str) -> Option<Auth> {
        let named = server_name(&self.auth_server);
        self.auth.clone().filter(|_| named.is_empty() || named == server_name(server))
    }
}

/// A server as pull secrets name it, in one form: without scheme, path and the port that is meant anyway. Docker's hub
/// has three names.
fn server_name(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.strip_suffix(":443").unwrap_or(host);
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        host => host.to_owned(),
    }
}

/// An image of a source that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Its name there.
    pub name: String,
    /// Why not, with the causes, on one line.
    pub reason: String,
}

impl Dropped {
    pub(crate) fn new(name: &str, cause: &(dyn std::error::Error + 'static)) -> Self {
        Self { name: printable(name), reason: Chain(cause).to_string() }
    }
}

/// Where bytes are.
#[derive(Debug, Clone)]
pub enum Source {
    /// Behind a URL.
    Http(Box<net::Request>),
    /// In a file, below a directory that was checked when it was opened.
    File(PathBuf),
}

/// An image that a provider found.
#[derive(Debug, Clone)]
pub struct RemoteImage {
    /// Identity of what would be downloaded, for sharing downloads and resuming them. May hold secrets, is never shown.
    pub key: String,
    /// The place as errors and records show it, without secrets.
    pub shown: String,
    /// Where the bytes are.
    pub source: Source,
    /// Every digest that is known beforehand.
    pub promises: Vec<Promise>,
    /// Bytes of the artifact, if they are known beforehand; more or fewer are an error then.
    pub size: Option<u64>,
    /// What is around the disk once it is decompressed.
    pub unpack: Option<Arc<dyn Unpack>>,
    /// What a registry says of it.
    pub registered: Option<Registered>,
    /// All that the source tells.
    pub metadata: ImageMetadata,
}

/// An image of a registry.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Digests of the documents that led to it, checked, the one that the name stands for first. A name with one of
    /// them means this image, though it is no digest of its bytes.
    pub digests: Vec<ImageHash>,
    /// User that its configuration names.
    pub user: Option<String>,
    /// Labels of its configuration.
    pub labels: BTreeMap<String, String>,
}

impl RemoteImage {
    /// Bytes behind a URL, nothing being known of them.
    #[must_use]
    pub fn at(provider: &str, request: net::Request) -> Self {
        Self {
            key: request.identity(),
            shown: net::redacted(request.url()),
            source: Source::Http(Box::new(request)),
            promises: Vec::new(),
            size: None,
            unpack: None,
            registered: None,
            metadata: ImageMetadata { provider: provider.to_owned(), ..ImageMetadata::default() },
        }
    }

    /// An image in a file of the node, by the provider of that id, of which nothing more is known.
    pub(crate) fn in_file(provider: &str, path: PathBuf) -> Self {
        Self {
            key: format!("file {}", path.display()),
            shown: path.display().to_string(),
            source: Source::File(path),
            promises: Vec::new(),
            size: None,
            unpack: None,
            registered: None,
            metadata: ImageMetadata { provider: provider.to_owned(), ..ImageMetadata::default() },
        }
    }

    /// Opens what is behind a URL, for the provider of that id.
    pub(crate) fn open_by<'a>(
        &'a self,
        provider: &'a str,
        client: &'a net::Client,
        ask: &'a Ask,
    ) -> Answer<'a, Opened> {
        async move {
            match &self.source {
                Source::Http(request) => Ok(client.open(request, ask).await?),
                Source::File(_) => Err(ProviderError::Unsupported { provider: provider.into(), what: "local files" }),
            }
        }
        .boxed()
    }
}

/// Takes the disk out of what is around it, while it streams by.
pub trait Unpack: Send + Sync + fmt::Debug {
    /// The disk's bytes, read from `archive`. The store reads them to their end, and then `archive` to its end.
    ///
    /// # Errors
    /// When the archive is none, or holds anything but one disk. Errors amid the bytes come from reading.
    fn unpack<'a>(&self, archive: &'a mut (dyn Read + Send)) -> io::Result<Box<dyn Read + 'a>>;
}

/// What a provider answers. Boxed, so that providers of many kinds stand in one list.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, ProviderError>>;

/// A source of images.
pub trait Provider: Send + Sync + fmt::Debug {
    /// Its name in the configuration.
    fn id(&self) -> &str;

    /// What it can do.
    fn caps(&self) -> Caps;

    /// Schemes of the URLs in translation rules that it resolves.
    fn schemes(&self) -> &[&str] {
        &[]
    }

    /// Whether a URL of one of these schemes is for it, when several providers know the scheme.
    fn claims(&self, _url: &Url) -> bool {
        true
    }

    /// The image of a rule's URL, whose scheme is one of [`Provider::schemes`]. Unless a provider has another form, that is
    /// `SCHEME://PROVIDER/NAME`.
    fn resolve<'a>(&'a self, locator: &'a Locator, want: &'a Want) -> Answer<'a, RemoteImage> {
        async move {
            let url = locator.url();
            if !self.claims(url) {
                return Err(ProviderError::Unknown { id: printable(url.host_str().unwrap_or_default()) });
            }
            let name = mirror::name_in(url.path());
            let found = self.find(&name, want).await?;
            found.ok_or_else(|| ProviderError::NotFound { provider: self.id().to_owned(), name: printable(&name) })
        }
        .boxed()
    }

    /// The image of a name of its own, the first that fits. `None` if it has no such name.
    fn find<'a>(&'a self, _name: &'a str, _want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// Asks for the bytes, or whether they changed.
    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened>;

    /// Whether it has an image of that hash.
    fn contains<'a>(&'a self, hash: &'a ImageHash) -> Answer<'a, bool> {
        async move { Ok(self.metadata(hash).await?.is_some()) }.boxed()
    }

    /// What it tells of the image of that hash.
    fn metadata<'a>(&'a self, _hash: &'a ImageHash) -> Answer<'a, Option<ImageMetadata>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// Images whose name or alias begins with `prefix`.
    fn search<'a>(&'a self, _prefix: &'a str, _platform: Option<&'a Platform>) -> Answer<'a, Vec<ImageMetadata>> {
        let unsupported = ProviderError::Unsupported { provider: self.id().to_owned(), what: "search" };
        std::future::ready(Err(unsupported)).boxed()
    }

    /// Images of its source, as it was read last, that cannot be used, and why.
    fn dropped(&self) -> Vec<Dropped> {
        Vec::new()
    }

    /// Forgets what it remembers of its source, and asks anew. Not the newest of what it has seen signed: an older one is
    /// no more to be taken than before.
    fn clear_cache(&self) {}

    /// Forgets the newest that it has seen, so that older documents are taken again.
    ///
    /// # Errors
    /// When what was seen cannot be removed.
    fn forget(&self) -> Result<(), std::io::Error> {
        Ok(())
    }
}
