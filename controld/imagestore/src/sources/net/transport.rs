//! Profiles of how to speak to a server, as translation files and providers name them.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use common::Reason;
use rustls::pki_types::ServerName;
use sha2::{Digest as _, Sha256};
use vmimage::digest::hex;

use super::proxy::Proxy;
use super::tls::{CertificateSpec, Identity};

/// A profile as it is written down. The default is how everybody is spoken to.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TransportSpec {
    /// For a whole request with its body and all that it takes to get it; none or nothing if there is no limit.
    pub timeout: Option<Duration>,
    /// Most redirects that are followed; none for the usual 9.
    pub max_redirects: Option<u32>,
    /// URL of the proxy, in place of what the environment says; `off` for none.
    pub proxy: Option<String>,
    /// Authorities to trust beside the system's, and certificates to show to the first server.
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

impl TransportSpec {
    fn digest(&self) -> String {
        let Self { timeout, max_redirects, proxy, certificates, server_name, insecure, allow_downgrade } = self;
        let certificates: Vec<_> = certificates.iter().map(|each| (&each.cert, &each.key)).collect();
        let all = (timeout, max_redirects, proxy, certificates, server_name, insecure, allow_downgrade);
        short_digest(format!("{all:?}").as_bytes())
    }
}

/// So much of a SHA-256 that nobody finds another text for it by accident.
pub(super) fn short_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..16])
}

/// Where a profile's proxy is from.
#[derive(Debug)]
pub(super) enum ProxyChoice {
    Environment,
    Off,
    Named(Proxy),
}

/// A profile that was found sound.
pub struct Transport {
    name: String,
    /// Digest of all that it says, as names are given by many files.
    digest: String,
    pub(super) timeout: Option<Duration>,
    pub(super) max_redirects: u32,
    pub(super) allow_downgrade: bool,
    pub(super) proxy: ProxyChoice,
    pub(super) identity: Identity,
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) insecure: bool,
}

/// Redirects that are followed if a profile says nothing.
const MAX_REDIRECTS: u32 = 9;

static PLAIN: LazyLock<Arc<Transport>> = LazyLock::new(|| {
    Arc::new(Transport {
        name: String::new(),
        digest: TransportSpec::default().digest(),
        timeout: None,
        max_redirects: MAX_REDIRECTS,
        allow_downgrade: false,
        proxy: ProxyChoice::Environment,
        identity: Identity::default(),
        server_name: None,
        insecure: false,
    })
});

impl Transport {
    /// The profile `name` of a configuration.
    ///
    /// # Errors
    /// When something in it cannot be used. A profile is never used in part.
    pub fn new(name: &str, spec: &TransportSpec) -> Result<Arc<Self>, Reason> {
        let proxy = match spec.proxy.as_deref().map(str::trim) {
            None | Some("") => ProxyChoice::Environment,
            Some("off") => ProxyChoice::Off,
            Some(text) => ProxyChoice::Named(
                Proxy::parse(text, "it").map_err(|cause| Reason::new(format!("transport `{name}`")).with(cause))?,
            ),
        };
        let mut identity = Identity::default();
        for (index, certificate) in spec.certificates.iter().enumerate() {
            let place = index + 1;
            let unusable = || Reason::new(format!("transport `{name}`: certificate {place} cannot be used"));
            identity.add(name, certificate).map_err(|cause| unusable().with(cause))?;
        }
        let server_name = spec.server_name.clone().filter(|name| !name.is_empty()).map(ServerName::try_from);
        let unnamed = || Reason::new(format!("transport `{name}`: server name is neither a DNS name nor an address"));
        Ok(Arc::new(Self {
            name: name.to_owned(),
            digest: spec.digest(),
            timeout: spec.timeout.filter(|timeout| !timeout.is_zero()),
            max_redirects: spec.max_redirects.unwrap_or(MAX_REDIRECTS),
            allow_downgrade: spec.allow_downgrade,
            proxy,
            identity,
            server_name: server_name.transpose().map_err(|cause| unnamed().with(cause))?,
            insecure: spec.insecure,
        }))
    }

    /// The profile of those who name none.
    #[must_use]
    pub fn plain() -> Arc<Self> {
        PLAIN.clone()
    }

    /// What it says, for telling it from others. Shows nothing of it.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
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
