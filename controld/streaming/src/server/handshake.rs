//! From an HTTP request to a session: which requests are right, and what the others are told.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::{Method, Response, StatusCode};

use super::protocol::Protocol;
use super::requests::Kind;
use crate::remotecommand;

/// Why a request gets no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No token of ours.
    UnknownUrl,
    Method,
    NoUpgrade,
    NoVersion,
    OtherVersion(Kind),
}

/// The protocol that the session will speak: the first that the client names of those that this kind of session has.
pub(super) fn check(method: &Method, headers: &HeaderMap, kind: Kind) -> Result<&'static Protocol, Refusal> {
    if method != Method::POST && method != Method::GET {
        return Err(Refusal::Method);
    }
    if !lists(headers, CONNECTION.as_str(), "upgrade") || !lists(headers, UPGRADE.as_str(), remotecommand::UPGRADE) {
        return Err(Refusal::NoUpgrade);
    }
    let mut offered = values(headers, remotecommand::PROTOCOL_HEADER).peekable();
    if offered.peek().is_none() {
        return Err(Refusal::NoVersion);
    }
    let ours = |name: &str| kind.protocols().iter().find(|protocol| protocol.name == name);
    offered.find_map(ours).ok_or(Refusal::OtherVersion(kind))
}

impl Refusal {
    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let (status, why) = match self {
            Self::UnknownUrl => (StatusCode::NOT_FOUND, "no such URL; it may have been used, or be too old"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "use POST or GET"),
            Self::NoUpgrade => (StatusCode::BAD_REQUEST, "only connections that upgrade to SPDY/3.1 are served here"),
            Self::NoVersion => (StatusCode::BAD_REQUEST, "the header X-Stream-Protocol-Version is required"),
            Self::OtherVersion(_) => (StatusCode::FORBIDDEN, "none of the offered versions is spoken here"),
        };
        let mut response = Response::new(Full::from(format!("{why}\n")));
        *response.status_mut() = status;
        if let Self::OtherVersion(kind) = self {
            for protocol in kind.protocols() {
                let ours = HeaderValue::from_static(protocol.name);
                response.headers_mut().append(remotecommand::ACCEPTED_HEADER, ours);
            }
        }
        response
    }
}

/// The answer to a right request.
pub(super) fn switch(protocol: &Protocol) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(remotecommand::UPGRADE));
    headers.insert(remotecommand::PROTOCOL_HEADER, HeaderValue::from_static(protocol.name));
    response
}

/// Whether one of a header's values is `wanted`, letter case aside.
fn lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    values(headers, name).any(|value| value.eq_ignore_ascii_case(wanted))
}

/// All values of a header: its lines may be lists.
fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: &Method, lines: &[(&'static str, &'static str)]) -> StatusCode {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(method, &headers, Kind::Exec).map_or_else(Refusal::response, switch).status()
    }

    #[test]
    fn requests_are_judged() {
        let upgrade = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let version = "x-stream-protocol-version";
        let with = |more: &[(&'static str, &'static str)]| [&upgrade[..], more].concat();
        for (lines, expected) in [
            (with(&[(version, "v5.channel.k8s.io"), (version, "v4.channel.k8s.io")]), 101),
            (with(&[(version, "v5.channel.k8s.io, v4.channel.k8s.io,v1")]), 101),
            (with(&[(version, "v5.channel.k8s.io")]), 403),
            (with(&[(version, "")]), 400),
            (with(&[]), 400),
            (vec![("upgrade", "SPDY/3.1"), (version, "v4.channel.k8s.io")], 400),
            (vec![("connection", "upgrade"), ("upgrade", "websocket"), (version, "v4.channel.k8s.io")], 400),
            (vec![("connection", "keep-alive, upgrade"), ("upgrade", "spdy/3.1"), (version, "v4.channel.k8s.io")], 101),
        ] {
            assert_eq!(answer(&Method::POST, &lines), expected, "{lines:?}");
            assert_eq!(answer(&Method::GET, &lines), expected, "{lines:?}");
        }
        assert_eq!(answer(&Method::PUT, &with(&[(version, "v4.channel.k8s.io")])), 405);
    }

    #[test]
    fn the_first_version_that_both_speak_is_taken() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("SPDY/3.1"));
        headers.insert(
            "x-stream-protocol-version",
            HeaderValue::from_static("v5.channel.k8s.io,v2.channel.k8s.io,v4.channel.k8s.io"),
        );
        let protocol = check(&Method::POST, &headers, Kind::Exec).expect("both speak v2 and v4");
        assert_eq!(protocol.name, "v2.channel.k8s.io");
    }

    #[test]
    fn a_client_without_our_version_is_told_it() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("SPDY/3.1"));
        headers.insert("x-stream-protocol-version", HeaderValue::from_static("v9"));
        let refusal = check(&Method::POST, &headers, Kind::Attach).expect_err("v9").response();
        let accepted: Vec<_> = refusal.headers().get_all("x-accepted-stream-protocol-versions").iter().collect();
        assert_eq!(accepted, ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"]);
    }
}
