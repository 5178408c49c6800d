//! What a translation rule made of a name: a URL, how to speak to it, and which rule it was.

use std::fmt;
use std::sync::Arc;

use common::Reason;
use url::Url;

use crate::error::printable;
use crate::sources::net::{Transport, redacted};

/// Schemes that rules may use. Whether a provider for each is configured is found out at the pull.
const SCHEMES: [&str; 9] =
    ["https", "http", "file", "oci", "docker", "glance+http", "glance+https", "virt-builder", "simplestreams"];

/// Where an image is, and who said so. Shown without credentials and without the query, which may hold some.
#[derive(Clone)]
pub struct Locator {
    url: Url,
    by: String,
    transport: Arc<Transport>,
}

impl Locator {
    /// A place, as the rule `by` says.
    #[must_use]
    pub fn new(url: Url, by: String, transport: Arc<Transport>) -> Self {
        Self { url, by, transport }
    }

    pub(crate) fn parse_url(text: &str) -> Result<Url, Reason> {
        let url = Url::parse(text).map_err(Reason::because("not a URL"))?;
        match url.scheme() {
            scheme if SCHEMES.contains(&scheme) => Ok(url),
            scheme => Err(Reason::new(format!(
                "scheme `{}` is not supported; use one of {}",
                printable(scheme),
                SCHEMES.join(", ")
            ))),
        }
    }

    /// The URL, with whatever secrets it has.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The rule that made it.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Tells places and ways to speak to them apart. Holds whatever secrets the URL has.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.url, self.transport.digest())
    }

    /// How to speak to it.
    #[must_use]
    pub fn transport(&self) -> &Arc<Transport> {
        &self.transport
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
