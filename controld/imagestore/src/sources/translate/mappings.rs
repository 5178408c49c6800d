//! Configurations of rules that are pushed, by name: by a watch of a cluster's objects, or by a test.
//!
//! The last one of each name counts. One that cannot be read leaves a problem, and no rules of that name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file;
use super::problem::{DirError, Origin, Problem, report};
use super::source::{RuleSet, RuleSource};
use super::table::RuleConfig;

/// The rules that were pushed. Clones share them.
#[derive(Clone, Default)]
pub struct Mappings(Arc<Mutex<Pushed>>);

#[derive(Default)]
struct Pushed {
    entries: BTreeMap<String, Entry>,
    /// Made of the entries; gone when they change.
    set: Option<Arc<RuleSet>>,
}

struct Entry {
    config: Option<Arc<RuleConfig>>,
    problems: Vec<Problem>,
}

impl Mappings {
    /// Puts the configuration `name`, in YAML or JSON, in place of what there was of that name. What is wrong with it
    /// comes back, and goes to the log.
    pub fn put(&self, name: &str, text: &str) -> Vec<Problem> {
        let entry = read(name, text);
        let problems = entry.problems.clone();
        let mut pushed = self.lock();
        report(pushed.entries.get(name).map_or(&[][..], |before| &before.problems), &problems);
        pushed.entries.insert(name.to_owned(), entry);
        pushed.set = None;
        problems
    }

    /// Takes the configuration `name` away; fine if there is none.
    pub fn remove(&self, name: &str) {
        let mut pushed = self.lock();
        if pushed.entries.remove(name).is_some() {
            pushed.set = None;
        }
    }

    /// Takes all away that are not among `names`.
    pub fn retain(&self, names: &std::collections::BTreeSet<String>) {
        let mut pushed = self.lock();
        pushed.entries.retain(|name, _| names.contains(name));
        pushed.set = None;
    }

    /// The names of all.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.lock().entries.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Pushed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(name: &str, text: &str) -> Entry {
    let origin = Origin::mapping(name);
    match file::parse(origin.clone(), text) {
        Ok((config, problems)) => Entry { config: Some(Arc::new(config)), problems },
        Err(cause) => Entry { config: None, problems: vec![Problem::File { origin, cause }] },
    }
}

impl RuleSource for Mappings {
    fn current(&self) -> Result<Arc<RuleSet>, DirError> {
        let mut pushed = self.lock();
        if let Some(set) = &pushed.set {
            return Ok(set.clone());
        }
        let set = Arc::new(RuleSet {
            configs: pushed.entries.values().filter_map(|entry| entry.config.clone()).collect(),
            problems: pushed.entries.values().flat_map(|entry| entry.problems.iter().cloned()).collect(),
        });
        pushed.set = Some(set.clone());
        Ok(set)
    }
}

impl fmt::Debug for Mappings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.lock().entries.keys()).finish()
    }
}
