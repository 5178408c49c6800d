//! The seam to where rules come from: a directory of files, or mappings that are pushed.

use std::fmt;
use std::sync::Arc;

use super::problem::{DirError, Problem};
use super::table::RuleConfig;

/// A source of rules. Asked at every pull, off the reactor.
pub(crate) trait RuleSource: Send + Sync + fmt::Debug {
    /// The rules as they are now: the very same set as before if nothing changed.
    fn current(&self) -> Result<Arc<RuleSet>, DirError>;
}

/// What a source has.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) configs: Vec<Arc<RuleConfig>>,
    pub(crate) problems: Vec<Problem>,
}

impl RuleSet {
    /// The configurations with rules by regexp, for when these are off.
    pub(super) fn regexps_off(&self) -> impl Iterator<Item = Problem> {
        let with = self.configs.iter().filter(|config| !config.regexps.is_empty());
        with.map(|config| Problem::RegexpsOff { origin: config.origin.clone(), count: config.regexps.len() })
    }
}
