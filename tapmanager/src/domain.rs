//! Domain names that a guest may be told. Pure; used by the servers that tell it: [`crate::dhcp`], [`crate::dhcp6`] and
//! [`crate::ra`].

/// RFC 1035 section 2.3.4: longest label, and longest name on the wire.
const MAX_LABEL: usize = 63;
const MAX_NAME: usize = 255;

/// The name without a trailing dot; `None` if it cannot stand on the wire, or if a guest's scripts might choke on it.
pub(crate) fn domain_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let fits = |label: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=MAX_LABEL).contains(&label.len()) && label.chars().all(plain)
    };
    // On the wire each label has a length before it, and a zero is at the end.
    (name.len() + 2 <= MAX_NAME && name.split('.').all(fits)).then(|| name.to_owned())
}

/// A name that [`domain_name`] gave, as RFC 1035 section 3.1 has it, without compression: not every client unpacks it.
pub(crate) fn on_the_wire(domain: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(domain.len() + 2);
    for label in domain.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}
