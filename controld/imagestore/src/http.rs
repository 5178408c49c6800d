//! The HTTP(S) provider: one GET, followed through redirects, over a connection of its own.
//!
//! Invariants: every wait has a deadline ([`Timeouts`]); credentials of a URL go to its origin alone and never into an
//! error; a body is what came over the wire, never decoded; a body that is not whole ends in an error. Nothing is
//! retried: whoever asked for the image (kubelet) asks again, with a delay that grows.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::Empty;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HOST, HeaderMap,
    HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Request, StatusCode};
use url::{Position, Url};

use crate::source::{Artifact, Locator, Provider, redacted};

mod body;
mod dial;
mod error;
#[cfg(test)]
mod tests;

use body::Answer;
use dial::Dialer;
pub use error::FetchError;

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 9;
/// Largest status line and headers.
const MAX_HEAD: usize = 64 * 1024;
/// Longest validator that is worth keeping.
const MAX_VALIDATOR: usize = 1024;

/// Deadlines of a download.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// From the host's name to a TCP connection; default 30 s.
    pub connect: Duration,
    /// The TLS handshake; default 10 s.
    pub tls: Duration,
    /// How long a server may stay silent, and within which [`Timeouts::stall_bytes`] must come; default 60 s.
    pub stall: Duration,
    /// What must come within each [`Timeouts::stall`], so that drops cannot hold a download for ever; default 64 KiB.
    pub stall_bytes: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            tls: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            stall_bytes: 64 * 1024,
        }
    }
}

/// How the provider speaks.
#[derive(Debug, Clone, Default)]
pub struct HttpConfig {
    /// Deadlines.
    pub timeouts: Timeouts,
    /// PEM files of certificate authorities that are trusted beside the system's.
    pub extra_ca: Vec<PathBuf>,
}

/// The provider.
#[derive(Debug)]
pub(crate) struct Http {
    timeouts: Timeouts,
    dialer: Dialer,
}

impl Http {
    pub(crate) fn new(config: HttpConfig) -> Self {
        Self { timeouts: config.timeouts, dialer: Dialer::new(config.timeouts, config.extra_ca) }
    }

    async fn get(&self, locator: &Locator) -> Result<Artifact, FetchError> {
        let credentials = Credentials::of(locator.url());
        let mut url = without_credentials(locator.url());
        for _hop in 0..=MAX_REDIRECTS {
            let answer = self.ask(&url, credentials.as_ref()).await?;
            let status = answer.status();
            if !is_redirect(status) {
                return self.accept(&url, answer);
            }
            url = redirect_target(&url, answer.headers())?;
        }
        Err(FetchError::Redirects { limit: MAX_REDIRECTS })
    }

    async fn ask(&self, url: &Url, credentials: Option<&Credentials>) -> Result<Answer, FetchError> {
        let io = self.dialer.dial(url).await?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse().map_err(FetchError::Uri)?;
        let headers = request.headers_mut();
        headers.insert(HOST, header(&url[Position::BeforeHost..Position::AfterPort])?);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("virtlet-rs/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // So that the server's close shows where its answer ends.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if let Some(credentials) = credentials.filter(|credentials| credentials.origin == url.origin()) {
            headers.insert(AUTHORIZATION, credentials.header.clone());
        }
        Answer::to(request, io, self.timeouts).await
    }

    fn accept(&self, url: &Url, answer: Answer) -> Result<Artifact, FetchError> {
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(FetchError::Status { url: redacted(url), status: status.as_u16() });
        }
        let headers = answer.headers();
        if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|value| !value.is_empty() && *value != "identity")
        {
            let encoding = crate::name::printable(&String::from_utf8_lossy(encoding.as_bytes()));
            return Err(FetchError::Encoded { encoding });
        }
        let length = answer.length();
        if length == Some(0) {
            return Err(FetchError::Empty);
        }
        Ok(Artifact {
            length,
            delimited: length.is_some() || headers.contains_key(TRANSFER_ENCODING),
            web_page: headers.get(CONTENT_TYPE).is_some_and(is_html),
            etag: kept(headers, &ETAG),
            last_modified: kept(headers, &LAST_MODIFIED),
            body: answer.into_stream(),
        })
    }
}

impl Provider for Http {
    fn open<'a>(&'a self, locator: &'a Locator) -> BoxFuture<'a, Result<Artifact, FetchError>> {
        self.get(locator).boxed()
    }
}

/// What the user part of a URL gives, and to whom.
struct Credentials {
    origin: url::Origin,
    header: HeaderValue,
}

impl Credentials {
    fn of(url: &Url) -> Option<Self> {
        if url.username().is_empty() && url.password().is_none() {
            return None;
        }
        let mut pair = decoded(url.username());
        pair.push(b':');
        pair.extend(decoded(url.password().unwrap_or_default()));
        let value = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
        // Base64 is always a sound header value.
        let mut header = HeaderValue::try_from(value).ok()?;
        header.set_sensitive(true);
        Some(Self { origin: url.origin(), header })
    }
}

/// Percent-decoding, as the user part of a URL needs it.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digits = (byte == b'%').then(|| Some((hex_digit(ahead.next()?)?, hex_digit(ahead.next()?)?))).flatten();
        match digits {
            Some((high, low)) => {
                out.push(high << 4 | low);
                bytes = ahead;
            }
            None => out.push(byte),
        }
    }
    out
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads, if it may be followed.
fn redirect_target(from: &Url, headers: &HeaderMap) -> Result<Url, FetchError> {
    let from_shown = || redacted(from);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| from.join(location).ok());
    let Some(target) = target else { return Err(FetchError::Location { url: from_shown() }) };
    match (from.scheme(), target.scheme()) {
        ("https", "http") => Err(FetchError::Downgrade { url: from_shown(), target: redacted(&target) }),
        // Credentials that a server invents are no credentials that the operator gave.
        (_, "http" | "https") => Ok(without_credentials(&target)),
        (_, scheme) => Err(FetchError::RedirectScheme { url: from_shown(), scheme: scheme.to_owned() }),
    }
}

fn without_credentials(url: &Url) -> Url {
    let mut bare = url.clone();
    // These fail only for URLs that cannot have a user part, such as have no host.
    let _ = bare.set_username("");
    let _ = bare.set_password(None);
    bare.set_fragment(None);
    bare
}

fn header(text: &str) -> Result<HeaderValue, FetchError> {
    HeaderValue::try_from(text).map_err(FetchError::Host)
}

fn is_html(value: &HeaderValue) -> bool {
    let text = value.as_bytes().to_ascii_lowercase();
    text.starts_with(b"text/html") || text.starts_with(b"application/xhtml")
}

fn kept(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (value.len() <= MAX_VALIDATOR).then(|| value.to_owned())
}
