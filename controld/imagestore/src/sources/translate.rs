//! From a name to a URL: translation rules, and the default rule for names that no rule covers.
//!
//! ```text
//! sources (directory, pushed mappings) -> sets of configurations -> one table -> rule -> URL, transport, digest, format
//! ```
//!
//! The store asks at every pull; a source whose rules did not change says so cheaply, so an edit acts at once. What
//! cannot be used of a configuration is left out and reported; it never disables another one.
//!
//! Which rule wins does not depend on the order of reading: see [`table`].

use std::collections::BTreeSet;
use std::sync::Arc;

use common::Reason;
use serde::Deserialize;
use vmimage::declared::Declared;
use vmimage::digest::Digest;
use vmimage::name::ImageName;

use crate::sources::net::Transport;
use crate::sources::provider::{Locator, Platform};

mod dir;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod file;
mod mappings;
mod platform;
mod problem;
mod profile;
mod rules;
mod source;
mod table;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use dir::RuleDir;
#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
pub use mappings::Mappings;
pub use problem::{DirError, Notice, Origin, OriginKind, Problem};
use rules::Rules;
pub(crate) use source::{RuleSet, RuleSource};
pub(crate) use table::is_led_by;
use template::{Missing, Template, url_of};

/// Scheme put before names and URLs that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    #[default]
    Https,
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
    /// The only rule for the name cannot be used. Not taken for "no rule": the image would come from elsewhere than the
    /// rule says.
    #[error("{by} is the only one for `{name}`, and cannot be used; mend it or take it away")]
    Rejected {
        /// The name without prefix.
        name: String,
        /// The rule.
        by: String,
        #[source]
        cause: Reason,
    },
    /// The name makes no URL.
    #[error("`{name}` makes no URL by {by}; add a translation rule or mend it")]
    Url {
        /// The name without prefix.
        name: String,
        /// The rule.
        by: String,
        #[source]
        cause: Reason,
    },
    /// The rule names other platforms.
    #[error("{by} has no `{name}` for {wanted}, only for {}", available.join(", "))]
    Platform {
        /// The name without prefix.
        name: String,
        /// The rule.
        by: String,
        /// What was wanted.
        wanted: String,
        /// What there is.
        available: Vec<String>,
    },
    /// The rule's URL needs to know more of the platform.
    #[error("{by} wants `{{{property}}}`, and platform {wanted} has none; name the URL under `platforms`")]
    Property {
        /// The rule.
        by: String,
        /// What was wanted.
        wanted: String,
        /// The placeholder.
        property: &'static str,
    },
    /// The rules cannot be read at all. Not taken for "no rules": the default rule might name another server.
    #[error("translation rules not readable")]
    Rules(#[from] DirError),
}

/// Who asks for a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The runtime handler, by its real name.
    pub(crate) handler: &'a str,
    /// What the image is to run on.
    pub(crate) platform: &'a Platform,
    /// The configurations that this handler is confined to, if it is.
    pub(crate) configs: Option<&'a BTreeSet<String>>,
    /// The tag of the name, if it has one.
    pub(crate) tag: Option<&'a str>,
}

/// What the rules say of a name.
#[derive(Debug)]
pub(crate) struct Translated {
    /// Where the image is.
    pub(crate) locator: Locator,
    /// The digest that the image as it is stored must have.
    pub(crate) digest: Option<Digest>,
    /// The format that it is declared to have.
    pub(crate) format: Option<Declared>,
}

/// How names are translated.
#[derive(Debug, Clone)]
pub(crate) struct TranslateConfig {
    /// Prefixes of names that are taken off, one at most.
    pub(crate) strip_prefixes: Vec<String>,
    /// Scheme of names without a rule, and of URLs without one.
    pub(crate) protocol: Protocol,
    /// Whether a name without a rule is taken for a URL.
    pub(crate) allow_untranslated: bool,
    /// Whether rules by regexp are used.
    pub(crate) regexps: bool,
    /// The platform that the `url` of a rule with `platforms` is for.
    pub(crate) platform: Platform,
}

/// What translates names.
#[derive(Debug)]
pub(crate) struct Translator {
    config: TranslateConfig,
    rules: Rules,
    /// Rules for names that no rule and no provider knows.
    catalogue: Rules,
}

impl Translator {
    /// Sources that come first win.
    pub(crate) fn new(mut config: TranslateConfig, sources: Vec<Arc<dyn RuleSource>>) -> Self {
        let prefixes = &mut config.strip_prefixes;
        for prefix in prefixes.iter_mut() {
            prefix.truncate(prefix.trim_end_matches('/').len());
        }
        prefixes.retain(|prefix| !prefix.is_empty());
        // The longest that fits is stripped, and only once.
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        let (rules, catalogue) = (Rules::new(sources, config.regexps), Rules::new(Vec::new(), config.regexps));
        Self { config, rules, catalogue }
    }

