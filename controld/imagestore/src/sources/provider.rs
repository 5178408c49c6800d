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

use std::fmt;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use url::Url;
use vmimage::error::printable;

use crate::sources::net::{Ask, Opened};

mod checksums;
mod config;
mod error;
mod file;
mod glance;
mod hash;
mod http;
mod image;
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
mod upload;
mod virt_builder;
mod want;

pub(crate) use config::REGISTRIES;
pub use config::{Kind, Means, ProviderConfig, TransportConfig};
pub use error::ProviderError;
pub use file::LocalFiles;
pub use glance::{Glance, GlanceConfig};
pub use hash::{HashAlg, HashError, ImageHash};
pub use http::Http;
pub use image::{Covers, Dropped, Encoding, ImageMetadata, Promise, Registered, RemoteImage, Revision, Source, Unpack};
pub use lago::{Lago, LagoConfig};
pub use locator::Locator;
pub use oci::{AnyRegistry, LoginConfig, Oci, OciConfig, ReferenceError, TarError, login};
pub use platform::Platform;
pub use registry::{Choice, Registry};
pub use signature::{KeyRing, SignatureError, Verified, verify_clearsigned, verify_detached};
pub use simplestreams::{Simplestreams, SimplestreamsConfig};
pub use source_url::{ProxyLogin, ProxyUrl, SourceUrl};
pub(crate) use upload::Uploaded;
pub use upload::{Feed, Upload};
pub use virt_builder::{Entry, Index, ReposError, Skipped, VirtBuilder, VirtBuilderConfig, parse_index};
pub use want::Want;

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
