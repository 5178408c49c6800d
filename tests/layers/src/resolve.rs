//! Follows a path to the module that defines what it names, through imports and re-exports.

use std::collections::BTreeSet;

use crate::source::Segments;
use crate::tree::{ModulePath, Tree};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In this crate: the module, and what is left of the path there.
    Module(ModulePath, Segments),
    /// In another crate, or nowhere that is known.
    Elsewhere(Segments),
}

/// The names that were looked up already on the way.
type Seen = BTreeSet<(ModulePath, String)>;

impl Tree {
    /// What `path` means in the module `from`.
    pub(crate) fn resolve(&self, from: &[String], path: &[String]) -> Found {
        self.meaning(from, path, &mut Seen::new())
    }

    fn meaning(&self, from: &[String], path: &[String], seen: &mut Seen) -> Found {
        let elsewhere = || Found::Elsewhere(path.to_vec());
        let Some((head, rest)) = path.split_first() else { return elsewhere() };
        match head.as_str() {
            "crate" => self.walk(&[], rest, seen),
            "self" => self.walk(from, rest, seen),
            "super" => match from.split_last() {
                Some((_, parent)) if rest.first().is_some_and(|next| next == "super") => {
                    self.meaning(parent, rest, seen)
                }
                Some((_, parent)) => self.walk(parent, rest, seen),
                None => elsewhere(),
            },
            name if self.is_module(from, name) || self.imports(from, name) => {
                if seen.contains(&(from.to_vec(), head.clone())) {
                    return elsewhere();
                }
                self.walk(from, path, seen)
            }
            _ => elsewhere(),
        }
    }

    fn is_module(&self, folder: &[String], name: &str) -> bool {
        self.modules.contains_key(&below(folder, name))
    }

    fn imports(&self, module: &[String], name: &str) -> bool {
        self.modules.get(module).is_some_and(|module| module.source.imports.contains_key(name))
    }

    /// Descends from `module` along `path`.
    fn walk(&self, module: &[String], path: &[String], seen: &mut Seen) -> Found {
        let stop = || Found::Module(module.to_vec(), path.to_vec());
        let Some((name, rest)) = path.split_first() else { return stop() };
        if self.is_module(module, name) {
            return self.walk(&below(module, name), rest, seen);
        }
        let Some(source) = self.modules.get(module).map(|module| &module.source) else { return stop() };
        if source.items.contains_key(name) || !seen.insert((module.to_vec(), name.clone())) {
            return stop();
        }
        if let Some(import) = source.imports.get(name) {
            return match self.meaning(module, import, seen) {
                Found::Module(at, left) => self.walk(&at, &[left.as_slice(), rest].concat(), seen),
                Found::Elsewhere(path) => Found::Elsewhere([path.as_slice(), rest].concat()),
            };
        }
        for glob in &source.globs {
            if let Found::Module(at, left) = self.meaning(module, glob, seen)
                && left.is_empty()
                && let Found::Module(at, left) = self.walk(&at, path, seen)
                && self.defines(&at, &left)
            {
                return Found::Module(at, left);
            }
        }
        stop()
    }

    /// Whether `left` begins with an item of `module`, or is the module itself.
    fn defines(&self, module: &[String], left: &[String]) -> bool {
        let Some(name) = left.first() else { return true };
        self.modules.get(module).is_some_and(|module| module.source.items.contains_key(name))
    }
}

fn below(folder: &[String], name: &str) -> ModulePath {
    [folder, &[name.to_owned()]].concat()
}
