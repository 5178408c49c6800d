//! Certificates: whom to trust, what to show, and to whom.

use std::fs;
use std::sync::{Arc, Mutex};

use imagestore::net::{Ask, CertificateSpec, TransportSpec};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use vmimage::error::ErrorKind;

use crate::asking::{client, client_with, get, text, with};
use crate::rig::Server;

pub(crate) fn record(cert: &str, key: Option<&str>) -> CertificateSpec {
    CertificateSpec { cert: cert.to_owned(), key: key.map(str::to_owned) }
}

/// An authority, below which certificates are made.
struct Authority(CertifiedIssuer<'static, KeyPair>);

struct Made {
    der: Vec<u8>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    /// Each has a name of its own, by which servers say whom they trust.
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority"))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn make(&self, names: &[&str]) -> Made {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let made = CertificateParams::new(names).expect("parameters").signed_by(&key, &self.0).expect("a certificate");
        Made { der: made.der().to_vec(), pem: made.pem(), key }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        Arc::new(roots)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Shows one certificate, and notes for whom it was asked.
#[derive(Debug)]
struct Noting {
    shown: Arc<CertifiedKey>,
    asked: Arc<Mutex<Vec<Option<String>>>>,
}

impl ResolvesServerCert for Noting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.asked.lock().expect("sound").push(hello.server_name().map(str::to_owned));
        Some(self.shown.clone())
    }
}

/// A server with that certificate, which demands one of its clients if it is told whose. Also gives the names that it
/// was asked for.
fn server(
    certificate: &Made,
    clients: Option<&Authority>,
    script: impl Fn(&mut crate::rig::Call<'_>) + Send + Sync + 'static,
) -> (Server, Arc<Mutex<Vec<Option<String>>>>) {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certificate.key.serialize_der()));
    let shown = CertifiedKey::from_der(vec![certificate.der.clone().into()], key, &provider()).expect("a chain");
    let asked = Arc::<Mutex<Vec<_>>>::default();
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    let builder = match clients {
        Some(authority) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(authority.roots(), provider()).build().expect("a verifier"),
        ),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_cert_resolver(Arc::new(Noting { shown: Arc::new(shown), asked: asked.clone() }));
    (Server::with_tls(Arc::new(config), certificate.pem.clone(), script), asked)
}

fn spec(certificates: Vec<CertificateSpec>) -> TransportSpec {
    TransportSpec { certificates, ..TransportSpec::default() }
}

#[tokio::test]
async fn an_authority_of_a_profile_is_trusted_beside_the_others() {
    let (authority, other) = (Authority::new("one"), Authority::new("two"));
    let (server, _) = server(&authority.make(&["127.0.0.1"]), None, |call| call.ok(b"there"));
    let client = client();
    let url = server.url("/");
    let trusting = spec(vec![record(&other.pem(), None), record(&authority.pem(), None)]);
    assert_eq!(text(&client, &with(&url, &trusting)).await.as_deref(), Ok("there"));
    let both = spec(vec![record(&format!("a text\n{}{}", other.pem(), authority.pem()), None)]);
    assert_eq!(text(&client, &with(&url, &both)).await.as_deref(), Ok("there"));
    for certificates in [
        vec![],
        vec![record(&other.pem(), None)],
        // No authority: left out.
        vec![record(server.certificate.as_deref().expect("TLS"), None)],
        // An authority beside a key is a link of its chain.
        vec![{
            let own = authority.make(&["client"]);
            record(&format!("{}{}", own.pem, authority.pem()), Some(&own.key.serialize_pem()))
        }],
    ] {
        let error = client.open(&with(&url, &spec(certificates)), &Ask::default()).await.expect_err("not trusted");
        assert_eq!(error.kind(), ErrorKind::Server);
        assert!(!error.is_unreachable());
        assert!(crate::rig::chain(&error).starts_with("TLS handshake with `127.0.0.1` failed: "), "{error:?}");
    }
    // The same authority by the client's own configuration, and together with a profile.
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ca.pem");
    fs::write(&file, authority.pem()).expect("written");
    let configured = client_with(|config| config.extra_ca = vec![file]);
    assert_eq!(text(&configured, &get(&url)).await.as_deref(), Ok("there"));
    let profile = spec(vec![record(&other.pem(), None)]);
    assert_eq!(text(&configured, &with(&url, &profile)).await.as_deref(), Ok("there"));
}

