//! One translation file: YAML (JSON is YAML too) of the form
//!
//! ```yaml
//! prefix: my-prefix          # optional
//! translations:
//! - name: cirros
//!   url: https://example.net/CirrOS.qcow2
//! ```
//!
//! An unknown key spoils the file, a bad rule only itself. Keys of rules that are not built yet (`regexp`,
//! `transport`, `transports`) are refused by name: dropping them silently would download by other means than asked.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Protocol, Rule, RuleFile, parse_url};
use crate::provider::LocatorError;

/// Most rules of one file.
const MAX_RULES: usize = 10_000;

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No YAML, or keys that a translation file does not have.
    #[error("not a translation file: {reason}")]
    Syntax {
        /// The parser's words, on one line.
        reason: String,
    },
    /// A key that this version does not know how to obey.
    #[error("`{key}` is not supported yet; take it out or the whole file stays unused")]
    NotSupported {
        /// The key.
        key: &'static str,
    },
    /// Too long a list.
    #[error("{count} rules; at most {MAX_RULES} are allowed")]
    TooMany {
        /// How many.
        count: usize,
    },
}

/// Why one rule is left out.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// No name.
    #[error("it has no `name`")]
    NoName,
    /// No URL.
    #[error("it has no `url`")]
    NoUrl,
    /// A URL that cannot be used.
    #[error("its `url` cannot be used")]
    Url(#[source] LocatorError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDoc {
    #[serde(default)]
    prefix: Option<String>,
    #[serde(default)]
    translations: Vec<RuleDoc>,
    #[serde(default)]
    transports: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleDoc {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    regexp: Option<IgnoredAny>,
    #[serde(default)]
    transport: Option<IgnoredAny>,
}

/// Reads the text of the file called `file`. Rules that cannot be used come back beside it, with their place.
pub(super) fn parse(
    file: &str,
    text: &str,
    protocol: Protocol,
) -> Result<(RuleFile, Vec<(usize, RuleError)>), FileError> {
    let doc: FileDoc = serde_saphyr::from_str(text).map_err(|error| FileError::Syntax { reason: reason(&error) })?;
    if doc.transports.is_some() {
        return Err(FileError::NotSupported { key: "transports" });
    }
    if doc.translations.iter().any(|rule| rule.regexp.is_some()) {
        return Err(FileError::NotSupported { key: "regexp" });
    }
    if doc.translations.iter().any(|rule| rule.transport.is_some()) {
        return Err(FileError::NotSupported { key: "transport" });
    }
    if doc.translations.len() > MAX_RULES {
        return Err(FileError::TooMany { count: doc.translations.len() });
    }
    let prefix = doc.prefix.unwrap_or_default().trim_end_matches('/').to_owned();
    let mut rules = Vec::new();
    let mut bad = Vec::new();
    for (index, rule) in doc.translations.into_iter().enumerate() {
        let place = index + 1;
        match read_rule(place, rule, protocol) {
            Ok(rule) => rules.push(rule),
            Err(error) => bad.push((place, error)),
        }
    }
    Ok((RuleFile { file: file.to_owned(), prefix, rules }, bad))
}

/// The parser's first line: the others show a piece of the file. If the first does too and a URL is in it, only the
/// place is told, as the URL may hold a password.
fn reason(error: &serde_saphyr::Error) -> String {
    let full = error.to_string();
    let first = full.lines().next().unwrap_or_default();
    if !first.contains(['@', '/']) {
        return crate::name::printable(first);
    }
    match error.location() {
        Some(place) => format!("unexpected value at line {} column {}", place.line(), place.column()),
        None => "unexpected value".to_owned(),
    }
}

fn read_rule(place: usize, doc: RuleDoc, protocol: Protocol) -> Result<Rule, RuleError> {
    let name = doc.name.filter(|name| !name.is_empty()).ok_or(RuleError::NoName)?;
    let url = doc.url.filter(|url| !url.is_empty()).ok_or(RuleError::NoUrl)?;
    let url = parse_url(&url, protocol).map_err(RuleError::Url)?;
    Ok(Rule { place, name, url })
}
