//! TLS of the client: a server with a certificate of an authority that this node trusts.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Takes up TLS with the server that has this name or address.
pub(super) async fn connect(stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
    let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = tokio::task::spawn_blocking(trusting).await??;
    TlsConnector::from(config).connect(host, stream).await
}

fn trusting() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // Those that cannot be read vouch for nobody.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Arc::new(builder.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth()))
}