#[tokio::test]
async fn a_client_shows_its_certificate_to_the_first_server_alone() {
    let (servers, clients) = (Authority::new("one"), Authority::new("two"));
    let (second, _) = server(&servers.make(&["127.0.0.1"]), Some(&clients), |call| call.ok(b"second"));
    let there = second.url("/");
    let (first, _) = server(&servers.make(&["127.0.0.1"]), Some(&clients), move |call| match call.path() {
        "/away" => call.redirect(&there),
        "/again" => call.redirect("/"),
        _ => call.ok(b"first"),
    });
    let own = clients.make(&["client"]);
    let key = own.key.serialize_pem();
    let stranger = Authority::new("another").make(&["client"]);
    let client = client();
    let trusted = record(&servers.pem(), None);
    let showing = spec(vec![
        trusted.clone(),
        // Not of the authority that the server names.
        record(&stranger.pem, Some(&stranger.key.serialize_pem())),
        record(&own.pem, Some(&key)),
    ]);
    assert_eq!(text(&client, &with(&first.url("/"), &showing)).await.as_deref(), Ok("first"));
    assert_eq!(text(&client, &with(&first.url("/again"), &showing)).await.as_deref(), Ok("first"));
    assert_eq!(text(&client, &with(&second.url("/"), &showing)).await.as_deref(), Ok("second"));
    text(&client, &with(&first.url("/away"), &showing)).await.expect_err("nothing shown to the second");
    assert_eq!(second.hits(), 1);
    // The key among the certificates, and those in any order.
    let mixed = format!("{}{key}{}", clients.pem(), own.pem);
    assert_eq!(
        text(&client, &with(&first.url("/"), &spec(vec![trusted.clone(), record(&mixed, None)]))).await.as_deref(),
        Ok("first")
    );
    text(&client, &with(&first.url("/"), &spec(vec![trusted]))).await.expect_err("nothing shown");
}

#[tokio::test]
async fn a_server_name_is_for_the_first_server_alone() {
    let authority = Authority::new("another");
    let named = authority.make(&["images.example"]);
    let (second, asked_second) = server(&authority.make(&["images.example"]), None, |call| call.ok(b"second"));
    let there = second.url("/");
    let (first, asked) = server(&named, None, move |call| match call.path() {
        "/away" => call.redirect(&there),
        _ => call.ok(b"first"),
    });
    let trusted = vec![record(&authority.pem(), None)];
    let naming = TransportSpec { server_name: Some("images.example".into()), ..spec(trusted.clone()) };
    let client = client();
    assert_eq!(text(&client, &with(&first.url("/"), &naming)).await.as_deref(), Ok("first"));
    assert_eq!(asked.lock().expect("sound").pop().flatten().as_deref(), Some("images.example"));
    text(&client, &with(&first.url("/"), &spec(trusted.clone()))).await.expect_err("another name");
    text(&client, &with(&first.url("/away"), &naming)).await.expect_err("another name at the second");
    assert_eq!(*asked_second.lock().expect("sound"), [None]);
    let other = TransportSpec { server_name: Some("other.example".into()), ..spec(trusted) };
    text(&client, &with(&first.url("/"), &other)).await.expect_err("another name");
}

#[tokio::test]
async fn an_insecure_profile_takes_any_first_server() {
    let (second, _) = server(&Authority::new("another").make(&["127.0.0.1"]), None, |call| call.ok(b"second"));
    let there = second.url("/");
    let (first, _) = server(&Authority::new("another").make(&["elsewhere"]), None, move |call| match call.path() {
        "/away" => call.redirect(&there),
        _ => call.ok(b"first"),
    });
    let client = client();
    let insecure = TransportSpec { insecure: true, ..TransportSpec::default() };
    assert_eq!(text(&client, &with(&first.url("/"), &insecure)).await.as_deref(), Ok("first"));
    text(&client, &with(&first.url("/away"), &insecure)).await.expect_err("the second is verified");
    text(&client, &get(&first.url("/"))).await.expect_err("others verify");
}
