//! `arrows.toml`: which crate may depend on which, which folder may use which, and where generated types may be.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::tree::Tree;
use crate::uses::{Target, Use};
use crate::workspace::Workspace;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    /// What each crate may depend on: `proto/tap` is `proto` with no feature but `tap`, `proto/` is `proto` with none, `*` is every crate.
    crates: BTreeMap<String, Vec<String>>,
    /// Crates of others that a crate may not depend on by itself.
    #[serde(default)]
    without: BTreeMap<String, Vec<String>>,
    /// Modules in one crate or folder, from the top down: each may use those further down. Those in one line, with spaces
    /// between them, may use each other.
    #[serde(default)]
    rooms: BTreeMap<String, Vec<String>>,
    /// Paths that only some modules may name.
    #[serde(default)]
    only: Vec<Only>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Only {
    path: String,
    within: Vec<String>,
    /// Paths below it that every module may name.
    #[serde(default)]
    except: Vec<String>,
}

impl Only {
    fn forbids(&self, from: &str, to: &str) -> bool {
        let is_in_one_of = |path: &str, rooms: &[String]| rooms.iter().any(|room| is_in(path, room));
        is_in(to, &self.path) && !is_in_one_of(to, &self.except) && !is_in_one_of(from, &self.within)
    }
}

impl Rules {
    /// Dependencies between crates that are not allowed.
    pub(crate) fn crates(&self, workspace: &Workspace) -> Vec<String> {
        let mut faults = Vec::new();
        for package in &workspace.packages {
            let manifest = package.manifest.strip_prefix(&workspace.root).unwrap_or(&package.manifest).display();
            let Some(allowed) = self.crates.get(&package.name) else {
                faults.push(format!("{manifest}: no rule for the crate `{}`", package.name));
                continue;
            };
            for dependency in &package.dependencies {
                let name = &dependency.name;
                let features: Vec<String> = dependency.features.iter().map(|one| format!("{name}/{one}")).collect();
                let features_allowed = match features.as_slice() {
                    [] => allowed.contains(&format!("{name}/")),
                    some => some.iter().all(|feature| allowed.contains(feature)),
                };
                if !allowed.contains(name) && !features_allowed && !allowed.iter().any(|one| one == "*") {
                    let asked = if features.is_empty() { name.clone() } else { features.join("`, `") };
                    faults.push(format!("{manifest}: `{}` may not depend on `{asked}`", package.name));
                }
            }
            let forbidden = self.without.get(&package.name).into_iter().flatten();
            for name in forbidden.filter(|name| package.foreign.contains(name)) {
                faults.push(format!("{manifest}: `{}` may not depend on `{name}`", package.name));
            }
        }
        faults
    }

    /// Modules that rules name and that there are not: a rule that forbids nothing is a mistake.
    pub(crate) fn unknown_modules(&self, trees: &[Tree]) -> Vec<String> {
        let rooms = self.rooms.iter().flat_map(|(folder, floors)| {
            let names = floors.iter().flat_map(|floor| floor.split_whitespace());
            names.map(move |name| format!("{folder}::{name}"))
        });
        let named = rooms.chain(self.only.iter().flat_map(|rule| rule.within.iter().cloned()));
        let known = |name: &String| trees.iter().any(|tree| tree.modules.keys().any(|path| tree.shown(path) == *name));
        named.filter(|name| !known(name)).map(|name| format!("a rule names `{name}`, which is no module")).collect()
    }

    /// Uses of a crate that are not allowed.
    pub(crate) fn uses(&self, tree: &Tree, uses: &[Use<'_>]) -> Vec<String> {
        let mut faults = Vec::new();
        for one in uses {
            let from = tree.shown(one.from);
            let (to, defined) = match &one.target {
                Target::Module(path, defined) => (tree.shown(path), format!(", from {defined}")),
                Target::Elsewhere(path) => (path.join("::"), String::new()),
            };
            for (folder, floors) in &self.rooms {
                if let (Some(from), Some(to)) = (floor(floors, folder, &from), floor(floors, folder, &to))
                    && to.0 < from.0
                {
                    let (from, to) = (from.1, to.1);
                    faults.push(format!(
                        "{}: in `{folder}`, `{from}` may not use `{to}`: names `{}`{defined}",
                        one.place, one.what
                    ));
                }
            }
            for rule in self.only.iter().filter(|rule| rule.forbids(&from, &to)) {
                faults.push(format!("{}: `{from}` may not name `{}`: names `{}`", one.place, rule.path, one.what));
            }
        }
        faults
    }
}

/// Which of `floors` of `folder` the module `path` is on, and the room there.
fn floor<'a>(floors: &'a [String], folder: &str, path: &str) -> Option<(usize, &'a str)> {
    let below = path.strip_prefix(folder)?.strip_prefix("::")?;
    let name = below.split("::").next()?;
    let on = |(number, floor): (usize, &'a String)| {
        floor.split_whitespace().find(|room| *room == name).map(|room| (number, room))
    };
    floors.iter().enumerate().find_map(on)
}

fn is_in(path: &str, room: &str) -> bool {
    path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
