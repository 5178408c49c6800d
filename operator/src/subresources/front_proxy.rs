//! Who asks: the API server has found out, and says so in headers. It is believed that shows a certificate of the authority that the cluster
//! names for such proxies; from anybody else the same headers say nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::Reason;
use hyper::header::{HeaderMap, HeaderName};
use k8s_openapi::api::core::v1::ConfigMap;
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::common_name::common_name;
use crate::certificates::provider;

/// What the cluster says of its proxies, in ConfigMap `extension-apiserver-authentication` of namespace `kube-system`.
const AUTHORITY: &str = "requestheader-client-ca-file";
const ALLOWED: &str = "requestheader-allowed-names";
const USERS: &str = "requestheader-username-headers";
const UIDS: &str = "requestheader-uid-headers";
const GROUPS: &str = "requestheader-group-headers";
const EXTRAS: &str = "requestheader-extra-headers-prefix";

/// By what proxies are known, and where they write who asks.
#[derive(Debug)]
pub(super) struct FrontProxy {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Common names of proxies; any of the authority's, if there is none.
    allowed: Vec<String>,
    users: Vec<HeaderName>,
    uids: Vec<HeaderName>,
    groups: Vec<HeaderName>,
    /// What names of headers begin with, in small letters.
    extras: Vec<String>,
}

/// Who asks, as the API server found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl FrontProxy {
    /// What the cluster says.
    ///
    /// # Errors
    /// When it names no authority.
    pub(super) fn read(map: &ConfigMap) -> Result<Self, Reason> {
        let none = BTreeMap::new();
        let data = map.data.as_ref().unwrap_or(&none);
        let Some(pem) = data.get(AUTHORITY) else {
            return Err(Reason::new(format!("`{AUTHORITY}` is missing; start kube-apiserver with --{AUTHORITY}")));
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(Reason::because("an authority is not in PEM"))?;
            roots.add(certificate).map_err(Reason::because("an authority is none"))?;
        }
        // Discovery is for who comes without.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).allow_unauthenticated();
        let verifier = verifier.build().map_err(Reason::because("there is no authority"))?;
        let headers = |key| -> Result<Vec<HeaderName>, Reason> {
            let names = list(data, key)?.into_iter().map(HeaderName::try_from);
            names
                .collect::<Result<_, _>>()
                .map_err(|cause| Reason::new(format!("`{key}` has no names of headers")).with(cause))
        };
        Ok(Self {
            verifier,
            allowed: list(data, ALLOWED)?,
            users: headers(USERS)?,
            uids: headers(UIDS)?,
            groups: headers(GROUPS)?,
            extras: list(data, EXTRAS)?.into_iter().map(|prefix| prefix.to_lowercase()).collect(),
        })
    }

    /// How the server speaks TLS that shows this certificate.
    ///
    /// # Errors
    /// When the library cannot.
    pub(super) fn server(&self, shown: &ServerConfig) -> Result<Arc<ServerConfig>, Reason> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(Reason::because("no version of TLS"))?;
        let mut server =
            builder.with_client_cert_verifier(self.verifier.clone()).with_cert_resolver(shown.cert_resolver.clone());
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(server))
    }

    /// Whether a client is a proxy that is believed, by the certificates that it has shown and that TLS has verified.
    pub(super) fn believes(&self, shown: Option<&[CertificateDer<'_>]>) -> bool {
        let Some(leaf) = shown.and_then(<[_]>::first) else { return false };
        self.allowed.is_empty() || common_name(leaf).is_some_and(|name| self.allowed.iter().any(|one| one == name))
    }

    /// Who asks, as a proxy says that is believed; `None` if it does not say.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[HeaderName]| {
            let mut values = names.iter().filter_map(|name| text(headers.get(name)?.as_bytes()));
            values.find(|value| !value.is_empty())
        };
        let groups = self.groups.iter().flat_map(|name| headers.get_all(name));
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in headers {
            let key = self.extras.iter().find_map(|prefix| name.as_str().strip_prefix(&**prefix));
            if let Some(key) = key.and_then(|key| percent_decode_str(key).decode_utf8().ok())
                && let Some(value) = text(value.as_bytes())
            {
                extra.entry(key.into_owned()).or_default().push(value);
            }
        }
        Some(User {
            name: first(&self.users)?,
            uid: first(&self.uids),
            groups: groups.filter_map(|value| text(value.as_bytes())).collect(),
            extra,
        })
    }
}

