//! From a URL to a connection: proxy, resolve, connect, TLS, each under its deadline.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use common::off_reactor;
use hyper::header::HeaderValue;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use url::{Host, Position, Url};

use super::io::Io;
use super::proxy::Proxy;
use super::transport::ProxyChoice;
use super::{EnvProxies, FetchError, MAX_HEAD, NetConfig, NetPolicy, Timeouts, Transport, USER_AGENT};

/// A connection that a request can be sent on.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) io: Io,
    /// Whether a proxy is to read the request, and with which `Proxy-Authorization`.
    pub(super) by_proxy: Option<Option<HeaderValue>>,
}

#[derive(Debug)]
pub(super) struct Dialer {
    timeouts: Timeouts,
    extra_ca: Vec<PathBuf>,
    policy: NetPolicy,
    proxies: EnvProxies,
    /// Read at the first use of https: plain http works where no certificates are installed.
    roots: OnceCell<Arc<RootCertStore>>,
    /// Of the plain profile.
    plain: OnceCell<Arc<ClientConfig>>,
}

impl Dialer {
    pub(super) fn new(config: NetConfig) -> Self {
        let NetConfig { timeouts, extra_ca, policy, proxies, .. } = config;
        Self { timeouts, extra_ca, policy, proxies, roots: OnceCell::new(), plain: OnceCell::new() }
    }

    /// Connects to the server of a URL. `home` says that it is the one that the request was made for; what the profile
    /// has for that one is for no other.
    pub(super) async fn dial(&self, url: &Url, transport: &Transport, home: bool) -> Result<Line, FetchError> {
        let encrypted = match url.scheme() {
            "http" => false,
            "https" => true,
            scheme => return Err(FetchError::Scheme { scheme: scheme.to_owned() }),
        };
        let proxy = match &transport.proxy {
            ProxyChoice::Environment => self.proxies.for_url(url),
            ProxyChoice::Off => None,
            ProxyChoice::Named(proxy) => Some(proxy),
        };
        let mut io = match proxy {
            Some(proxy) => self.connect_proxy(proxy, url).await?,
            None => Io::Tcp(self.connect(url, |address| self.policy.allows(address)).await?),
        };
        if !encrypted {
            return Ok(Line { io, by_proxy: proxy.map(|proxy| proxy.authorization().cloned()) });
        }
        if let Some(proxy) = proxy {
            self.tunnel(&mut io, proxy, url).await?;
        }
        let name = match &transport.server_name {
            Some(name) if home => name.clone(),
            _ => server_name(url)?,
        };
        if home && transport.insecure {
            let server = &url[Position::BeforeHost..Position::AfterPort];
            tracing::warn!(transport = transport.name(), server, "server not verified, as its transport is insecure");
        }
        let config = self.tls_for(transport, home).await?;
        Ok(Line { io: self.encrypt(io, url, name, config).await?, by_proxy: None })
    }

    async fn connect_proxy(&self, proxy: &Proxy, url: &Url) -> Result<Io, FetchError> {
        // The proxy resolves names, and then it is its matter where they lead; an address is the same for both.
        let literal = match url.host() {
            Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
            Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
            _ => None,
        };
        if let Some(address) = literal.filter(|address| !self.policy.allows(*address)) {
            return Err(FetchError::Address { host: url.host_str().unwrap_or_default().to_owned(), address });
        }
        let tcp = self.connect(proxy.url(), |address| self.policy.allows_proxy(address)).await?;
        if proxy.url().scheme() == "http" {
            return Ok(Io::Tcp(tcp));
        }
        let config = self.tls_for(&Transport::plain(), false).await?;
        self.encrypt(Io::Tcp(tcp), proxy.url(), server_name(proxy.url())?, config).await
    }

