//! The HTTP request that WebSocket begins with (RFC 6455, section 4.2): whether it is right, and what answers it.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    self, CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
};
use hyper::{Method, Response, StatusCode};

use super::VERSION;

/// What a connection changes to.
pub const UPGRADE: &str = "websocket";

/// Whether the client wants to change to this protocol.
#[must_use]
pub fn upgrades(headers: &HeaderMap, to: &str) -> bool {
    lists(headers, CONNECTION.as_str(), "upgrade") && lists(headers, header::UPGRADE.as_str(), to)
}

/// The answer to the client's key. `None` if there is none, or the request is not as the standard has it.
#[must_use]
pub fn accept(method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
    let key = headers.get(SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    let accept = super::accept(key)?;
    let is_right = method == Method::GET && lists(headers, SEC_WEBSOCKET_VERSION.as_str(), VERSION);
    is_right.then(|| HeaderValue::from_str(&accept).ok())?
}

/// What is answered to a client whose key is answered so: the connection is WebSocket from here on.
#[must_use]
pub fn switch(accept: HeaderValue) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(UPGRADE));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// Whether one of a header's values is `wanted`, letter case aside.
#[must_use]
pub fn lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    values(headers, name).any(|value| value.eq_ignore_ascii_case(wanted))
}

/// All values of a header: its lines may be lists.
pub fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}
