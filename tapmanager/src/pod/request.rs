//! What an Attach may say. Called once at the edge; behind it the texts are known to be harmless.
//!
//! The pod's names become `CNI_ARGS` (`key=value;key=value`, so `;` and `=` must not be in them) and lines of a list
//! that has to fit into a packet; host name and search domains become DHCP options.

use proto::tap::{Attach, Dns};

/// RFC 1035 section 2.3.4, and the longest name that Kubernetes gives an object.
pub(super) const MAX_NAME: usize = 253;
/// Kubernetes keeps searches to 32, servers to 3 and options to a few; the rest is room.
const MAX_ENTRIES: usize = 32;

/// A text of an Attach cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of the request {problem}")]
pub(crate) struct BadAttach {
    field: &'static str,
    problem: &'static str,
}

/// Checks the texts of an Attach.
pub(super) fn check(attach: &Attach) -> Result<(), BadAttach> {
    let Attach { pod: _, namespace, name, uid, hostname, dns, .. } = attach;
    check_name("namespace", namespace)?;
    check_name("name", name)?;
    if !uid.is_empty() {
        check_name("uid", uid)?;
    }
    if !hostname.is_empty() {
        check_name("hostname", hostname)?;
    }
    dns.as_ref().map_or(Ok(()), check_dns)
}

fn check_dns(dns: &Dns) -> Result<(), BadAttach> {
    let Dns { servers, searches, options } = dns;
    let lengths = [("dns.servers", servers.len()), ("dns.searches", searches.len()), ("dns.options", options.len())];
    if let Some((field, _)) = lengths.into_iter().find(|(_, len)| *len > MAX_ENTRIES) {
        return Err(BadAttach { field, problem: "has more than 32 entries" });
    }
    searches.iter().try_for_each(|search| check_name("dns.searches", search))?;
    let plain = |option: &String| {
        !option.is_empty() && option.len() <= MAX_NAME && option.chars().all(|c| c.is_ascii_graphic())
    };
    if options.iter().all(plain) {
        return Ok(());
    }
    Err(BadAttach { field: "dns.options", problem: "has an entry that is empty, too long, or not plain ASCII" })
}

fn check_name(field: &'static str, text: &str) -> Result<(), BadAttach> {
    if text.is_empty() || text.len() > MAX_NAME {
        return Err(BadAttach { field, problem: "is not 1 to 253 characters long" });
    }
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Ok(());
    }
    Err(BadAttach { field, problem: "has characters other than letters, digits, `-`, `.` and `_`" })
}

#[cfg(test)]
mod tests;
