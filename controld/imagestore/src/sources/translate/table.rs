//! All rules together, and which of them applies to a name.
//!
//! First every fixed name of every configuration is tried, then every regexp. Within each pass the order is: pushed
//! configurations before files, then the longer prefix, then the configuration's name by bytes, then the place in it.
//! So the order of reading does not matter.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::Reason;
use regex::bytes::{Captures, Regex};
use vmimage::declared::Declared;
use vmimage::digest::Digest;
use vmimage::error::printable;

use super::problem::{Origin, on_one_line};
use super::template::Template;
use super::{Wanted, platform};
use crate::sources::net::Transport;
use crate::sources::provider::Platform;

/// How messages begin that name a rule.
const RULE: &str = "rule ";

/// What a rule matches.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    /// A name; with a tag, for that tag alone.
    Name(String),
    Regexp(Regex),
}

/// Where a rule leads.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) url: Template,
    pub(super) digest: Option<Digest>,
    /// The publisher's list of checksums.
    pub(super) checksums: Option<Template>,
}

/// One rule.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// Place in its configuration, from 1.
    pub(super) place: usize,
    pub(super) pattern: Pattern,
    /// If there are `platforms`, for the default platform alone.
    pub(super) url: Option<Target>,
    pub(super) platforms: Vec<(Platform, Target)>,
    pub(super) transport: Arc<Transport>,
    /// Format that the image is declared to have.
    pub(super) format: Option<Declared>,
}

/// One configuration.
#[derive(Debug, Clone)]
pub(crate) struct RuleConfig {
    pub(super) origin: Origin,
    /// Without the slash at its end; empty for none.
    pub(super) prefix: String,
    /// Runtime handlers that it is for, if not for all.
    pub(super) handlers: Option<BTreeSet<String>>,
    /// In the configuration's order, as the next.
    pub(super) fixed: Vec<Rule>,
    pub(super) regexps: Vec<Rule>,
    /// Those that cannot be used.
    pub(super) rejected: Vec<Rejected>,
}

/// A rule that cannot be used, though it is known for which names it was meant.
#[derive(Debug, Clone)]
pub(super) struct Rejected {
    pub(super) place: usize,
    pub(super) pattern: Pattern,
    pub(super) cause: Reason,
}

/// The rule that is for a name.
pub(super) struct Found<'a> {
    config: &'a RuleConfig,
    rule: &'a Rule,
    /// What the groups of its regexp matched.
    pub(super) groups: Option<Captures<'a>>,
}

/// All rules, in the order in which they are asked.
#[derive(Debug, Default)]
pub(super) struct RuleTable {
    configs: Vec<Arc<RuleConfig>>,
}

impl RuleTable {
    pub(super) fn configs(&self) -> impl Iterator<Item = &RuleConfig> {
        self.configs.iter().map(|config| &**config)
    }

    pub(super) fn new(configs: impl IntoIterator<Item = Arc<RuleConfig>>) -> Self {
        let mut configs: Vec<_> = configs.into_iter().collect();
        configs.sort_by(|a, b| {
            let length = |config: &RuleConfig| config.prefix.len();
            (a.origin.kind.cmp(&b.origin.kind))
                .then_with(|| length(b).cmp(&length(a)))
                .then_with(|| a.origin.name.cmp(&b.origin.name))
        });
        Self { configs }
    }

    /// The rule for `name`, which is without strip-prefix, tag and digest. In a configuration, a rule for the wanted tag
    /// comes before those for all tags.
    pub(super) fn find<'a>(&'a self, name: &'a str, wanted: &Wanted<'_>, regexps: bool) -> Option<Found<'a>> {
        let asked = || self.configs.iter().filter(|config| config.is_for(wanted));
        let fixed = asked().find_map(|config| {
            let rule = config.fixed_rule(config.rest(name)?, wanted.tag)?;
            Some(Found { config, rule, groups: None })
        });
        if fixed.is_some() || !regexps {
            return fixed;
        }
        asked().find_map(|config| {
            let rest = config.rest(name)?;
            config.regexps.iter().find_map(|rule| match &rule.pattern {
                Pattern::Regexp(regexp) => {
                    let groups = regexp.captures(rest.as_bytes())?;
                    Some(Found { config, rule, groups: Some(groups) })
                }
                Pattern::Name(_) => None,
            })
        })
    }

    /// The rule that would be for `name` if it could be used, as messages name it, and why it cannot.
    pub(super) fn rejected(&self, name: &str, wanted: &Wanted<'_>, regexps: bool) -> Option<(String, Reason)> {
        let meant = |rest: &str, pattern: &Pattern| match pattern {
            Pattern::Name(name) => name == rest || is_tagged(name, rest, wanted.tag),
            Pattern::Regexp(regexp) => regexps && regexp.is_match(rest.as_bytes()),
        };
        self.configs.iter().filter(|config| config.is_for(wanted)).find_map(|config| {
            let rest = config.rest(name)?;
            let rule = config.rejected.iter().find(|rule| meant(rest, &rule.pattern))?;
            Some((config.by(rule.place, rule.pattern.text()), rule.cause.clone()))
        })
    }
}