/// A list of texts, which is JSON; none if there is no such key.
fn list(data: &BTreeMap<String, String>, key: &str) -> Result<Vec<String>, Reason> {
    let Some(text) = data.get(key) else { return Ok(Vec::new()) };
    serde_json::from_str(text).map_err(|cause| Reason::new(format!("`{key}` is no list")).with(cause))
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
    use serde_json::json;

    use super::*;

    fn certificate(name: &str) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate")
    }

    fn proxy(allowed: &str) -> FrontProxy {
        let map = json!({"data": {
            AUTHORITY: certificate("authority").pem(), ALLOWED: allowed, USERS: "[\"X-Remote-User\"]", GROUPS: "[\"X-Remote-Group\"]",
            UIDS: "[\"X-Remote-Uid\"]", EXTRAS: "[\"X-Remote-Extra-\"]",
        }});
        FrontProxy::read(&serde_json::from_value(map).expect("a ConfigMap")).expect("proxies")
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn who_asks_is_read() {
        let said = headers(&[
            ("x-remote-user", "jané"),
            ("x-remote-user", "other"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-extra-example.com%2fscopes", "one"),
            ("x-remote-extra-example.com%2fscopes", "two"),
            ("x-remote-extra", "none"),
        ]);
        let user = proxy("[]").user(&said).expect("somebody");
        assert_eq!((&*user.name, user.uid.as_deref()), ("jané", Some("7")));
        assert_eq!(user.groups, ["a", "system:authenticated"]);
        let extra = [("example.com/scopes".to_owned(), vec!["one".to_owned(), "two".to_owned()])];
        assert_eq!(user.extra, BTreeMap::from(extra));
        assert_eq!(proxy("[]").user(&headers(&[("x-remote-group", "system:masters")])), None);
        assert_eq!(proxy("[]").user(&headers(&[("x-remote-user", "")])), None);
    }

    #[test]
    fn proxies_are_told_by_name() {
        let (front, other) = (certificate("front-proxy-client"), certificate("kubelet"));
        let named = proxy("[\"front-proxy-client\"]");
        assert!(named.believes(Some(&[front.der().clone()])));
        assert!(!named.believes(Some(&[other.der().clone(), front.der().clone()])));
        assert!(!named.believes(Some(&[])) && !named.believes(None));
        // Whoever the authority has signed.
        assert!(proxy("[]").believes(Some(&[other.der().clone()])));
        assert!(!proxy("[]").believes(None));
    }

    #[test]
    fn a_cluster_without_proxies_is_told_so() {
        let read = |data| FrontProxy::read(&serde_json::from_value(json!({"data": data})).expect("a ConfigMap"));
        let told = read(json!({})).expect_err("none").to_string();
        assert!(told.contains("--requestheader-client-ca-file"), "{told}");
        assert!(read(json!({AUTHORITY: ""})).is_err());
        assert!(read(json!({AUTHORITY: certificate("x").pem(), ALLOWED: "front"})).is_err());
        assert!(read(json!({AUTHORITY: certificate("x").pem(), USERS: "[\"a b\"]"})).is_err());
        // Nobody is known by no header.
        let bare = read(json!({AUTHORITY: certificate("x").pem()})).expect("proxies");
        assert_eq!(bare.user(&headers(&[("x-remote-user", "jane")])), None);
    }
}
