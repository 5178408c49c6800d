//! Where an image is in a registry: `host[:port]/repository[:tag][@digest]`.

use std::fmt;

use url::Url;
use vmimage::error::printable;
use vmimage::name::Version as Asked;

use crate::sources::provider::{HashAlg, ImageHash};

/// The registry that container tools mean by `docker.io`, and the name that it has on the network.
const HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// Longest repository.
const MAX_REPOSITORY: usize = 255;

/// Why a text names no image of a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no image of a registry: {what}")]
pub struct ReferenceError {
    text: String,
    what: &'static str,
}

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// Host and port as written.
    pub(super) registry: String,
    /// Path of the repository.
    pub(super) repository: String,
    /// Which of its images.
    pub(super) version: Version,
}

/// Which image of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Version {
    /// Whatever the tag stands for.
    Tag(String),
    /// The manifest or index of this digest.
    Digest(ImageHash),
}

impl Reference {
    /// Reads `oci://` and `docker://` URLs. If there is neither tag nor digest in the URL, it is the one that is asked
    /// for, or `latest`.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn of_url(url: &Url, asked: Option<&Asked>) -> Result<Self, ReferenceError> {
        let wrong = |what| ReferenceError { text: crate::sources::net::redacted(url), what };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("a query or fragment"));
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(wrong("no host"))?;
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Self::parse(&format!("{host}{}", url.path()), asked).map_err(|error| wrong(error.what))
    }

    /// Reads a name with its host; as above.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn parse(text: &str, asked: Option<&Asked>) -> Result<Self, ReferenceError> {
        let wrong = |what| ReferenceError { text: printable(text), what };
        let (registry, path) = text.split_once('/').ok_or(wrong("no repository"))?;
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (path, None),
        };
        let (repository, written) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if registry.is_empty() {
            return Err(wrong("no host"));
        }
        let repository = if registry == HUB.0 && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(wrong(
                "the repository must be lower-case letters and digits with `.`, `_`, `-` and `/` between",
            ));
        }
        if !written.is_none_or(is_tag) {
            return Err(wrong("the tag must be 1 to 128 letters, digits, `_`, `.` or `-`"));
        }
        let of_digest = |text: &str| strong(text).ok_or(wrong("the digest must be a SHA-256 or SHA-512"));
        let version = match (digest, written, asked) {
            // With both, the digest says it all.
            (Some(digest), ..) => Version::Digest(of_digest(digest)?),
            (None, Some(tag), _) => Version::Tag(tag.to_owned()),
            (None, None, Some(Asked::Digest(digest))) => Version::Digest(of_digest(&digest.to_string())?),
            (None, None, Some(Asked::Tag(tag))) => Version::Tag(tag.clone()),
            (None, None, None) => Version::Tag("latest".to_owned()),
        };
        Ok(Self { registry: registry.to_owned(), repository, version })
    }

    /// Host and port on the network.
    #[must_use]
    pub(super) fn host(&self) -> &str {
        if self.registry == HUB.0 { HUB.1 } else { &self.registry }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}{}{}", self.registry, self.repository, self.version.mark(), self.version)
    }
}

impl Version {
    fn mark(&self) -> char {
        if matches!(self, Self::Tag(_)) { ':' } else { '@' }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => out.write_str(tag),
            Self::Digest(digest) => digest.fmt(out),
        }
    }
}

/// A digest that nobody can make other bytes for.
pub(super) fn strong(text: &str) -> Option<ImageHash> {
    text.parse().ok().filter(|hash: &ImageHash| matches!(hash.alg(), HashAlg::Sha256 | HashAlg::Sha512))
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*` (OCI distribution specification, pulling manifests).
fn is_component(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let between = bytes.split(|byte| word(*byte)).filter(|joint| !joint.is_empty());
    bytes.first().copied().is_some_and(word) && bytes.last().copied().is_some_and(word) && { between }
        .all(|joint| matches!(joint, b"." | b"_" | b"__") || joint.iter().all(|byte| *byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn url(text: &str) -> Result<String, String> {
        let url = Url::parse(text).expect("a URL");
        Reference::of_url(&url, Some(&Asked::Tag("v2".into())))
            .map(|found| format!("{found} at {}", found.host()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn urls_name_images() {
        for (text, expected) in [
            ("oci://quay.io/containerdisks/fedora:40", "quay.io/containerdisks/fedora:40 at quay.io"),
            ("docker://quay.io/containerdisks/fedora", "quay.io/containerdisks/fedora:v2 at quay.io"),
            ("oci://localhost:5000/a", "localhost:5000/a:v2 at localhost:5000"),
            ("oci://[::1]:5000/a__b-c.d--e:T_.-1", "[::1]:5000/a__b-c.d--e:T_.-1 at [::1]:5000"),
            ("docker://docker.io/debian:12", "docker.io/library/debian:12 at registry-1.docker.io"),
            ("docker://docker.io/kubevirt/cirros", "docker.io/kubevirt/cirros:v2 at registry-1.docker.io"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
        let pinned = format!("oci://host/a@sha256:{HEX}");
        assert_eq!(url(&pinned), Ok(format!("host/a@sha256:{HEX} at host")));
        assert_eq!(url(&pinned.replace("/a@", "/a:tag@")), Ok(format!("host/a@sha256:{HEX} at host")));
        assert_eq!(Reference::parse("h/a", None).map(|found| found.version), Ok(Version::Tag("latest".into())));
    }

    #[test]
    fn anything_else_does_not() {
        for text in [
            "oci://host",
            "oci://host/",
            "oci://host//a",
            "oci://host/a/",
            "oci://host/A",
            "oci://host/a..b",
            "oci://host/a___b",
            "oci://host/-a",
            "oci://host/a-",
            "oci://host/a_/b",
            "oci://host/a:",
            "oci://host/a:.x",
            "oci://host/a:x/y",
            "oci://host/a@sha256:abc",
            "oci://host/a@md5:d41d8cd98f00b204e9800998ecf8427e",
            "oci://host/a@",
            "oci://host/a?x",
            "oci://host/a#x",
            "oci://host/a%2e",
            "oci:a/b",
            "oci:///a",
            "oci://host/a@b@c",
        ] {
            assert!(url(text).is_err(), "{text}: {:?}", url(text));
        }
        assert!(url(&format!("oci://host/{}", "a".repeat(256))).is_err());
        assert!(url(&format!("oci://host/a:{}", "a".repeat(129))).is_err());
        let hidden = Url::parse("oci://user:secret@host/A").expect("a URL");
        assert!(!Reference::of_url(&hidden, None).expect_err("refused").to_string().contains("secret"));
    }
}
