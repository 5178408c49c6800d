//! The `url` of a rule: text with holes, cut up once when the rule is read and filled in one pass, so that nothing that
//! was filled in is read again.
//!
//! | hole | filled with | where |
//! |---|---|---|
//! | `$1`, `${1}`, `$name`, `${name}` | what a group of the regexp matched; nothing if it took no part | rules by `regexp` |
//! | `$$` | a dollar sign | rules by `regexp` |
//! | `{arch}`, `{uname_arch}`, `{dpkg_arch}`, `{os}`, `{os_version}`, `{variant}` | the platform of the one who asks | all rules |
//!
//! As in Go and in `regex`, the longest name wins: `$1_x` is the group `1_x`. Unlike there, a group that does not exist
//! is an error when the rule is read; it would make another URL than was meant.

use common::Reason;
use regex::bytes::{Captures, Regex};
use url::Url;
use vmimage::error::printable;

use super::Protocol;
use crate::sources::provider::{Locator, Platform};

/// A property of the platform that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing(pub(super) &'static str);

/// A URL with holes.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
    Platform(Property),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    Arch,
    UnameArch,
    DpkgArch,
    Os,
    OsVersion,
    Variant,
}

const PROPERTIES: [(&str, Property); 6] = [
    ("arch", Property::Arch),
    ("uname_arch", Property::UnameArch),
    ("dpkg_arch", Property::DpkgArch),
    ("os", Property::Os),
    ("os_version", Property::OsVersion),
    ("variant", Property::Variant),
];

impl Template {
    /// Reads the URL of a rule by name (no `regexp`), where a dollar sign is one, or by regexp.
    pub(super) fn parse(url: &str, regexp: Option<&Regex>) -> Result<Self, Reason> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = url;
        while let Some(at) = rest.find(['$', '{']) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            let (part, length) = match (hole(rest), regexp) {
                (Some((Hole::Dollar, length)), Some(_)) => (Part::Text("$".to_owned()), length),
                (Some((Hole::Group(group), length)), Some(regexp)) => (Part::Group(index_of(group, regexp)?), length),
                (Some((Hole::Word(word), length)), _) => (Part::Platform(property(word)?), length),
                _ => (Part::Text(rest[..1].to_owned()), 1),
            };
            rest = &rest[length..];
            match part {
                Part::Text(more) => text.push_str(&more),
                part => {
                    parts.extend((!text.is_empty()).then(|| Part::Text(std::mem::take(&mut text))));
                    parts.push(part);
                }
            }
        }
        text.push_str(rest);
        parts.extend((!text.is_empty()).then_some(Part::Text(text)));
        let template = Self(parts);
        template.check()?;
        Ok(template)
    }

    /// The URL's text for this match and platform.
    pub(super) fn fill(&self, groups: Option<&Captures<'_>>, platform: &Platform) -> Result<String, Missing> {
        let mut url = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => url.push_str(text),
                Part::Group(index) => {
                    let matched =
                        groups.and_then(|groups| groups.get(*index)).map_or(&[][..], |group| group.as_bytes());
                    // Names are ASCII.
                    url.push_str(&String::from_utf8_lossy(matched));
                }
                Part::Platform(property) => url.push_str(property.of(platform)?),
            }
        }
        Ok(url)
    }

    /// Whether every URL that comes out is one of HTTP, with TLS or without.
    pub(super) fn is_http(&self) -> bool {
        match self.0.first() {
            Some(Part::Text(text)) => {
                text.split_once("://").is_none_or(|(scheme, _)| matches!(scheme, "http" | "https"))
            }
            // It has no scheme of its own: see [`Template::check`].
            _ => true,
        }
    }

    /// Whether every URL that comes out stands a chance.
    fn check(&self) -> Result<(), Reason> {
        let first = match self.0.first() {
            Some(Part::Text(text)) => text.as_str(),
            _ => "",
        };
        let has_scheme = self.0.iter().any(|part| matches!(part, Part::Text(text) if text.contains("://")));
        if has_scheme && !first.contains("://") {
            return Err(Reason::new("its scheme must be written out"));
        }
        // A hole may be in a name, a port or a path: one of these goes there.
        let tried = ["x", "1"].map(|sample| self.0.iter().map(|part| part.sample(sample)).collect::<String>());
        let [name, number] = tried.map(|url| url_of(&url, Protocol::Https));
        name.or(number)?;
        Ok(())
    }
}

impl Part {
    fn sample<'a>(&'a self, of_hole: &'a str) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Group(_) | Self::Platform(_) => of_hole,
        }
    }
}

impl Property {
    fn of(self, platform: &Platform) -> Result<&str, Missing> {
        match self {
            Self::Arch => Ok(&platform.architecture),
            Self::UnameArch => Ok(platform.uname_arch()),
            Self::DpkgArch => Ok(platform.dpkg_arch()),
            Self::Os => Ok(&platform.os),
            Self::OsVersion => platform.os_version.as_deref().ok_or(Missing("os_version")),
            Self::Variant => platform.variant.as_deref().ok_or(Missing("variant")),
        }
    }
}

/// A URL of a rule or made of a name. One without a scheme gets the configured one.
pub(super) fn url_of(text: &str, protocol: Protocol) -> Result<Url, Reason> {
    if text.contains("://") {
        Locator::parse_url(text)
    } else {
        Locator::parse_url(&format!("{}://{text}", protocol.scheme()))
    }
}

enum Hole<'a> {
    Dollar,
    Group(&'a str),
    Word(&'a str),
}

/// The hole that `text` begins with, and its length. Anything else that begins with `$` or `{` is text.
fn hole(text: &str) -> Option<(Hole<'_>, usize)> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if let Some(after) = text.strip_prefix("${") {
        let name = after.split_once('}')?.0;
        return is_name(name).then_some((Hole::Group(name), name.len() + 3));
    }
    if let Some(after) = text.strip_prefix('$') {
        if after.starts_with('$') {
            return Some((Hole::Dollar, 2));
        }
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        return is_name(&after[..end]).then(|| (Hole::Group(&after[..end]), end + 1));
    }
    let word = text.strip_prefix('{')?.split_once('}')?.0;
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_word.then_some((Hole::Word(word), word.len() + 2))
}

fn index_of(group: &str, regexp: &Regex) -> Result<usize, Reason> {
    let index = match group.parse::<usize>() {
        // `$01` is no number to Go either.
        Ok(index) => (group.len() == 1 || !group.starts_with('0')).then_some(index),
        Err(_) => regexp.capture_names().position(|name| name == Some(group)),
    };
    let known = index.filter(|index| *index < regexp.captures_len());
    known.ok_or_else(|| {
        Reason::new(format!(
            "group `{}` is not in its regexp; write `${{1}}` where letters follow, and `$$` for a dollar sign",
            printable(group)
        ))
    })
}

fn property(word: &str) -> Result<Property, Reason> {
    let known = PROPERTIES.iter().find(|(name, _)| *name == word).map(|(_, property)| *property);
    known.ok_or_else(|| {
        Reason::new(format!(
            "`{{{}}}` is not known: there are `{{arch}}`, `{{uname_arch}}`, `{{dpkg_arch}}`, `{{os}}`, \
             `{{os_version}}` and `{{variant}}`; write `%7B` for a brace",
            printable(word)
        ))
    })
}
