//! From an HTTP request to a session: which requests are right, and what the others are told.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use hyper::{Method, Response, StatusCode};

use super::kinds::Kind;
use super::protocol::Protocol;
use crate::remotecommand;
use crate::websocket::opening::{self, upgrades, values};

/// Why a request gets no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No token of ours.
    UnknownUrl,
    Method,
    NoUpgrade,
    NoVersion,
    OtherVersion(Kind),
    /// Not WebSocket as RFC 6455 has it.
    WebSocket,
    /// A session in channels needs to know them.
    Ports,
    /// There are so many sessions of one container or pod.
    TooManyOfOne(usize),
    /// There are so many sessions.
    TooMany(usize),
}

/// What client and server speak from now on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) protocol: &'static Protocol,
    /// To a WebSocket client: that it is understood.
    accept: Option<HeaderValue>,
}

/// The protocol that the session will speak: the first that the client names of those that this kind of session has.
pub(super) fn check(method: &Method, headers: &HeaderMap, kind: Kind) -> Result<Agreed, Refusal> {
    if method != Method::POST && method != Method::GET {
        return Err(Refusal::Method);
    }
    let protocols = kind.protocols().iter();
    if upgrades(headers, opening::UPGRADE) {
        let accept = Some(opening::accept(method, headers).ok_or(Refusal::WebSocket)?);
        let mut ours = protocols.filter(|protocol| protocol.is_websocket());
        let mut offered = values(headers, SEC_WEBSOCKET_PROTOCOL.as_str()).peekable();
        let protocol = match offered.peek() {
            None => ours.find(|protocol| protocol.name.is_empty()),
            Some(_) => offered.find_map(|name| ours.clone().find(|protocol| protocol.name == name)),
        };
        return protocol.map(|protocol| Agreed { protocol, accept }).ok_or(Refusal::OtherVersion(kind));
    }
    if !upgrades(headers, remotecommand::UPGRADE) {
        return Err(Refusal::NoUpgrade);
    }
    let ours = protocols.filter(|protocol| !protocol.is_websocket());
    let mut offered = values(headers, remotecommand::PROTOCOL_HEADER).peekable();
    if offered.peek().is_none() {
        return Err(Refusal::NoVersion);
    }
    let protocol = offered.find_map(|name| ours.clone().find(|protocol| protocol.name == name));
    protocol.map(|protocol| Agreed { protocol, accept: None }).ok_or(Refusal::OtherVersion(kind))
}

impl Refusal {
    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let (status, why) = match self {
            Self::UnknownUrl => (StatusCode::NOT_FOUND, "no such URL; it may have been used, or be too old"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "use POST or GET"),
            Self::NoUpgrade => {
                (StatusCode::BAD_REQUEST, "only connections that upgrade to SPDY/3.1 or websocket are served here")
            }
            Self::NoVersion => (StatusCode::BAD_REQUEST, "the header X-Stream-Protocol-Version is required"),
            Self::OtherVersion(_) => (StatusCode::FORBIDDEN, "none of the offered versions is spoken here"),
            Self::WebSocket => {
                (StatusCode::BAD_REQUEST, "WebSocket needs GET, version 13 and a key of 16 bytes in base64")
            }
            Self::Ports => (
                StatusCode::BAD_REQUEST,
                "the offered version needs 1 to 32 ports in CRI's request for the URL; others do not",
            ),
            Self::TooManyOfOne(_) | Self::TooMany(_) => (StatusCode::TOO_MANY_REQUESTS, "end some, or try again later"),
        };
        let text = match self {
            Self::TooManyOfOne(most) => format!("this container, or this pod's ports, have {most} sessions; {why}\n"),
            Self::TooMany(most) => format!("the pods of this node have {most} sessions; {why}\n"),
            _ => format!("{why}\n"),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        if let Self::OtherVersion(kind) = self {
            for protocol in kind.protocols().iter().filter(|protocol| !protocol.is_websocket()) {
                let ours = HeaderValue::from_static(protocol.name);
                response.headers_mut().append(remotecommand::ACCEPTED_HEADER, ours);
            }
        }
        response
    }
}

/// The answer to a right request.
pub(super) fn switch(agreed: &Agreed) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    let name = HeaderValue::from_static(agreed.protocol.name);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    match &agreed.accept {
        Some(accept) => {
            headers.insert(UPGRADE, HeaderValue::from_static(opening::UPGRADE));
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept.clone());
            if !name.is_empty() {
                headers.insert(SEC_WEBSOCKET_PROTOCOL, name);
            }
        }
        None => {
            headers.insert(UPGRADE, HeaderValue::from_static(remotecommand::UPGRADE));
            headers.insert(remotecommand::PROTOCOL_HEADER, name);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: &Method, lines: &[(&'static str, &'static str)]) -> StatusCode {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(method, &headers, Kind::Exec).map_or_else(Refusal::response, |agreed| switch(&agreed)).status()
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
        let agreed = check(&Method::POST, &headers, Kind::Exec).expect("both speak v2 and v4");
        assert_eq!(agreed.protocol.name, "v2.channel.k8s.io");
    }

    #[test]
    fn websocket_clients_are_answered() {
        let answer = |method: &Method, kind, more: &[(&'static str, &'static str)]| {
            let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
            let mut headers = HeaderMap::new();
            for (name, value) in upgrade.iter().chain(more) {
                headers.append(*name, HeaderValue::from_static(value));
            }
            check(method, &headers, kind).map_or_else(Refusal::response, |agreed| switch(&agreed))
        };
        // The example of RFC 6455, section 1.3.
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let offer = |names| [key, ("sec-websocket-protocol", names)];
        for (kind, names) in [
            (Kind::Exec, "v5.channel.k8s.io"),
            (Kind::Attach, "v4.base64.channel.k8s.io"),
            (Kind::PortForward, "SPDY/3.1+portforward.k8s.io"),
            (Kind::PortForward, "v4.channel.k8s.io"),
        ] {
            let response = answer(&Method::GET, kind, &offer(names));
            assert_eq!(response.status(), 101, "{names}");
            assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            assert_eq!(response.headers()["sec-websocket-protocol"], names);
        }
        let unnamed = answer(&Method::GET, Kind::Exec, &[key]);
        assert_eq!(unnamed.status(), 101);
        assert_eq!(unnamed.headers().get("sec-websocket-protocol"), None);
        assert_eq!(answer(&Method::GET, Kind::PortForward, &offer("v5.channel.k8s.io")).status(), 403);
        assert_eq!(answer(&Method::POST, Kind::Exec, &[key]).status(), 400);
        assert_eq!(answer(&Method::GET, Kind::Exec, &[("sec-websocket-key", "c2hvcnQ=")]).status(), 400);
        assert_eq!(answer(&Method::GET, Kind::Exec, &[]).status(), 400);
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
