//! Where images come from: the seam between the store and those who fetch.
//!
//! The store hands a [`Locator`] to a [`Provider`] and gets an [`Artifact`]: what is known beforehand, and the bytes.
//! A provider hands over bytes exactly as they are to be stored, ends the stream with an error if they are not whole,
//! and puts a deadline on each of its waits. HTTP(S) is the only one so far.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use url::Url;

use crate::http::FetchError;

/// Why a text cannot be fetched from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocatorError {
    /// No URL.
    #[error("not a URL")]
    Syntax(#[source] url::ParseError),
    /// Some other scheme.
    #[error("scheme `{scheme}` is not supported; use `https` or `http`")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
}

/// Where an image is, and who said so. Shown without credentials and without the query, which may hold some.
#[derive(Clone)]
pub(crate) struct Locator {
    url: Url,
    by: String,
}

impl Locator {
    pub(crate) fn new(url: Url, by: String) -> Self {
        Self { url, by }
    }

    pub(crate) fn parse_url(text: &str) -> Result<Url, LocatorError> {
        let url = Url::parse(text).map_err(LocatorError::Syntax)?;
        match url.scheme() {
            "https" | "http" => Ok(url),
            scheme => Err(LocatorError::Scheme { scheme: crate::name::printable(scheme) }),
        }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The rule that made it.
    pub(crate) fn by(&self) -> &str {
        &self.by
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&redacted(&self.url))
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{self}` by {}", self.by)
    }
}

/// A URL without user, password, query and fragment.
pub(crate) fn redacted(url: &Url) -> String {
    let origin = &url[url::Position::BeforeHost..url::Position::AfterPath];
    let query = if url.query().is_some() { "?..." } else { "" };
    format!("{}://{origin}{query}", url.scheme())
}

/// Fetches artifacts.
pub(crate) trait Provider: Send + Sync + fmt::Debug {
    /// Asks for what is there. The stream that comes back holds the connection; dropping it closes it.
    fn open<'a>(&'a self, locator: &'a Locator) -> BoxFuture<'a, Result<Artifact, FetchError>>;
}

/// What a provider found.
pub(crate) struct Artifact {
    /// How many bytes come, if that is known.
    pub(crate) length: Option<u64>,
    /// Whether the end of the bytes can be told from a broken connection.
    pub(crate) delimited: bool,
    /// Whether the server calls it a web page.
    pub(crate) web_page: bool,
    /// `ETag`, for asking later whether it changed.
    pub(crate) etag: Option<String>,
    /// `Last-Modified`, likewise.
    pub(crate) last_modified: Option<String>,
    /// The bytes, as they are to be stored.
    pub(crate) body: BoxStream<'static, Result<Bytes, FetchError>>,
}

impl fmt::Debug for Artifact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Artifact").field("length", &self.length).finish_non_exhaustive()
    }
}
