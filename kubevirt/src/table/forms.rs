//! Forms that texts have.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A form of texts.
#[derive(Debug)]
pub(crate) struct Form {
    /// What such a text is, for errors.
    pub(crate) what: &'static str,
    /// Most bytes of it.
    pub(crate) most: usize,
    /// All of it as a regular expression, which takes what [`Form::is`] takes, and little else.
    pub(crate) pattern: &'static str,
    pub(crate) is: fn(&str) -> bool,
    /// Whether an error shows nothing of it.
    pub(crate) is_secret: bool,
}

const DNS_LABEL: &str = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
const DNS_NAME: &str = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*";
const QUALIFIED_NAME: &str =
    r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*";
/// Without control characters.
pub(crate) const LINE: &str = r"[^\x00-\x1f\x7f-\x9f]*";
const BASE64_TEXT: &str = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
/// The lowest bit of the first byte says that it is one of a group.
const MAC_ADDRESS: &str = "[0-9A-Fa-f][02468ACEace]((:[0-9A-Fa-f]{2}){5}|(-[0-9A-Fa-f]{2}){5})";
const IP_V4: &str = r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

/// A form of texts that may be seen.
pub(crate) const fn form(what: &'static str, most: usize, pattern: &'static str, is: fn(&str) -> bool) -> Form {
    Form { what, most, pattern, is, is_secret: false }
}

pub(crate) static LABEL: Form =
    form("a DNS label: letters a to z, digits and `-`, at most 63", 63, DNS_LABEL, is_label);
pub(crate) static SUBDOMAIN: Form =
    form("a DNS name: labels of a to z, digits and `-`, with dots", 253, DNS_NAME, is_subdomain);
pub(crate) static TEXT: Form = form("a text", 4096, LINE, is_line);
/// Several lines, such as user-data.
pub(crate) static LINES: Form =
    Form { what: "a text", most: 1 << 20, pattern: r"[^\x00]*", is: |text| !text.contains('\0'), is_secret: true };
pub(crate) static BASE64: Form =
    Form { what: "base64", most: 1 << 20, pattern: BASE64_TEXT, is: is_base64, is_secret: true };
pub(crate) static NAME: Form =
    form("a name of letters, digits, `.`, `_` and `-`", 253, r"[A-Za-z0-9][A-Za-z0-9._-]*", |text| {
        is_plain(text, "._-")
    });
pub(crate) static SERIAL: Form =
    form("a serial of letters, digits and `_.+-`", 256, r"[A-Za-z0-9][A-Za-z0-9_.+-]*", |text| is_plain(text, "_.+-"));
pub(crate) static IMAGE: Form =
    form("the name of an image", 1024, "[!-~]+", |text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()));
pub(crate) static MAC: Form = form("a MAC address of one NIC, as 02:00:00:12:34:56", 17, MAC_ADDRESS, is_mac);
pub(crate) static UUID: Form = form("a UUID", 36, r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", |text| {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
});
pub(crate) static PCI: Form =
    form("a PCI address, as 0000:00:05.0", 12, r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", is_pci);
pub(crate) static QUALIFIED: Form =
    form("a name, with or without a namespace and `/` before it", 317, QUALIFIED_NAME, is_qualified);
pub(crate) static CPU_MODEL: Form =
    form("a CPU model, as host-model or Westmere", 63, r"[A-Za-z0-9][A-Za-z0-9_.+-]*", |text| is_plain(text, "_.+-"));
pub(crate) static MACHINE: Form =
    form("a machine type, as q35, pc-q35-9.2 or virt", 63, r"(q35|pc|virt)(-[A-Za-z0-9.-]*)?", is_machine);
pub(crate) static PAGE_SIZE: Form = form("2Mi or 1Gi", 8, "2Mi|1Gi", |text| text == "2Mi" || text == "1Gi");
pub(crate) static IPV4: Form = form("an IPv4 address", 15, IP_V4, |text| text.parse::<std::net::Ipv4Addr>().is_ok());
pub(crate) static TIMEZONE: Form =
    form("a time zone, as Europe/Rome", 63, r"[A-Za-z0-9][A-Za-z0-9/_+-]*", |text| is_plain(text, "/_+-"));

fn is_plain(text: &str, others: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

fn is_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

pub(crate) fn is_label(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 63
        && is_end(text.chars().next())
        && is_end(text.chars().last())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((namespace, name)) => is_label(namespace) && is_subdomain(name),
        None => is_subdomain(text),
    }
}

fn is_base64(text: &str) -> bool {
    STANDARD.decode(text).is_ok()
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let bytes: Option<Vec<u8>> = text
        .split(separator)
        .map(|byte| if byte.len() == 2 { u8::from_str_radix(byte, 16).ok() } else { None })
        .collect();
    // Not of a group, and not of nobody.
    bytes.is_some_and(|bytes| {
        bytes.len() == 6 && bytes.iter().any(|byte| *byte != 0) && bytes.iter().take(1).all(|byte| byte & 1 == 0)
    })
}

fn is_pci(text: &str) -> bool {
    let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    matches!(parts[..], [domain, bus, slot, function]
        if is_hex(domain, 4) && is_hex(bus, 2) && is_hex(slot, 2) && matches!(function.as_bytes(), [b'0'..=b'7'])
            && text.ends_with(&format!(".{function}")))
}

fn is_machine(text: &str) -> bool {
    let is_of = |name: &str| text == name || text.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    is_plain(text, ".-") && ["q35", "pc", "virt"].into_iter().any(is_of)
}

#[cfg(test)]
mod tests;