    /// Has the proxy connect to the server of a URL (RFC 9110, 9.3.6).
    async fn tunnel(&self, io: &mut Io, proxy: &Proxy, url: &Url) -> Result<(), FetchError> {
        let shown = || proxy.url()[Position::BeforeHost..Position::AfterPort].to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        let target = format!("{}:{port}", url.host_str().unwrap_or_default());
        let mut head =
            format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: {USER_AGENT}\r\n").into_bytes();
        if let Some(authorization) = proxy.authorization() {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(authorization.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let answered = async {
            io.write_all(&head).await?;
            io.flush().await?;
            read_head(io).await
        };
        let deadline = self.timeouts.connect;
        let answer = match timeout(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => return Err(FetchError::Tunnel { proxy: shown(), cause }),
            Err(_) => return Err(FetchError::ConnectDeadline { host: target, deadline }),
        };
        match status_of(&answer) {
            Some(200..=299) => Ok(()),
            Some(status) => Err(FetchError::Proxy { proxy: shown(), status }),
            None => Err(FetchError::Tunnel { proxy: shown(), cause: invalid("its answer is no HTTP") }),
        }
    }

    async fn encrypt(
        &self,
        io: Io,
        url: &Url,
        name: ServerName<'static>,
        config: Arc<ClientConfig>,
    ) -> Result<Io, FetchError> {
        let host = || url.host_str().unwrap_or_default().to_owned();
        let deadline = self.timeouts.tls;
        match timeout(deadline, TlsConnector::from(config).connect(name, io)).await {
            Ok(Ok(tls)) => Ok(Io::Tls(Box::new(tls))),
            Ok(Err(cause)) => Err(FetchError::Tls { host: host(), cause }),
            Err(_) => Err(FetchError::TlsDeadline { host: host(), deadline }),
        }
    }

    /// Tries the host's addresses in turn. The deadline is for all of them and the resolver; one that does not answer
    /// gets no more than its share of what is left.
    async fn connect(&self, url: &Url, may: impl Fn(IpAddr) -> bool) -> Result<TcpStream, FetchError> {
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
            if !may(address.ip()) {
                // The first of them tells most: a name that resolves to what is denied is no accident.
                failure.get_or_insert(FetchError::Address { host: name.to_owned(), address: address.ip() });
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

    async fn tls_for(&self, transport: &Transport, home: bool) -> Result<Arc<ClientConfig>, FetchError> {
        let library =
            |cause: rustls::Error| FetchError::Roots { origin: "the TLS library".into(), cause: cause.into() };
        if home && transport.insecure {
            return Ok(Arc::new(transport.identity.at_home(&Arc::new(RootCertStore::empty()), true).map_err(library)?));
        }
        let roots = self.roots.get_or_try_init(|| self.load_roots()).await?;
        if roots.is_empty() && !transport.identity.has_authorities() {
            let cause = "none found; install the package `ca-certificates`".into();
            return Err(FetchError::Roots { origin: "the system".into(), cause });
        }
        if transport.identity.is_plain() {
            let made = || std::future::ready(transport.identity.abroad(roots).map(Arc::new));
            return Ok(self.plain.get_or_try_init(made).await.map_err(library)?.clone());
        }
        let made = if home { transport.identity.at_home(roots, false) } else { transport.identity.abroad(roots) };
        Ok(Arc::new(made.map_err(library)?))
    }

    async fn load_roots(&self) -> Result<Arc<RootCertStore>, FetchError> {
        let files = self.extra_ca.clone();
        Ok(Arc::new(off_reactor(move || load_roots(&files)).await?))
    }
}

async fn resolve(url: &Url, port: u16) -> Result<Vec<SocketAddr>, FetchError> {
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(vec![(address, port).into()]),
        Some(Host::Ipv6(address)) => Ok(vec![(address, port).into()]),
        Some(Host::Domain(name)) => match tokio::net::lookup_host((name, port)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(cause) => Err(FetchError::Resolve { host: name.to_owned(), cause }),
        },
        None => Ok(Vec::new()),
    }
}

/// The name to find in a server's certificate.
fn server_name(url: &Url) -> Result<ServerName<'static>, FetchError> {
    let host = url.host_str().unwrap_or_default();
    let name = match url.host() {
        Some(Host::Ipv4(v4)) => Ok(ServerName::from(IpAddr::V4(v4))),
        Some(Host::Ipv6(v6)) => Ok(ServerName::from(IpAddr::V6(v6))),
        _ => ServerName::try_from(host.to_owned()),
    };
    name.map_err(|cause| FetchError::Tls {
        host: host.to_owned(),
        cause: io::Error::new(io::ErrorKind::InvalidInput, cause),
    })
}

/// Reads an answer that is nothing but a head. Whatever the server says in the tunnel, it says later, as in TLS the
/// client speaks first.
async fn read_head(io: &mut Io) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        if io.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            // A refusal may have a body.
            Some(at) if at + 4 == head.len() || status_of(&head) != Some(200) => return Ok(head),
            Some(_) => return Err(invalid("it speaks for the server")),
            None if head.len() > MAX_HEAD => return Err(invalid("its answer is too long")),
            None => {}
        }
    }
}

fn status_of(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.")?.get(1..)?.strip_prefix(b" ")?;
    std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
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
    Ok(roots)
}
