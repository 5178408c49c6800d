//! Profiles of how to speak to a server, as translation files and providers name them.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A certificate or several, and the key that may belong to them; all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateSpec {
    /// Certificates; a key may stand among them.
    pub cert: String,
    /// The key.
    pub key: Option<String>,
}

impl fmt::Debug for CertificateSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CertificateSpec(...)")
    }
}

/// A profile as it is written down. The default is how everybody is spoken to.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TransportSpec {
    /// For a whole request with its body; none if there is no limit.
    pub timeout: Option<Duration>,
    /// Most redirects that are followed; none for the usual 9.
    pub max_redirects: Option<u32>,
    /// URL of the proxy, in place of what the environment says.
    pub proxy: Option<String>,
    /// Authorities to trust beside the system's, and certificates to show.
    pub certificates: Vec<CertificateSpec>,
    /// Name to ask for and to find in the certificate of the first server, in place of the URL's host.
    pub server_name: Option<String>,
    /// Takes any certificate of the first server.
    pub insecure: bool,
    /// Follows redirects from https to http.
    pub allow_downgrade: bool,
}

impl fmt::Debug for TransportSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TransportSpec(...)")
    }
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Not yet.
    #[error("transport `{name}`: {what} is not supported")]
    Unsupported {
        /// The profile.
        name: String,
        /// Which setting.
        what: &'static str,
    },
}

/// A profile that was found sound.
pub struct Transport {
    name: String,
    pub(super) max_redirects: u32,
    pub(super) allow_downgrade: bool,
}

/// Redirects that are followed if a profile says nothing.
const MAX_REDIRECTS: u32 = 9;

static PLAIN: LazyLock<Arc<Transport>> =
    LazyLock::new(|| Arc::new(Transport { name: String::new(), max_redirects: MAX_REDIRECTS, allow_downgrade: false }));

impl Transport {
    /// The profile `name` of a configuration.
    ///
    /// # Errors
    /// When something in it cannot be used. A profile is never used in part.
    pub fn new(name: &str, spec: &TransportSpec) -> Result<Arc<Self>, TransportError> {
        let unsupported = |what| TransportError::Unsupported { name: name.to_owned(), what };
        let special = [
            (spec.timeout.is_some(), "timeout"),
            (spec.proxy.is_some(), "proxy"),
            (!spec.certificates.is_empty(), "certificates"),
            (spec.server_name.is_some(), "server name"),
            (spec.insecure, "insecure"),
        ];
        if let Some((_, what)) = special.into_iter().find(|(set, _)| *set) {
            return Err(unsupported(what));
        }
        let max_redirects = spec.max_redirects.unwrap_or(MAX_REDIRECTS);
        Ok(Arc::new(Self { name: name.to_owned(), max_redirects, allow_downgrade: spec.allow_downgrade }))
    }

    /// The profile of those who name none.
    #[must_use]
    pub fn plain() -> Arc<Self> {
        PLAIN.clone()
    }

    /// Its name; empty for the plain one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Transport(`{}`)", self.name)
    }
}
