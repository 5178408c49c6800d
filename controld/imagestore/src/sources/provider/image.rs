//! What a provider says of an image: what a search lists, and what a pull needs.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use common::Chain;
use futures_util::FutureExt as _;
use vmimage::declared::Declared;
use vmimage::error::printable;

use super::{Answer, ImageHash, Platform, ProviderError};
use crate::sources::net::{self, Ask, Opened};

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
    /// They are of a list beside the image: whether the one who asks may have the image, its own server has not said.
    pub listed: bool,
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
            listed: false,
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
            listed: false,
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