    /// The same with a catalogue.
    pub(crate) fn with_catalogue(mut self, catalogue: Vec<Arc<dyn RuleSource>>) -> Self {
        self.catalogue = Rules::new(catalogue, self.config.regexps);
        self
    }

    /// Where the image of that name is: by a rule, else by the default rule. A pull takes the two apart.
    #[cfg(any(test, feature = "exercise"))]
    fn translate(&self, name: &ImageName, wanted: &Wanted<'_>) -> Result<Translated, TranslateError> {
        match self.by_rule(name, wanted)? {
            Some(translated) => Ok(translated),
            None => self.otherwise(name, wanted),
        }
    }

    /// Where the image of a name is that no rule and no provider knows: by the catalogue, else by the default rule, and by neither where
    /// only rules count. Reads files.
    pub(crate) fn otherwise(&self, name: &ImageName, wanted: &Wanted<'_>) -> Result<Translated, TranslateError> {
        let known = if self.config.allow_untranslated { self.look_up(&self.catalogue, name, wanted)? } else { None };
        known.map_or_else(|| self.by_default(name), Ok)
    }

    /// The names that the catalogue has for these who ask. Reads files.
    pub(crate) fn in_catalogue(&self, wanted: &Wanted<'_>) -> Result<Vec<String>, DirError> {
        let table = self.catalogue.table()?;
        Ok(table.configs().filter(|config| config.is_for(wanted)).flat_map(|config| config.names()).collect())
    }

    /// Where a rule says that the image of that name is. `None` if there is no rule for it, not even one that cannot be
    /// used. Reads files.
    pub(crate) fn by_rule(&self, name: &ImageName, wanted: &Wanted<'_>) -> Result<Option<Translated>, TranslateError> {
        self.look_up(&self.rules, name, wanted)
    }

    fn look_up(
        &self,
        rules: &Rules,
        name: &ImageName,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Translated>, TranslateError> {
        let table = rules.table()?;
        let name = self.stripped(name.as_str());
        let Some(found) = table.find(name, wanted, self.config.regexps) else {
            let rejected = table.rejected(name, wanted, self.config.regexps);
            return rejected
                .map_or(Ok(None), |(by, cause)| Err(TranslateError::Rejected { name: name.to_owned(), by, cause }));
        };
        let by = found.by();
        let Some(target) = found.target(wanted.platform, &self.config.platform) else {
            let (name, wanted, available) = (name.to_owned(), wanted.platform.to_string(), found.platforms());
            return Err(TranslateError::Platform { name, by, wanted, available });
        };
        let place = |template: &Template| {
            let text = template.fill(found.groups.as_ref(), wanted.platform).map_err(|Missing(property)| {
                TranslateError::Property { by: by.clone(), wanted: wanted.platform.to_string(), property }
            })?;
            url_of(&text, self.config.protocol).map_err(|cause| TranslateError::Url {
                name: name.to_owned(),
                by: by.clone(),
                cause,
            })
        };
        let (url, checksums) = (place(&target.url)?, target.checksums.as_ref().map(place).transpose()?);
        let locator = Locator::new(url, by.clone(), found.transport().clone()).verified_by(checksums);
        Ok(Some(Translated { locator, digest: target.digest.clone(), format: found.format() }))
    }

    /// Where the image of a name is that no rule covers: the name is a URL without its scheme.
    pub(crate) fn by_default(&self, name: &ImageName) -> Result<Translated, TranslateError> {
        let name = self.stripped(name.as_str());
        if !self.config.allow_untranslated {
            return Err(TranslateError::Untranslated { name: name.to_owned() });
        }
        let by = format!("default {} rule", self.config.protocol.scheme());
        let url = url_of(name, self.config.protocol).map_err(|cause| TranslateError::Url {
            name: name.to_owned(),
            by: by.clone(),
            cause,
        })?;
        Ok(Translated { locator: Locator::new(url, by, Transport::plain()), digest: None, format: None })
    }

    /// What is wrong with the rules as they are now. Reads files: to be called off the reactor.
    pub(crate) fn current_problems(&self) -> Result<Vec<Problem>, DirError> {
        self.rules.table()?;
        self.catalogue.table()?;
        Ok(self.problems())
    }

    /// What is wrong with the rules as they were last asked for.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = self.rules.problems();
        problems.extend(self.catalogue.problems());
        problems
    }

    /// The name as rules see it.
    pub(crate) fn stripped<'a>(&self, name: &'a str) -> &'a str {
        let prefixes = &self.config.strip_prefixes;
        let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str())?.strip_prefix('/'));
        rest.unwrap_or(name)
    }
}
