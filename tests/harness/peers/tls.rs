//! A certificate authority of the case, and what it has signed.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// The authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, PEM: what a client has to trust.
    pub certificate: String,
}

/// A certificate with its key, both PEM.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS#8.
    pub key: String,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "authority of the case");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// A server's certificate for these names and addresses.
    ///
    /// # Errors
    /// When a name is none.
    pub fn server(&self, names: &[&str]) -> Result<Signed> {
        self.sign(names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client's certificate.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn client(&self) -> Result<Signed> {
        self.sign(&["client"], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Result<Signed> {
        let mut params = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
        // Not the authority's, or it would be taken for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or_default());
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        Ok(Signed { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}
