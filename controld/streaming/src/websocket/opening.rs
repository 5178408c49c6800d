//! The HTTP request that WebSocket begins with (RFC 6455, section 4.2): whether it is right, and what answers it.

use hyper::Method;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};

use super::VERSION;

/// What a connection changes to.
pub(crate) const UPGRADE: &str = "websocket";

/// Whether the client wants to change to this protocol.
pub(crate) fn upgrades(headers: &HeaderMap, to: &str) -> bool {
    lists(headers, CONNECTION.as_str(), "upgrade") && lists(headers, hyper::header::UPGRADE.as_str(), to)
}

/// The answer to the client's key. `None` if there is none, or the request is not as the standard has it.
pub(crate) fn accept(method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
    let key = headers.get(SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    let accept = super::accept(key)?;
    let is_right = method == Method::GET && lists(headers, SEC_WEBSOCKET_VERSION.as_str(), VERSION);
    is_right.then(|| HeaderValue::from_str(&accept).ok())?
}

/// Whether one of a header's values is `wanted`, letter case aside.
fn lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    values(headers, name).any(|value| value.eq_ignore_ascii_case(wanted))
}

/// All values of a header: its lines may be lists.
pub(crate) fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}
