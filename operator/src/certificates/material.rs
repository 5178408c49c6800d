//! An authority of our own, and the server's certificate that it has signed: made, read again, and judged. Nothing here asks a cluster.

use std::sync::Arc;
use std::time::Duration;

use common::Reason;
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{RootCertStore, ServerConfig};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A certificate is good for so long, and an authority.
const CERTIFICATE: Duration = Duration::from_secs(90 * DAY.as_secs());
const AUTHORITY: Duration = Duration::from_secs(3650 * DAY.as_secs());
/// Both are good this long before they are made: clocks differ.
const SLACK: Duration = Duration::from_secs(3600);
/// The authority's name. It is in what the authority has signed, so it stays.
const NAME: &str = "virtlet-operator authority";

/// What a server needs to be trusted. All texts are PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Material {
    /// The server's certificate.
    pub(super) certificate: String,
    pub(super) key: String,
    /// Who signed it, and behind that the authority before as long as others may have a certificate of it.
    pub(super) authorities: String,
    /// The first authority's; nothing if that is somebody else's.
    pub(super) authority_key: Option<String>,
    pub(super) authority_expires: Option<Timestamp>,
}

/// A certificate that is good.
#[derive(Debug)]
pub(super) struct Good {
    pub(super) server: Arc<ServerConfig>,
    /// Whether two thirds of its life are over, or of its authority's.
    pub(super) is_due: bool,
}

/// The one provider of ciphers: ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Material {
    /// A new certificate for a server of this name. The authority is that of `before`, as long as it lasts.
    ///
    /// # Errors
    /// When there is no randomness.
    pub(super) fn make(host: &str, now: Timestamp, before: Option<&Self>) -> Result<Self, Reason> {
        if let Some(before) = before
            && let Some(made) = before.signed(host, now)
        {
            return Ok(made);
        }
        let failed = |what| Reason::because::<rcgen::Error>(what);
        let key = KeyPair::generate().map_err(failed("no key for an authority"))?;
        let key_pem = key.serialize_pem();
        let authority = CertifiedIssuer::self_signed(authority_params(now), key).map_err(failed("no authority"))?;
        let (certificate, key) = certificate(host, now, &authority).map_err(failed("no certificate"))?;
        let mut authorities = authority.pem();
        authorities.extend(before.and_then(Self::authority));
        Ok(Self {
            certificate,
            key,
            authorities,
            authority_key: Some(key_pem),
            authority_expires: Some(after(now, AUTHORITY)),
        })
    }

    /// The same, whose authority signs nothing more.
    pub(super) fn without_key(&self) -> Self {
        Self { authority_key: None, ..self.clone() }
    }

    /// A new certificate of the same authority; nothing if that is not one that can sign for long enough.
    fn signed(&self, host: &str, now: Timestamp) -> Option<Self> {
        if self.is_authority_due(now) {
            return None;
        }
        let key = KeyPair::from_pem(self.authority_key.as_deref()?).ok()?;
        let (certificate, key) = certificate(host, now, &Issuer::new(authority_params(now), key)).ok()?;
        let made = Self { certificate, key, authorities: self.authority()?, ..self.clone() };
        // Key and authority may not belong together.
        made.judge(host, now).ok().filter(|good| !good.is_due)?;
        Some(made)
    }

    /// The certificate as a server takes it, if clients who trust its authorities trust it now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn judge(&self, host: &str, now: Timestamp) -> Result<Good, Reason> {
        let chain = certificates(&self.certificate)?;
        let leaf = chain.first().ok_or_else(|| Reason::new("there is no certificate"))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authorities)? {
            roots.add(authority).map_err(Reason::because("an authority is none"))?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(Reason::because("there is no authority"))?;
        let name = ServerName::try_from(host).map_err(Reason::because("the server's name is none"))?;
        let others = chain.get(1..).unwrap_or_default();
        let at = |time| verifier.verify_server_cert(leaf, others, &name, &[], unix(time)).map(drop);
        at(now).map_err(Reason::because("nobody would trust the certificate"))?;
        let is_due = at(after(now, CERTIFICATE / 3)).is_err() || self.is_authority_due(now);
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(Reason::because("there is no key"))?;
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut server = server.map_err(Reason::because("certificate and key cannot be used together"))?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Good { server: Arc::new(server), is_due })
    }

    fn is_authority_due(&self, now: Timestamp) -> bool {
        self.authority_expires.is_none_or(|expires| after(now, AUTHORITY / 3) >= expires)
    }

    /// The authority that signs.
    fn authority(&self) -> Option<String> {
        const END: &str = "-----END CERTIFICATE-----";
        let first = self.authorities.split_inclusive(END).next()?.trim_start();
        certificates(first).is_ok_and(|all| all.len() == 1).then(|| format!("{first}\n"))
    }
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without keys.
        f.debug_struct("Material").field("authority_expires", &self.authority_expires).finish_non_exhaustive()
    }
}

fn authority_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    lasts(&mut params, now, AUTHORITY);
    params
}

/// A certificate and its key.
fn certificate(host: &str, now: Timestamp, authority: &Issuer<'_, KeyPair>) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new([host.to_owned()])?;
    // A name in the subject may be shorter than names of servers are.
    params.distinguished_name.push(DnType::CommonName, "virtlet-operator");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    lasts(&mut params, now, CERTIFICATE);
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, authority)?.pem(), key.serialize_pem()))
}

fn lasts(params: &mut CertificateParams, now: Timestamp, time: Duration) {
    let now = date_time_ymd(1970, 1, 1) + since_epoch(now);
    params.not_before = now - SLACK;
    params.not_after = now + time;
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Reason> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    all.map_err(Reason::because("a certificate is not in PEM"))
}

fn after(now: Timestamp, time: Duration) -> Timestamp {
    now.checked_add(time).unwrap_or(Timestamp::MAX)
}

fn unix(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(since_epoch(time))
}

/// A clock before that time is one that is not set.
fn since_epoch(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
