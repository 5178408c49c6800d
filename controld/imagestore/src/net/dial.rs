//! From a URL to a connection: resolve, connect, TLS, each under its deadline.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{Service as _, service_fn};
use url::Url;

use super::{FetchError, NetConfig, NetPolicy, Timeouts};

/// A connection, encrypted or not.
pub(super) type Io = MaybeHttpsStream<TokioIo<TcpStream>>;

#[derive(Debug)]
pub(super) struct Dialer {
    timeouts: Timeouts,
    extra_ca: Vec<PathBuf>,
    policy: NetPolicy,
    /// Read at the first use of https: plain http works where no certificates are installed.
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Dialer {
    pub(super) fn new(config: NetConfig) -> Self {
        let NetConfig { timeouts, extra_ca, policy } = config;
        Self { timeouts, extra_ca, policy, tls: OnceCell::new() }
    }

    pub(super) async fn dial(&self, url: &Url) -> Result<Io, FetchError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FetchError::Scheme { scheme: url.scheme().to_owned() });
        }
        let tcp = self.connect(url).await?;
        if url.scheme() == "http" {
            return Ok(MaybeHttpsStream::Http(TokioIo::new(tcp)));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let tls = self.tls.get_or_try_init(|| self.load_tls()).await?.clone();
        // The connector wants to connect by itself; it is given what is connected already.
        let mut connected = Some(tcp);
        let inner = service_fn(move |_: Uri| {
            ready(connected.take().map(TokioIo::new).ok_or_else(|| io::Error::other("asked to connect twice")))
        });
        let uri: Uri = url[..url::Position::AfterPath].parse().map_err(FetchError::Uri)?;
        let deadline = self.timeouts.tls;
        match timeout(deadline, HttpsConnector::from((inner, tls)).call(uri)).await {
            Ok(Ok(io)) => Ok(io),
            Ok(Err(cause)) => Err(FetchError::Tls { host, cause }),
            Err(_) => Err(FetchError::TlsDeadline { host, deadline }),
        }
    }

    /// Tries the host's addresses in turn. The deadline is for all of them and the resolver; one that does not answer
    /// gets no more than its share of what is left.
    async fn connect(&self, url: &Url) -> Result<TcpStream, FetchError> {
        let name = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let host = format!("{name}:{port}");
        let deadline = self.timeouts.connect;
        let until = Instant::now() + deadline;
        let late = |_| FetchError::ConnectDeadline { host: host.clone(), deadline };
        let addresses = timeout_at(until, resolve(url, port)).await.map_err(late)??;
        let mut failure = None;
        let count = addresses.len();
        for (tried, address) in addresses.into_iter().enumerate() {
            if !self.policy.allows(address.ip()) {
                failure = Some(FetchError::Address { host: name.to_owned(), address: address.ip() });
                continue;
            }
            let share = until.saturating_duration_since(Instant::now()) / u32::try_from(count - tried).unwrap_or(1);
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => return Ok(tcp),
                Ok(Err(cause)) => failure = Some(FetchError::Connect { host: host.clone(), cause }),
                Err(elapsed) => failure = Some(late(elapsed)),
            }
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
        Err(failure.unwrap_or_else(|| FetchError::Resolve { host: name.to_owned(), cause: none() }))
    }

    async fn load_tls(&self) -> Result<Arc<ClientConfig>, FetchError> {
        let files = self.extra_ca.clone();
        let loaded = tokio::task::spawn_blocking(move || load_roots(&files)).await;
        let roots = loaded
            .map_err(|cause| FetchError::Roots { origin: "the system".into(), cause: cause.into() })
            .and_then(|roots| roots)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|cause| FetchError::Roots { origin: "the TLS library".into(), cause: cause.into() })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

async fn resolve(url: &Url, port: u16) -> Result<Vec<SocketAddr>, FetchError> {
    match url.host() {
        Some(url::Host::Ipv4(address)) => Ok(vec![(address, port).into()]),
        Some(url::Host::Ipv6(address)) => Ok(vec![(address, port).into()]),
        Some(url::Host::Domain(name)) => match tokio::net::lookup_host((name, port)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(cause) => Err(FetchError::Resolve { host: name.to_owned(), cause }),
        },
        None => Ok(Vec::new()),
    }
}

fn load_roots(files: &[PathBuf]) -> Result<RootCertStore, FetchError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (added, _ignored) = roots.add_parsable_certificates(system.certs);
    if let (0, Some(cause)) = (added, system.errors.into_iter().next()) {
        tracing::warn!(%cause, "no certificate authorities of the system");
    }
    for file in files {
        let bad = |cause: Box<dyn std::error::Error + Send + Sync>| FetchError::Roots {
            origin: format!("`{}`", file.display()),
            cause,
        };
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| bad(error.into()))? {
            let certificate = certificate.map_err(|error| bad(error.into()))?;
            roots.add(certificate).map_err(|error| bad(error.into()))?;
        }
        if roots.len() == before {
            return Err(bad("no certificate in it".into()));
        }
    }
    if roots.is_empty() {
        let cause = "none found; install the package `ca-certificates`".into();
        return Err(FetchError::Roots { origin: "the system".into(), cause });
    }
    Ok(roots)
}
