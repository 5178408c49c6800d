//! The server on loopback, with a client that trusts its authority.

use std::net::SocketAddr;

use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::certificates::provider;

const HOST: &str = "virtlet-operator.virtlet-system.svc";

struct Rig {
    at: SocketAddr,
    trust: Arc<ClientConfig>,
    presets: Writer<Preset>,
    certificate: watch::Sender<Option<Arc<ServerConfig>>>,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

fn server_of(authority: &CertifiedIssuer<'static, KeyPair>) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::new([HOST.to_owned()])
        .expect("parameters")
        .signed_by(&key, authority)
        .expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![made.into()], key).expect("a pair"))
}

fn trusting(authority: &CertifiedIssuer<'static, KeyPair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).expect("an authority");
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

async fn rig() -> Rig {
    let authority = authority();
    let presets = Writer::new(Group::KubeVirt);
    let (certificate, current) = watch::channel(Some(server_of(&authority)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, current, presets.as_reader()));
    Rig { at, trust: trusting(&authority), presets, certificate }
}

impl Rig {
    fn know(&mut self, presets: Vec<Value>) {
        self.presets.apply_watcher_event(&Event::Init);
        for preset in presets {
            let preset: Preset = serde_json::from_value(preset).expect("a preset");
            self.presets.apply_watcher_event(&Event::InitApply(preset));
        }
        self.presets.apply_watcher_event(&Event::InitDone);
    }

    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.at).await?;
        let name = ServerName::try_from(HOST).expect("a name");
        TlsConnector::from(self.trust.clone()).connect(name, stream).await
    }

    /// Status and body of an answer.
    async fn ask(&self, request: &str, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await.expect("a connection");
        let head =
            format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.expect("asked");
        // It may have been answered before all of it was sent.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }
}

fn preset(name: &str, namespace: &str, cores: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": "7"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "domain": {"cpu": {"cores": cores}}}
    })
}

fn question() -> Vec<u8> {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "operation": "CREATE", "namespace": "n", "object": {
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "x", "namespace": "n", "labels": {"a": "b"}}, "spec": {"domain": {}}
        }}
    })
    .to_string()
    .into_bytes()
}

#[tokio::test]
async fn a_review_is_answered_by_what_is_known() {
    let mut rig = rig().await;
    // Nothing is allowed before all is known.
    assert_eq!(rig.ask("POST /presets?timeout=5s", &question()).await.0, 503);
    rig.know(vec![preset("p", "n", 4), preset("other", "m", 9)]);
    let (status, answer) = rig.ask("POST /presets?timeout=5s", &question()).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(
        (status, &answer["response"]["uid"], &answer["response"]["allowed"]),
        (200, &json!("u-1"), &json!(true))
    );
    assert!(answer["response"]["patch"].is_string(), "{answer}");
    rig.know(vec![preset("p", "n", 4), preset("q", "n", 2)]);
    let (status, answer) = rig.ask("POST /presets", &question()).await;
    assert!(status == 200 && answer.contains("presets `p` and `q` differ: 4 and 2"), "{answer}");
}

#[tokio::test]
async fn what_is_not_asked_here_is_refused() {
    let mut rig = rig().await;
    rig.know(vec![]);
    assert_eq!(rig.ask("POST /other", b"{}").await.0, 404);
    assert_eq!(rig.ask("GET /presets", b"").await.0, 405);
    assert_eq!(rig.ask("POST /presets", b"{}").await.0, 400);
    assert_eq!(rig.ask("POST /presets", &vec![b' '; MAX_BODY + 1]).await.0, 413);
    assert_eq!(rig.ask("POST /presets", &[question(), vec![b' '; MAX_BODY / 2]].concat()).await.0, 200);
}

#[tokio::test]
async fn a_new_certificate_is_shown_at_once_and_none_is_no_connection() {
    let mut rig = rig().await;
    rig.know(vec![]);
    assert!(rig.connect().await.is_ok());
    let next = authority();
    rig.certificate.send_replace(Some(server_of(&next)));
    assert!(rig.connect().await.is_err());
    rig.trust = trusting(&next);
    assert!(rig.connect().await.is_ok());
    rig.certificate.send_replace(None);
    assert!(rig.connect().await.is_err());
}

#[tokio::test]
async fn a_body_that_does_not_come_holds_nobody_for_long() {
    let mut rig = rig().await;
    rig.know(vec![]);
    let mut stream = rig.connect().await.expect("a connection");
    stream.write_all(b"POST /presets HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").await.expect("asked");
    tokio::time::pause();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}
