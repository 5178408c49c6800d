//! HTTP(S) for all providers: one request at a time, followed through redirects, over connections of its own.
//!
//! ```text
//! Request + Ask --> [retry: [hops: [dial: proxy, address policy, TLS] --> answer]] --> range::judge --> Opened / Small
//! ```
//!
//! Invariants: every wait has a deadline ([`Timeouts`]); what a caller puts into a request is sent to the origin of its
//! URL alone, and no secret is in an error; a body is given as it was sent, without decoding; a body that is not whole
//! ends in an error; no connection goes to an address that [`NetPolicy`] denies.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

mod address;
mod answer;
mod artifact;
mod der;
mod dial;
mod encoding;
mod error;
mod hops;
mod io;
mod percent;
mod proxy;
mod range;
mod request;
mod retry;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use address::NetPolicy;
pub use artifact::{Artifact, Body, Opened, Small};
use dial::Dialer;
pub use error::FetchError;
use hops::Reply;
pub(crate) use percent::decoded;
pub use proxy::{EnvProxies, ProxyError};
use range::{Range, Verdict};
pub(crate) use request::login_of;
pub use request::{Ask, Auth, Request, Resume, Validators, redacted};
use retry::Outcome;
pub use retry::Retries;
pub use tls::CertificateSpec;
pub use transport::{Transport, TransportSpec};

/// Largest status line and headers.
const MAX_HEAD: usize = 64 * 1024;
const USER_AGENT: &str = concat!("virtlet-rs/", env!("CARGO_PKG_VERSION"));

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
    /// By which proxies, if a profile says nothing.
    pub proxies: EnvProxies,
    /// How often to ask again.
    pub retries: Retries,
}

/// Until when a whole request must be done.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    /// How long that was from its beginning.
    limit: Duration,
}

/// What speaks for all providers.
#[derive(Debug)]
pub struct Client {
    timeouts: Timeouts,
    retries: Retries,
    dialer: Dialer,
}

impl Client {
    /// A client that keeps to `config`.
    #[must_use]
    pub fn new(config: NetConfig) -> Self {
        Self { timeouts: config.timeouts, retries: config.retries, dialer: Dialer::new(config) }
    }

    /// Asks for bytes of any amount.
    ///
    /// # Errors
    /// When there are none, or the server lies about them.
    pub async fn open(&self, request: &Request, ask: &Ask) -> Result<Opened, FetchError> {
        let known = ask.known.as_ref();
        let mut range = Range::of(ask);
        loop {
            let conditions = range::headers(known, range.as_ref());
            let attempt = |deadline| self.follow(request, &conditions, deadline);
            let reply =
                self.repeat(request, attempt, |Reply { answer, .. }| (answer.status(), answer.headers())).await?;
            let Reply { url, answer } = reply;
            let (status, headers, announced) = (answer.status(), answer.headers(), answer.length());
            let verdict = range::judge(status, headers, announced, known, range.as_ref())?;
            let (from, bytes, length) = match verdict {
                Some(Verdict::Unchanged) => return Ok(Opened::Unchanged),
                Some(Verdict::Body { from, bytes, length }) => (from, bytes, length),
                // Once: without a range there is no such verdict.
                Some(Verdict::FromStart) => {
                    range = None;
                    continue;
                }
                None => return Err(FetchError::Status { url: redacted(&url), status: status.as_u16() }),
            };
            let label = encoding::label(headers, &[request.url(), &url])?;
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
                body: match label {
                    // What goes on was looked at when it began.
                    Some(label) if from == 0 => label.judged(answer.into_body(bytes)),
                    _ => answer.into_body(bytes),
                },
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
        let conditions = range::headers(known, None);
        let attempt = |deadline| self.small_once(request, limit, &conditions, deadline);
        self.repeat(request, attempt, |Small { status, headers, .. }| (*status, headers)).await
    }

    async fn small_once(
        &self,
        request: &Request,
        limit: usize,
        conditions: &HeaderMap,
        deadline: Option<Deadline>,
    ) -> Result<Small, FetchError> {
        let Reply { url, answer } = self.follow(request, conditions, deadline).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        encoding::label(&headers, &[])?;
        let announced = answer.length();
        let mut body = answer.into_body(announced);
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

    /// Attempts something until it is done, or another attempt is no use. Only what changes nothing is done twice.
    async fn repeat<T, F: Future<Output = Result<T, FetchError>>>(
        &self,
        request: &Request,
        attempt: impl Fn(Option<Deadline>) -> F,
        answered: impl Fn(&T) -> (StatusCode, &HeaderMap),
    ) -> Result<T, FetchError> {
        let deadline = request.transport().timeout.map(|limit| Deadline { at: Instant::now() + limit, limit });
        let mut done = 0;
        loop {
            let result = match deadline {
                Some(Deadline { at, limit }) => {
                    timeout_at(at, attempt(deadline)).await.unwrap_or(Err(FetchError::Timeout { limit }))
                }
                None => attempt(None).await,
            };
            let outcome = match &result {
                Ok(answer) => {
                    let (status, headers) = answered(answer);
                    Outcome::Answered { status, headers }
                }
                Err(error) => Outcome::Failed(error),
            };
            let wait = self.retries.wait(done, &outcome, SystemTime::now(), random());
            match wait.filter(|_| request.is_safe()) {
                Some(wait) if deadline.is_none_or(|deadline| Instant::now() + wait < deadline.at) => {
                    tracing::debug!(?request, ?outcome, ?wait, "asked again later");
                    drop(result);
                    tokio::time::sleep(wait).await;
                    done += 1;
                }
                _ => return result,
            }
        }
    }
}

/// Spreads those who wait. Every hasher of the standard library has a key of its own.
fn random() -> u16 {
    let [low, high, ..] = RandomState::new().hash_one(0).to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn is_html(value: &HeaderValue) -> bool {
    let text = value.as_bytes().to_ascii_lowercase();
    text.starts_with(b"text/html") || text.starts_with(b"application/xhtml")
}
