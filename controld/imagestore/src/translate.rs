//! From a name to a URL: translation rules, and the default rule for names that no rule covers.
//!
//! The store asks at every pull; the directory of rules is looked at each time and read again when it changed, so an
//! edit acts at once. A file that cannot be used is left out as a whole and reported; it never disables another file.
//!
//! Which rule wins does not depend on the order of reading: the longest prefix, then the file's name by bytes, then
//! the place in the file.

use std::sync::Arc;

use url::Url;

use crate::name::ImageName;
use crate::net::Transport;
use crate::provider::{Locator, LocatorError};

mod dir;
mod file;
#[cfg(test)]
mod tests;

pub(crate) use dir::RuleDir;
pub use dir::{DirError, Problem};
pub use file::{FileError, RuleError};

/// Scheme put before names and URLs that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// `https://`.
    #[default]
    Https,
    /// `http://`.
    Http,
}

impl Protocol {
    fn scheme(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

/// Why a name has no URL.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// No rule, and the default rule is off.
    #[error("no translation rule for `{name}`, and names without one are denied; add a rule to the translation files")]
    Untranslated {
        /// The name without prefix.
        name: String,
    },
    /// The name makes no URL.
    #[error("`{name}` makes no URL; add a translation rule")]
    Url {
        /// The name without prefix.
        name: String,
        /// Why not.
        #[source]
        cause: LocatorError,
    },
    /// The rules cannot be read at all. Not taken for "no rules": the default rule might name another server.
    #[error("translation rules not readable")]
    Rules(#[from] DirError),
}

/// One file's rules.
#[derive(Debug, Clone)]
pub(crate) struct RuleFile {
    /// Name of the file.
    pub(crate) file: String,
    /// Without the slash at its end; empty for none.
    pub(crate) prefix: String,
    /// In the file's order.
    pub(crate) rules: Vec<Rule>,
}

/// A fixed name and its URL.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// Place in the file, from 1.
    pub(crate) place: usize,
    pub(crate) name: String,
    pub(crate) url: Url,
}

/// All rules, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct RuleTable {
    files: Vec<RuleFile>,
}

impl RuleTable {
    pub(crate) fn new(mut files: Vec<RuleFile>) -> Self {
        files.sort_by(|a, b| b.prefix.len().cmp(&a.prefix.len()).then_with(|| a.file.cmp(&b.file)));
        Self { files }
    }

    /// The rule for `name`, which is without strip-prefix, tag and digest.
    fn find(&self, name: &str) -> Option<(&RuleFile, &Rule)> {
        self.files.iter().find_map(|file| {
            let rest = match file.prefix.as_str() {
                "" => name,
                prefix => name.strip_prefix(prefix)?.strip_prefix('/')?,
            };
            file.rules.iter().find(|rule| rule.name == rest).map(|rule| (file, rule))
        })
    }
}

/// What translates names.
#[derive(Debug)]
pub(crate) struct Translator {
    strip_prefixes: Vec<String>,
    protocol: Protocol,
    allow_untranslated: bool,
    rules: Option<RuleDir>,
}

impl Translator {
    pub(crate) fn new(
        mut strip_prefixes: Vec<String>,
        protocol: Protocol,
        allow_untranslated: bool,
        rules: Option<RuleDir>,
    ) -> Self {
        for prefix in &mut strip_prefixes {
            prefix.truncate(prefix.trim_end_matches('/').len());
        }
        strip_prefixes.retain(|prefix| !prefix.is_empty());
        // The longest that fits is stripped, and only once.
        strip_prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        Self { strip_prefixes, protocol, allow_untranslated, rules }
    }

    /// Where the image of that name is. Reads files: to be called off the reactor.
    pub(crate) fn translate(&self, name: &ImageName) -> Result<Locator, TranslateError> {
        let table = match &self.rules {
            Some(rules) => rules.current()?,
            None => Arc::default(),
        };
        self.translate_by(&table, name)
    }

    /// What is wrong with the rule files as they were last read.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.rules.as_ref().map(RuleDir::problems).unwrap_or_default()
    }

    fn translate_by(&self, table: &RuleTable, name: &ImageName) -> Result<Locator, TranslateError> {
        let name = self.stripped(name.as_str());
        if let Some((file, rule)) = table.find(name) {
            let by = format!("rule {} (`{}`) of `{}`", rule.place, rule.name, file.file);
            return Ok(Locator::new(rule.url.clone(), by, Transport::plain()));
        }
        if !self.allow_untranslated {
            return Err(TranslateError::Untranslated { name: name.to_owned() });
        }
        let scheme = self.protocol.scheme();
        let url = parse_url(&format!("{scheme}://{name}"), self.protocol)
            .map_err(|cause| TranslateError::Url { name: name.to_owned(), cause })?;
        Ok(Locator::new(url, format!("default {scheme} rule"), Transport::plain()))
    }

    fn stripped<'a>(&self, name: &'a str) -> &'a str {
        let rest = self.strip_prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str())?.strip_prefix('/'));
        rest.unwrap_or(name)
    }
}

/// A URL of a rule or made of a name. One without a scheme gets the configured one.
fn parse_url(text: &str, protocol: Protocol) -> Result<Url, LocatorError> {
    if text.contains("://") {
        Locator::parse_url(text)
    } else {
        Locator::parse_url(&format!("{}://{text}", protocol.scheme()))
    }
}
