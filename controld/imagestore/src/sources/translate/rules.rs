//! The rules of some sources as they are now, put together anew when one of them changed.

use std::sync::{Arc, Mutex, PoisonError};

use super::problem::{self, DirError, Problem};
use super::table::RuleTable;
use super::{RuleSet, RuleSource};

/// Sources of rules. Those that come first win.
#[derive(Debug)]
pub(super) struct Rules {
    sources: Vec<Arc<dyn RuleSource>>,
    /// Whether rules by regexp are used.
    regexps: bool,
    last: Mutex<Last>,
}

/// The rules as they were last asked for.
#[derive(Debug, Default)]
struct Last {
    sets: Vec<Arc<RuleSet>>,
    table: Arc<RuleTable>,
}

impl Rules {
    pub(super) fn new(sources: Vec<Arc<dyn RuleSource>>, regexps: bool) -> Self {
        Self { sources, regexps, last: Mutex::default() }
    }

    /// All of them as they are now.
    pub(super) fn table(&self) -> Result<Arc<RuleTable>, DirError> {
        let sets = self.sources.iter().map(|source| source.current()).collect::<Result<Vec<_>, _>>()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = last.sets.len() == sets.len() && last.sets.iter().zip(&sets).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            if !self.regexps {
                let off = |sets: &[Arc<RuleSet>]| sets.iter().flat_map(|set| set.regexps_off()).collect::<Vec<_>>();
                problem::report(&off(&last.sets), &off(&sets));
            }
            let configs = sets.iter().flat_map(|set| set.configs.iter().cloned());
            *last = Last { table: Arc::new(RuleTable::new(configs)), sets };
        }
        Ok(last.table.clone())
    }

    /// What is wrong with them as they were last asked for.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut problems: Vec<_> = last.sets.iter().flat_map(|set| set.problems.iter().cloned()).collect();
        if !self.regexps {
            problems.extend(last.sets.iter().flat_map(|set| set.regexps_off()));
        }
        problems
    }
}
