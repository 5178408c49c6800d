//! `ps --filter ancestor=IMAGE`: the image that a machine was made of, whole as docker has it, and not a part of its name.

use vmimage::digest::MIN_PREFIX;
use vmimage::name::{ImageRef, Query, Version};

/// An image as a filter names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    text: String,
    query: Query,
}

/// Reads one.
pub(super) fn parse(text: &str) -> Result<Ancestor, String> {
    let query = text.parse::<Query>().map_err(|why| format!("`{text}` is no image: {why}"))?;
    Ok(Ancestor { text: text.to_owned(), query })
}

impl Ancestor {
    /// Whether an image of that name and that id (`sha256:HEX`, or empty) is meant. A name without a tag is any tag's.
    pub(super) fn is(&self, name: &str, id: &str) -> bool {
        let named = name.parse::<ImageRef>();
        let digest = named.as_ref().ok().and_then(ImageRef::digest);
        match &self.query {
            Query::Id(wanted) => wanted.to_string() == id || digest.and_then(|it| it.to_id()).as_ref() == Some(wanted),
            Query::Digest(wanted) => digest == Some(wanted),
            Query::Ref(wanted) => self.begins(id) || named.is_ok_and(|named| self.has_name(wanted, &named)),
        }
    }

    fn has_name(&self, wanted: &ImageRef, named: &ImageRef) -> bool {
        let any_tag = !self.has_version() && matches!(named.version(), Version::Tag(_));
        wanted.name() == named.name() && (any_tag || wanted.version() == named.version())
    }

    /// Whether a tag or a digest was written: a colon in front of a slash is a port's.
    fn has_version(&self) -> bool {
        self.text.rsplit('/').next().is_some_and(|last| last.contains([':', '@']))
    }

    /// Whether an id begins so, as lists show it.
    fn begins(&self, id: &str) -> bool {
        self.text.len() >= MIN_PREFIX && id.strip_prefix("sha256:").is_some_and(|hex| hex.starts_with(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_meant_by_all_of_its_name_or_its_digest() {
        let hex = "ab".repeat(32);
        let (id, by_digest) = (format!("sha256:{hex}"), format!("x/debian@sha256:{hex}"));
        let sha512 = format!("sha512:{}", "cd".repeat(64));
        let by_sha512 = format!("x/debian@{sha512}");
        for (text, name, wanted) in [
            ("x/debian", "x/debian", true),
            ("x/debian", "x/debian:13", true),
            ("x/debian:13", "x/debian:13", true),
            ("x/debian:12", "x/debian:13", false),
            ("x/debian:latest", "x/debian", true),
            ("x/debian:13", "x/debian", false),
            ("debian", "x/debian", false),
            ("x/deb", "x/debian", false),
            ("x/debian.qcow2", "x/debian", false),
            ("h.example:5000/debian", "h.example:5000/debian:13", true),
            ("h.example:5000/debian:12", "h.example:5000/debian:13", false),
            (by_digest.as_str(), by_digest.as_str(), true),
            (by_digest.as_str(), "x/debian", false),
            (sha512.as_str(), by_sha512.as_str(), true),
            (hex.as_str(), "y/other", true),
            (id.as_str(), "y/other", true),
            (&hex[..12], "y/other", true),
            (&hex[..4], "y/other", false),
            ("x/debian", "No Name", false),
        ] {
            assert_eq!(parse(text).expect(text).is(name, &id), wanted, "{text} {name}");
        }
        assert!(!parse(&hex[..12]).expect("a name").is("y/other", ""));
        for text in ["", "x/B", "x/", "sha256:abc", "https://h/x"] {
            assert!(parse(text).expect_err(text).starts_with(&format!("`{text}` is no image: ")));
        }
    }
}
