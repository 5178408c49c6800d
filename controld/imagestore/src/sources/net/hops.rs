//! Follows one request through redirects: what is sent along, and what is not.
//!
//! The login, the certificates and the headers that a caller gave are for the origin of the request's URL alone. Once a
//! request has left that origin, it never gets them back: a server that redirects back could have it ask for anything.

use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION};
use url::{Position, Url};

use super::answer::Answer;
use super::redacted;
use super::request::Redirects;
use super::{Client, Deadline, FetchError, Request, USER_AGENT};

/// Longest URL that a redirect may lead to: what servers commonly take (RFC 9110, 4.1). Errors and records show it whole.
const LONGEST_TARGET: usize = 8000;

/// An answer and where it came from.
pub(super) struct Reply {
    pub(super) url: Url,
    pub(super) answer: Answer,
}

impl Client {
    /// Sends a request, and sends it again to wherever the answers lead.
    pub(super) async fn follow(
        &self,
        request: &Request,
        conditions: &HeaderMap,
        deadline: Option<Deadline>,
    ) -> Result<Reply, FetchError> {
        let transport = request.transport();
        // What is for the first origin, as long as the request is there.
        let mut private = Some(request.private_headers()?);
        let mut url = request.url().clone();
        for _hop in 0..=transport.max_redirects {
            let answer = self.send(request, &url, private.as_ref(), conditions, deadline).await?;
            if !is_redirect(answer.status()) || *request.redirects() == Redirects::Show {
                return Ok(Reply { url, answer });
            }
            let allow_downgrade = transport.allow_downgrade && *request.redirects() != Redirects::Encrypted;
            let target = redirect_target(&url, answer.headers(), allow_downgrade)?;
            if let Redirects::Below(base) = request.redirects()
                && !is_below(&target, base)
            {
                return Err(FetchError::Confined { url: redacted(&url), target: redacted(&target) });
            }
            if target.origin() != url.origin() {
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
        deadline: Option<Deadline>,
    ) -> Result<Answer, FetchError> {
        let is_home = private.is_some() && !request.is_abroad();
        let line = self.dialer.dial(url, request.transport(), is_home).await?;
        let mut sent = hyper::Request::new(Full::new(request.body().clone()));
        *sent.method_mut() = request.method().clone();
        // A proxy is told the whole URL (RFC 9112, 3.2.2).
        let from = if line.by_proxy.is_some() { Position::BeforeScheme } else { Position::BeforePath };
        *sent.uri_mut() = url[from..Position::AfterQuery].parse().map_err(FetchError::Uri)?;
        let headers = sent.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if let Some(private) = private {
            headers.extend(private.clone());
        }
        headers.extend(conditions.clone());
        headers.insert(HOST, host(url)?);
        headers.insert(hyper::header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // So that the server's close shows where its answer ends.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if let Some(authorization) = line.by_proxy.flatten() {
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        Answer::to(sent, line.io, self.timeouts, deadline).await
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads, if it may be followed.
pub(super) fn redirect_target(from: &Url, headers: &HeaderMap, allow_downgrade: bool) -> Result<Url, FetchError> {
    let from_shown = || redacted(from);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| from.join(location).ok());
    let Some(target) = target else { return Err(FetchError::Location { url: from_shown() }) };
    let length = target.as_str().len();
    if length > LONGEST_TARGET {
        return Err(FetchError::LongLocation { url: from_shown(), length, limit: LONGEST_TARGET });
    }
    match (from.scheme(), target.scheme()) {
        ("https", "http") if !allow_downgrade => {
            Err(FetchError::Downgrade { url: from_shown(), target: redacted(&target) })
        }
        // Credentials that a server invents are no credentials that the operator gave.
        (_, "http" | "https") => Ok(Request::get(target).url().clone()),
        (_, scheme) => Err(FetchError::RedirectScheme { url: from_shown(), scheme: scheme.to_owned() }),
    }
}

/// Whether a URL is on the server of `base` and in or below its directory.
pub(super) fn is_below(url: &Url, base: &Url) -> bool {
    let directory = base.path().rfind('/').map_or("/", |slash| &base.path()[..=slash]);
    // An encoded slash might be one to the server, and take `..` along.
    let odd = url.path().to_ascii_lowercase();
    url.origin() == base.origin() && url.path().starts_with(directory) && !odd.contains("%2f") && !odd.contains("%5c")
}

fn host(url: &Url) -> Result<HeaderValue, FetchError> {
    HeaderValue::try_from(&url[Position::BeforeHost..Position::AfterPort]).map_err(FetchError::Host)
}
