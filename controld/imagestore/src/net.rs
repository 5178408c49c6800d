//! HTTP(S) for all providers: one request at a time, followed through redirects, over connections of its own.
//!
//! ```text
//! Request + Ask --> [redirect loop: address policy, TLS, one GET] --> range::judge --> Opened / Small
//! ```
//!
//! Invariants: every wait has a deadline ([`Timeouts`]); whatever a caller put into a request goes to the origin of its
//! URL alone, and no secret into an error; a body is what came over the wire, never decoded; a body that is not whole
//! ends in an error; no connection goes to an address that [`NetPolicy`] denies.

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION,
    TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use url::{Position, Url};

use crate::provider::redacted;

mod address;
mod answer;
mod artifact;
mod dial;
mod error;
mod range;
mod request;
#[cfg(test)]
mod tests;
mod transport;

pub use address::NetPolicy;
use answer::Answer;
pub use artifact::{Artifact, Body, Opened, Small};
use dial::Dialer;
pub use error::FetchError;
use range::{Range, Verdict};
pub use request::{Ask, Auth, Request, Resume, Validators};
pub use transport::{CertificateSpec, Transport, TransportError, TransportSpec};

/// Largest status line and headers.
const MAX_HEAD: usize = 64 * 1024;

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

/// How all providers speak.
#[derive(Debug, Clone, Default)]
pub struct NetConfig {
    /// Deadlines.
    pub timeouts: Timeouts,
    /// PEM files of certificate authorities that are trusted beside the system's.
    pub extra_ca: Vec<PathBuf>,
    /// Where to.
    pub policy: NetPolicy,
}

/// What speaks for all providers.
#[derive(Debug)]
pub struct Client {
    timeouts: Timeouts,
    dialer: Dialer,
}

/// An answer and where it came from.
struct Reply {
    url: Url,
    answer: Answer,
}

impl Client {
    /// A client that keeps to `config`.
    #[must_use]
    pub fn new(config: NetConfig) -> Self {
        Self { timeouts: config.timeouts, dialer: Dialer::new(config) }
    }

    /// Asks for bytes of any amount.
    ///
    /// # Errors
    /// When there are none, or the server lies about them.
    pub async fn open(&self, request: &Request, ask: &Ask) -> Result<Opened, FetchError> {
        let known = ask.known.as_ref();
        let mut range = Range::of(ask);
        loop {
            let Reply { url, answer } = self.ask(request, range::headers(known, range.as_ref())).await?;
            let (status, headers, announced) = (answer.status(), answer.headers(), answer.length());
            let verdict = range::judge(status, headers, announced, known, range.as_ref())?;
            let (from, length) = match verdict {
                Some(Verdict::Unchanged) => return Ok(Opened::Unchanged),
                Some(Verdict::Body { from, length }) => (from, length),
                // Once: without a range there is no such verdict.
                Some(Verdict::FromStart) => {
                    range = None;
                    continue;
                }
                None => return Err(FetchError::Status { url: redacted(&url), status: status.as_u16() }),
            };
            refuse_encoding(headers)?;
            if length == Some(0) {
                return Err(FetchError::Empty);
            }
            let validators = range::validators(headers);
            return Ok(Opened::Artifact(Artifact {
                length,
                from,
                delimited: announced.is_some() || headers.contains_key(TRANSFER_ENCODING),
                web_page: headers.get(CONTENT_TYPE).is_some_and(is_html),
                resumable: length.is_some() && range::is_resumable(status, headers, &validators),
                validators,
                body: Box::new(answer.into_body()),
            }));
        }
    }

    /// Asks for an answer of any status, of `limit` bytes at most.
    ///
    /// # Errors
    /// When there is no answer, or a larger one.
    pub async fn small(
        &self,
        request: &Request,
        limit: usize,
        known: Option<&Validators>,
    ) -> Result<Small, FetchError> {
        let Reply { url, answer } = self.ask(request, range::headers(known, None)).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        refuse_encoding(&headers)?;
        let mut body = answer.into_body();
        let mut bytes = vec![0; limit.saturating_add(1).min(64 * 1024)];
        let mut filled = 0;
        loop {
            match body.read(&mut bytes[filled..]).await? {
                0 => break,
                count => filled += count,
            }
            if filled > limit {
                return Err(FetchError::TooLarge { url: redacted(&url), limit });
            }
            if filled == bytes.len() {
                bytes.resize(filled.saturating_mul(2).min(limit.saturating_add(1)), 0);
            }
        }
        bytes.truncate(filled);
        let validators = range::validators(&headers);
        Ok(Small { status, headers, url, body: bytes.into(), validators })
    }

