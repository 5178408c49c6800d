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

/// What a pod's machine is called: by the host name that kubelet gives it, whole if it is one, or else by the pod's name; either cut to a
/// label, as kubelet does where it makes a host name of a pod's name.
#[must_use]
pub fn host_name<'a>(given: &'a str, pod: &'a str) -> &'a str {
    if is_host_name(given) {
        return given;
    }
    let whole = if given.is_empty() { pod } else { given };
    let fits = whole.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_LABEL).last();
    whole.get(..fits.unwrap_or(0)).unwrap_or_default().trim_end_matches(['-', '.'])
}

/// Whether a text is a label as Kubernetes takes it: 1 to 63 lower-case letters, digits or hyphens, no hyphen at either
/// end.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (1..=MAX_LABEL).contains(&text.len()) && plain && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_the_one_that_is_given_or_the_pods_cut_to_a_label() {
        let (long, dots) = ("a".repeat(70), format!("{}.b", "a".repeat(62)));
        let hyphen = format!("{}-b", "a".repeat(62));
        for (given, pod, wanted) in [
            ("web", "pod", "web"),
            ("", "pod", "pod"),
            ("", &long, &long[..63]),
            ("web.default.svc", "pod", "web.default.svc"),
            // 64 characters, which Linux takes.
            (&dots, "pod", &dots),
            // Nobody's name ends with a hyphen.
            ("", &hyphen, &hyphen[..62]),
            ("", "\u{fc}\u{fc}", "\u{fc}\u{fc}"),
        ] {
            assert_eq!(host_name(given, pod), wanted, "{given} {pod}");
        }
    }
}
