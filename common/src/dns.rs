//! What names of Kubernetes objects and of hosts have in common: DNS labels (RFC 1123, 2.1, by way of RFC 1035, 2.3.4).

/// Longest label.
pub const MAX_LABEL: usize = 63;

/// Longest host name that Linux takes (`__NEW_UTS_LEN`), in bytes.
const MAX_HOST_NAME: usize = 64;

/// Whether a text is labels with dots between them, as Kubernetes takes them, which Linux takes for a host name.
#[must_use]
pub fn is_host_name(text: &str) -> bool {
    text.len() <= MAX_HOST_NAME && text.split('.').all(is_label)
}

/// Whether a text is a label as Kubernetes takes it: 1 to 63 lower-case letters, digits or hyphens, no hyphen at either
/// end.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (1..=MAX_LABEL).contains(&text.len()) && plain && !text.starts_with('-') && !text.ends_with('-')
}
