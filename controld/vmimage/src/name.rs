//! Image names: what a caller may ask for, checked before anything touches the network or the disk.
//!
//! `reference = [domain "/"] path [":" tag] ["@" digest]`, as container tools write them. The order of parsing matters:
//! an exact digest first, then 64 bare hex characters, then a reference; otherwise `sha256:<hex>` would read as the
//! name `sha256` with a tag, and a lookup by id would find nothing.
//!
//! | part | rule |
//! |---|---|
//! | domain | only before a `/`, and only if it has `.` or `:`, is `localhost` or has upper case: DNS labels, IPv4 or `[IPv6]`, with an optional port |
//! | path | components `[a-z0-9]+`, joined by `.`, `_`, `__` or hyphens; separated by `/` |
//! | name | domain and path together, at most 255 bytes |
//! | tag | `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`, `latest` when there is neither tag nor digest |
//! | digest | `sha256:` with 64, or `sha512:` with 128 lower-case hex characters |

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use common::Reason;

use crate::digest::{Algorithm, Digest, DigestError, ImageId};
use crate::error::printable;

mod made;
#[cfg(test)]
mod tests;

pub use made::{IMPORT, given_url};

/// Longest name (domain and path), in bytes.
const MAX_NAME: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG: usize = 128;

/// Domain and path of an image, without tag and digest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

/// Which one of the images of a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Whatever the name stands for just now.
    Tag(String),
    /// These bytes and no others.
    Digest(Digest),
}

/// A name with a tag or a digest: what an image is bound to. Its text reads back as the same reference.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRef {
    name: ImageName,
    version: Version,
}

/// What a caller asks for: an id, a digest by itself, or a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// `sha256:<hex>` or 64 bare hex characters.
    Id(ImageId),
    /// A digest that is no id, which is SHA-512.
    Digest(Digest),
    Ref(ImageRef),
}

impl ImageName {
    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        if text.is_empty() {
            return Err(Reason::new("empty name"));
        }
        if text.len() > MAX_NAME {
            return Err(Reason::new(format!("name of {} bytes; at most {MAX_NAME} are allowed", text.len())));
        }
        let path = match text.split_once('/') {
            Some((first, rest)) if looks_like_domain(first) => {
                if !is_domain(first) {
                    let first = printable(first);
                    return Err(Reason::new(format!("`{first}` is no host name or address with an optional port")));
                }
                rest
            }
            _ => text,
        };
        path.split('/').try_for_each(check_component)?;
        Ok(Self(text.to_owned()))
    }
}

impl ImageRef {
    /// Domain and path.
    #[must_use]
    pub fn name(&self) -> &ImageName {
        &self.name
    }

    /// Tag or digest.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The digest that the image must have.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }
}

impl FromStr for ImageRef {
    type Err = Reason;

    /// Reads a reference. A digest wins over a tag beside it: the tag says nothing more then.
    fn from_str(text: &str) -> Result<Self, Reason> {
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(Reason::new(format!("a name has no scheme; leave `{}://` out", printable(scheme))));
        }
        let (tagged, digest) = match text.split_once('@') {
            Some((tagged, digest)) => (tagged, Some(parse_digest(digest)?)),
            None => (text, None),
        };
        let last_slash = tagged.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match tagged[last_slash..].rfind(':') {
            Some(at) => (&tagged[..last_slash + at], Some(&tagged[last_slash + at + 1..])),
            None => (tagged, None),
        };
        let name = name.parse()?;
        if let Some(tag) = tag {
            check_tag(tag)?;
        }
        let version = match (digest, tag) {
            (Some(digest), _) => Version::Digest(digest),
            (None, tag) => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { name, version })
    }
}

impl FromStr for Query {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        let algorithm = text.split_once(':').and_then(|(before, _)| Algorithm::named(before));
        if algorithm.is_some() {
            // `sha256:<part of a digest>` would otherwise become an image of the name `sha256`.
            let digest = parse_digest(text)?;
            return Ok(match digest.to_id() {
                Some(id) => Self::Id(id),
                None => Self::Digest(digest),
            });
        }
        match ImageId::from_hex(text) {
            Some(id) => Ok(Self::Id(id)),
            None => Ok(Self::Ref(text.parse()?)),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for ImageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{self}`")
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Version::Tag(tag) => write!(out, "{}:{tag}", self.name),
            Version::Digest(digest) => write!(out, "{}@{digest}", self.name),
        }
    }
}

impl fmt::Debug for ImageRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{self}`")
    }
}

fn looks_like_domain(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    if let Some(bracketed) = domain.strip_prefix('[') {
        let Some((address, after)) = bracketed.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok()
            && (after.is_empty() || after.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
}

fn parse_digest(text: &str) -> Result<Digest, Reason> {
    text.parse().map_err(|error: DigestError| Reason::new(error.to_string()))
}

fn check_component(component: &str) -> Result<(), Reason> {
    if component.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(Reason::new(format!(
            "upper case in the path component `{}`; use a translation alias for such a URL",
            printable(component)
        )));
    }
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    // Cut at the runs of letters and digits: what is left between them are the separators.
    let sound = bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(is_separator);
    if sound {
        return Ok(());
    }
    Err(Reason::new(format!(
        "path component `{}` must be lower-case letters and digits, joined by `.`, `_`, `__` or hyphens",
        printable(component)
    )))
}

fn is_separator(run: &str) -> bool {
    matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-')
}

fn check_tag(tag: &str) -> Result<(), Reason> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let sound = (1..=MAX_TAG).contains(&tag.len()) && tag.bytes().all(allowed) && !tag.starts_with(['.', '-']);
    if sound {
        return Ok(());
    }
    Err(Reason::new(format!(
        "tag `{}` must be 1 to {MAX_TAG} letters, digits, `_`, `.` or `-`, and not begin with `.` or `-`",
        printable(tag)
    )))
}