    /// Asks for JSON.
    ///
    /// # Errors
    /// When there is none of that kind.
    pub async fn json<T: DeserializeOwned>(&self, request: &Request, limit: usize) -> Result<T, FetchError> {
        let Small { status, url, body, .. } = self.small(request, limit, None).await?;
        if !status.is_success() {
            return Err(FetchError::Status { url: redacted(&url), status: status.as_u16() });
        }
        serde_json::from_slice(&body).map_err(|cause| FetchError::Json { url: redacted(&url), cause })
    }

    /// Sends a request, and sends it again to wherever the answers lead.
    async fn ask(&self, request: &Request, conditions: HeaderMap) -> Result<Reply, FetchError> {
        let transport = request.transport();
        let mut private = Some(request.private_headers()?);
        let mut url = request.url().clone();
        for _hop in 0..=transport.max_redirects {
            let answer = self.send(request, &url, private.as_ref(), &conditions).await?;
            if !is_redirect(answer.status()) || request.method() == Method::POST {
                return Ok(Reply { url, answer });
            }
            let target = redirect_target(&url, answer.headers(), transport.allow_downgrade)?;
            if target.origin() != url.origin() {
                // For good: who was redirected back may have been redirected to anything there.
                private = None;
            }
            url = target;
        }
        Err(FetchError::Redirects { limit: transport.max_redirects })
    }

    async fn send(
        &self,
        request: &Request,
        url: &Url,
        private: Option<&HeaderMap>,
        conditions: &HeaderMap,
    ) -> Result<Answer, FetchError> {
        let io = self.dialer.dial(url).await?;
        let mut sent = hyper::Request::new(Full::new(request.body().clone()));
        *sent.method_mut() = request.method().clone();
        *sent.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse().map_err(FetchError::Uri)?;
        let headers = sent.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if let Some(private) = private {
            headers.extend(private.clone());
        }
        headers.extend(conditions.clone());
        headers.insert(HOST, host(url)?);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("virtlet-rs/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // So that the server's close shows where its answer ends.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Answer::to(sent, io, self.timeouts).await
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads, if it may be followed.
fn redirect_target(from: &Url, headers: &HeaderMap, allow_downgrade: bool) -> Result<Url, FetchError> {
    let from_shown = || redacted(from);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| from.join(location).ok());
    let Some(target) = target else { return Err(FetchError::Location { url: from_shown() }) };
    match (from.scheme(), target.scheme()) {
        ("https", "http") if !allow_downgrade => {
            Err(FetchError::Downgrade { url: from_shown(), target: redacted(&target) })
        }
        // Credentials that a server invents are no credentials that the operator gave.
        (_, "http" | "https") => Ok(Request::get(target).url().clone()),
        (_, scheme) => Err(FetchError::RedirectScheme { url: from_shown(), scheme: scheme.to_owned() }),
    }
}

fn host(url: &Url) -> Result<HeaderValue, FetchError> {
    HeaderValue::try_from(&url[Position::BeforeHost..Position::AfterPort]).map_err(FetchError::Host)
}

/// Nothing is ever decoded because a header says so.
fn refuse_encoding(headers: &HeaderMap) -> Result<(), FetchError> {
    let encoding = headers.get_all(CONTENT_ENCODING).iter().find(|value| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    });
    match encoding {
        Some(encoding) => {
            Err(FetchError::Encoded { encoding: crate::name::printable(&String::from_utf8_lossy(encoding.as_bytes())) })
        }
        None => Ok(()),
    }
}

fn is_html(value: &HeaderValue) -> bool {
    let text = value.as_bytes().to_ascii_lowercase();
    text.starts_with(b"text/html") || text.starts_with(b"application/xhtml")
}
