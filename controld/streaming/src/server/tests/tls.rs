//! Sessions over TLS.

use std::path::Path;

use rcgen::{CertificateParams, KeyPair};

use super::*;

/// A certificate for 127.0.0.1 of its own authority, and its key.
fn made() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

fn written(dir: &Path, (certificate, key): &(String, String)) -> TlsFiles {
    let files = TlsFiles { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
    std::fs::write(&files.certificate, certificate).expect("written");
    std::fs::write(&files.key, key).expect("written");
    files
}

async fn server_with(files: TlsFiles, backend: Arc<Fake>) -> Result<Server, StartError> {
    let config = Config::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    Server::bind(Config { tls: Some(files), ..config }, backend).await
}

/// A connection to the server by a client that trusts this certificate and no other.
async fn client(
    server: &Server,
    (trusted, _): &(String, String),
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    let trusted = rustls::pki_types::CertificateDer::from_pem_slice(trusted.as_bytes()).expect("a certificate");
    roots.add(trusted).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await?;
    let name = "127.0.0.1".try_into().expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn the_certificate_is_the_one_that_its_files_hold_now() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (made(), made());
    let files = written(dir.path(), &first);
    let (backend, _seen) = Fake::new(Does::Echo);
    let server = server_with(files.clone(), backend).await.expect("it serves");
    let url = server.attach_url(request(true, false)).expect("a URL");
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    client(&server, &first).await.expect("trusted");
    client(&server, &second).await.expect_err("of another");
    // One of both is new, the other one not yet.
    std::fs::write(&files.certificate, &second.0).expect("written");
    client(&server, &first).await.expect("the pair before");
    std::fs::remove_file(&files.key).expect("removed");
    client(&server, &first).await.expect("the pair before");
    std::fs::write(&files.key, &second.1).expect("written");
    client(&server, &second).await.expect("the new pair");
    client(&server, &first).await.expect_err("it is of no use any more");
}

#[tokio::test]
async fn an_answer_comes_over_tls_and_none_without() {
    let dir = tempfile::tempdir().expect("a directory");
    let pair = made();
    let (backend, _seen) = Fake::new(Does::Echo);
    let server = server_with(written(dir.path(), &pair), backend).await.expect("it serves");
    let mut stream = client(&server, &pair).await.expect("trusted");
    stream.write_all(b"GET /attach/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("written");
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.expect("read");
    assert!(answer.starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&answer));
    // Our client trusts whom the node trusts.
    let url = server.attach_url(request(true, false)).expect("a URL");
    let options = Options { stdin: true, stdout: true, stderr: false, tty: true };
    let refused = client::attach(&url, options).await.expect_err("nobody vouches for it");
    assert!(matches!(refused, client::AttachError::Tls { .. }), "{refused}");
    let plain = client::attach(&url.replace("https", "http"), options).await.expect_err("no HTTP");
    assert!(matches!(plain, client::AttachError::Http(_)), "{plain}");
}

#[tokio::test]
async fn files_that_are_no_certificate_and_no_key_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, other) = (made(), made());
    for (pair, part) in [
        ((String::new(), one.1.clone()), "no certificate in `"),
        ((one.0.clone(), "none".to_owned()), "no private key in `"),
        ((one.0.clone(), other.1.clone()), "cannot be used"),
    ] {
        let (backend, _seen) = Fake::new(Does::Echo);
        let refused = server_with(written(dir.path(), &pair), backend).await.expect_err(part).to_string();
        assert!(refused.contains(part), "{refused}");
    }
    let (backend, _seen) = Fake::new(Does::Echo);
    let absent = TlsFiles { certificate: dir.path().join("none"), key: dir.path().join("none") };
    let refused = server_with(absent, backend).await.expect_err("no file").to_string();
    assert!(refused.contains("/none`"), "{refused}");
}
