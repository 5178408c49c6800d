//! Who uses what: every path that a module of a crate names, followed to its end.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::resolve::Found;
use crate::tree::Tree;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use<'a> {
    pub(crate) from: &'a [String],
    pub(crate) place: Place<'a>,
    pub(crate) what: String,
    pub(crate) target: Target<'a>,
}

/// A line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a Path,
    pub(crate) line: usize,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target<'a> {
    /// A module of this crate, and where the item that is used stands.
    Module(&'a [String], Place<'a>),
    /// The path of something in another crate.
    Elsewhere(Vec<String>),
}

/// The uses of a crate, each once a line.
pub(crate) fn of(tree: &Tree) -> Vec<Use<'_>> {
    let mut uses = BTreeSet::new();
    for (from, module) in &tree.modules {
        for mention in &module.source.mentions {
            let target = match tree.resolve(from, &mention.path) {
                Found::Elsewhere(path) => Target::Elsewhere(path),
                Found::Module(at, left) => {
                    let Some((at, module)) = tree.modules.get_key_value(&at) else { continue };
                    let line = left.first().and_then(|name| module.source.items.get(name)).copied();
                    Target::Module(at, Place { file: &module.file, line: line.unwrap_or(module.line) })
                }
            };
            let place = Place { file: &module.file, line: mention.line };
            uses.insert(Use { from, place, what: mention.path.join("::"), target });
        }
    }
    uses.into_iter().collect()
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file.display(), self.line)
    }
}
