//! The TLS part of a profile: authorities to trust, certificates to show, and how servers are verified.
//!
//! Certificates are read together with the profile. One that cannot be used makes the whole profile unusable, so no
//! request is sent with less than its profile asks for.

use std::fmt;
use std::sync::Arc;

use common::Reason;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::der::facts;

/// A certificate or several, and the key that may belong to them; all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateSpec {
    /// Certificates; a key may stand among them.
    pub cert: String,
    pub key: Option<String>,
}

impl fmt::Debug for CertificateSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CertificateSpec(...)")
    }
}

const KIND: &str = "it holds PEM of a kind that is no certificate and no plain key";

/// What a profile adds to TLS.
#[derive(Debug, Default)]
pub(super) struct Identity {
    authorities: Vec<CertificateDer<'static>>,
    shown: Vec<Arc<CertifiedKey>>,
}

impl Identity {
    /// Reads one record.
    pub(super) fn add(&mut self, profile: &str, spec: &CertificateSpec) -> Result<(), Reason> {
        let (mut certificates, mut keys) = (Vec::new(), Vec::new());
        read_pem(&spec.cert, &mut certificates, &mut keys)?;
        if let Some(key) = &spec.key {
            read_pem(key, &mut certificates, &mut keys)?;
        }
        if certificates.is_empty() {
            return Err(Reason::new("it holds no certificate"));
        }
        let mut roots = RootCertStore::empty();
        let mut authorities = Vec::new();
        for certificate in &certificates {
            let unsound = Reason::because("one of its certificates is not sound");
            roots.add(certificate.clone()).map_err(&unsound)?;
            let facts = facts(certificate).ok_or(rustls::CertificateError::BadEncoding.into());
            if facts.map_err(unsound)?.is_authority {
                authorities.push(certificate.clone());
            }
        }
        let mut keys = keys.into_iter();
        match (keys.next(), keys.next()) {
            (_, Some(_)) => Err(Reason::new("it holds more than one key")),
            (Some(key), None) => {
                // Authorities beside a key are links of its chain, and trusted no more than the rest of it.
                self.shown.push(chain(certificates, key)?);
                Ok(())
            }
            (None, None) => {
                if authorities.len() < certificates.len() {
                    tracing::warn!(profile, "certificate of a transport left out: it is no authority and has no key");
                }
                self.authorities.extend(authorities);
                Ok(())
            }
        }
    }

    /// Whether it adds nothing.
    pub(super) fn is_plain(&self) -> bool {
        self.authorities.is_empty() && self.shown.is_empty()
    }

    /// Whether it trusts somebody of its own.
    pub(super) fn has_authorities(&self) -> bool {
        !self.authorities.is_empty()
    }

    /// How to speak to the first server of a request.
    pub(super) fn at_home(&self, roots: &Arc<RootCertStore>, insecure: bool) -> Result<ClientConfig, rustls::Error> {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = if insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        } else {
            builder.with_root_certificates(self.roots(roots)?)
        };
        Ok(match &self.shown[..] {
            [] => builder.with_no_client_auth(),
            shown => builder.with_client_cert_resolver(Arc::new(Shown(shown.to_vec()))),
        })
    }

    /// How to speak to those to whom it leads.
    pub(super) fn abroad(&self, roots: &Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        Ok(builder.with_root_certificates(self.roots(roots)?).with_no_client_auth())
    }

    fn roots(&self, roots: &Arc<RootCertStore>) -> Result<Arc<RootCertStore>, rustls::Error> {
        if self.authorities.is_empty() {
            return Ok(roots.clone());
        }
        let mut roots = RootCertStore::clone(roots);
        for certificate in &self.authorities {
            roots.add(certificate.clone())?;
        }
        Ok(Arc::new(roots))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Sorts the blocks of a PEM text.
fn read_pem(
    text: &str,
    certificates: &mut Vec<CertificateDer<'static>>,
    keys: &mut Vec<PrivateKeyDer<'static>>,
) -> Result<(), Reason> {
    let mut blocks = 0;
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes()) {
        let (kind, der) = section.map_err(Reason::because("it is not sound PEM"))?;
        blocks += 1;
        match kind {
            SectionKind::Certificate => certificates.push(der.into()),
            kind => keys.push(PrivateKeyDer::from_pem(kind, der).ok_or(Reason::new(KIND))?),
        }
    }
    // The parser passes over what it does not know, such as encrypted keys. `EC PARAMETERS` repeat what the key says.
    let begun = text
        .lines()
        .filter(|line| line.strip_prefix("-----BEGIN ").is_some_and(|kind| !kind.starts_with("EC PARAMETERS-----")));
    if begun.count() == blocks { Ok(()) } else { Err(Reason::new(KIND)) }
}

/// The chain of a key: its own certificate first, the others in their order.
fn chain(
    mut certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, Reason> {
    let unusable = Reason::because("its key cannot be used; RSA, EC (P-256, P-384) and Ed25519 can");
    let key = provider().key_provider.load_private_key(key).map_err(unusable)?;
    let is_its = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], key.clone()).keys_match().is_ok()
    };
    let own = certificates.iter().position(is_its).ok_or(Reason::new("its key belongs to none of its certificates"))?;
    certificates[..=own].rotate_right(1);
    Ok(Arc::new(CertifiedKey::new(certificates, key)))
}

/// Shows a server the first chain that it says it takes, or else the first that it can verify.
#[derive(Debug)]
struct Shown(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let usable = || self.0.iter().filter(|chain| chain.key.choose_scheme(schemes).is_some());
        let is_wanted = |chain: &&Arc<CertifiedKey>| {
            chain.cert.iter().any(|certificate| facts(certificate).is_some_and(|facts| issuers.contains(&facts.issuer)))
        };
        usable().find(is_wanted).or_else(|| usable().next()).cloned()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Takes any certificate, as long as the server has its key.
struct AnyServer(Arc<CryptoProvider>);

impl fmt::Debug for AnyServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AnyServer")
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
