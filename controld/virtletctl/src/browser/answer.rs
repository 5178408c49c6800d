//! Answers, and the headers that each of them has.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

/// What every answer has. No page of others may have ours in it or learn its address, and nothing is kept.
const ALWAYS: [(HeaderName, &str); 6] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (VARY, "accept-encoding"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Says what the page may do.
#[derive(Debug)]
pub(super) struct Answers {
    policy: HeaderValue,
}

impl Answers {
    /// Of a page that is served by these names.
    pub(super) fn new(hosts: &[String]) -> Self {
        let sockets: Vec<_> = hosts.iter().map(|host| format!("ws://{host}")).collect();
        // xterm.js sets its colours and sizes by elements and attributes that it makes: styles, and never scripts. Pictures of noVNC are in
        // the page.
        let policy = format!(
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; \
             connect-src 'self' {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            sockets.join(" ")
        );
        let nothing = HeaderValue::from_static("default-src 'none'");
        Self { policy: HeaderValue::try_from(policy).unwrap_or(nothing) }
    }

    pub(super) fn dress(&self, mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
        let headers = response.headers_mut();
        for (name, value) in ALWAYS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        response
    }
}

pub(super) fn of(mime: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    response
}

pub(super) fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = of("text/plain; charset=utf-8", text);
    *response.status_mut() = status;
    response
}

/// Whether a client has said that it takes gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}