impl RuleConfig {
    pub(super) fn is_for(&self, wanted: &Wanted<'_>) -> bool {
        self.handlers.as_ref().is_none_or(|handlers| handlers.contains(wanted.handler))
            && wanted.configs.is_none_or(|configs| self.origin.names().any(|name| configs.contains(name)))
    }

    /// What is left of a name for the rules of this configuration.
    fn rest<'a>(&self, name: &'a str) -> Option<&'a str> {
        match self.prefix.as_str() {
            "" => Some(name),
            prefix => name.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }

    /// The fixed rule for what is left of a name.
    fn fixed_rule(&self, rest: &str, tag: Option<&str>) -> Option<&Rule> {
        let named = |is_it: &dyn Fn(&str) -> bool| {
            self.fixed.iter().find(|rule| matches!(&rule.pattern, Pattern::Name(name) if is_it(name)))
        };
        named(&|name| is_tagged(name, rest, tag)).or_else(|| named(&|name| name == rest))
    }

    /// The names of its fixed rules, as an image may be called by them.
    pub(super) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.fixed.iter().filter_map(|rule| match &rule.pattern {
            Pattern::Name(name) if self.prefix.is_empty() => Some(name.clone()),
            Pattern::Name(name) => Some(format!("{}/{name}", self.prefix)),
            Pattern::Regexp(_) => None,
        })
    }

    /// One of its rules as messages name it.
    fn by(&self, place: usize, pattern: &str) -> String {
        format!("{RULE}{place} (`{}`) of {}", on_one_line(pattern), self.origin.short())
    }
}

/// Whether a rule's name is this name with this tag.
fn is_tagged(name: &str, rest: &str, tag: Option<&str>) -> bool {
    tag.is_some_and(|tag| name.strip_prefix(rest).and_then(|after| after.strip_prefix(':')) == Some(tag))
}

/// Whether what led to an image is no rule at all, or one of these configurations, by their names. It is told by the text
/// that records and messages have of it, and a rule that cannot be told is none of these.
pub(crate) fn is_led_by(by: &str, configs: &BTreeSet<String>) -> bool {
    if !by.starts_with(RULE) {
        return true;
    }
    let Some((before, name)) = by.strip_suffix('`').and_then(|by| by.rsplit_once('`')) else { return false };
    let origin = if before.ends_with(" of mapping ") { Origin::mapping(name) } else { Origin::file(name) };
    origin.names().any(|name| configs.iter().any(|config| printable(config) == name))
}

impl Pattern {
    /// As it is written.
    fn text(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Regexp(regexp) => regexp.as_str(),
        }
    }
}

impl<'a> Found<'a> {
    /// The rule as messages name it.
    pub(super) fn by(&self) -> String {
        self.config.by(self.rule.place, self.rule.pattern.text())
    }

    pub(super) fn transport(&self) -> &'a Arc<Transport> {
        &self.rule.transport
    }

    pub(super) fn format(&self) -> Option<Declared> {
        self.rule.format
    }

    /// Where it leads for this platform.
    pub(super) fn target(&self, wanted: &Platform, default: &Platform) -> Option<&'a Target> {
        let rule = self.rule;
        let by_default = || rule.url.as_ref().filter(|_| rule.platforms.is_empty() || wanted == default);
        platform::best(wanted, &rule.platforms).or_else(by_default)
    }

    /// The platforms that it names.
    pub(super) fn platforms(&self) -> Vec<String> {
        self.rule.platforms.iter().map(|(platform, _)| platform.to_string()).collect()
    }
}
