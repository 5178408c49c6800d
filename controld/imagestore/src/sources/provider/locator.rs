//! What a translation rule made of a name: a URL, how to speak to it, and which rule it was.

use std::fmt;
use std::sync::Arc;

use common::Reason;
use url::Url;
use vmimage::error::printable;

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
    /// Where the publisher's list of checksums is, by which the image is to be verified.
    checksums: Option<Url>,
}

impl Locator {
    /// A place, as the rule `by` says.
    #[must_use]
    pub fn new(url: Url, by: String, transport: Arc<Transport>) -> Self {
        Self { url, by, transport, checksums: None }
    }

    /// The same, to be verified by a list of checksums.
    #[must_use]
    pub(crate) fn verified_by(self, checksums: Option<Url>) -> Self {
        Self { checksums, ..self }
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
        let checksums = self.checksums.as_ref().map(|list| format!(" by {list}")).unwrap_or_default();
        format!("{} {}{checksums}", self.url, self.transport.digest())
    }

    /// Where the list of checksums is that the image is to be verified by.
    pub(crate) fn checksums(&self) -> Option<&Url> {
        self.checksums.as_ref()
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
