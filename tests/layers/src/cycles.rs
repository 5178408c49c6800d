//! Circles of modules, folder by folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::tree::Tree;
use crate::uses::{Place, Target, Use};

/// Modules in one folder that use each other in a circle, and every use that ties them.
#[derive(Debug)]
pub(crate) struct Cycle<'a> {
    folder: String,
    modules: Vec<&'a str>,
    ties: Vec<Tie<'a>>,
}

#[derive(Debug)]
struct Tie<'a> {
    from: &'a str,
    to: &'a str,
    place: Place<'a>,
    what: &'a str,
    defined: Place<'a>,
}

/// The circles of a crate.
pub(crate) fn find<'a>(tree: &'a Tree, uses: &'a [Use<'a>]) -> Vec<Cycle<'a>> {
    let mut folders: BTreeMap<&[String], Vec<Tie<'a>>> = BTreeMap::new();
    for one in uses {
        let Target::Module(to, defined) = one.target else { continue };
        let shared = one.from.iter().zip(to).take_while(|(a, b)| a == b).count();
        // Else one of them is below the other.
        if let (Some(from), Some(to)) = (one.from.get(shared), to.get(shared)) {
            let tie = Tie { from, to, place: one.place, what: &one.what, defined };
            folders.entry(&one.from[..shared]).or_default().push(tie);
        }
    }
    let circles = |(folder, ties): (&[String], Vec<Tie<'a>>)| circles_of(&tree.shown(folder), ties);
    folders.into_iter().flat_map(circles).collect()
}

/// Modules are in one circle if each is reached from the other.
fn circles_of<'a>(folder: &str, ties: Vec<Tie<'a>>) -> Vec<Cycle<'a>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for tie in &ties {
        next.entry(tie.from).or_default().insert(tie.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reached_from(from, &next))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let mut cycles: BTreeMap<Vec<&str>, Vec<Tie<'a>>> = BTreeMap::new();
    for tie in ties.into_iter().filter(|tie| reaches(tie.to, tie.from)) {
        let members = reached.keys().filter(|one| reaches(one, tie.from) && reaches(tie.from, one));
        cycles.entry(members.copied().collect()).or_default().push(tie);
    }
    let cycle = |(modules, ties)| Cycle { folder: folder.to_owned(), modules, ties };
    cycles.into_iter().map(cycle).collect()
}

fn reached_from<'a>(from: &str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(one) = ahead.pop() {
        if reached.insert(one) {
            ahead.extend(next.get(one).into_iter().flatten().copied());
        }
    }
    reached
}

impl fmt::Display for Cycle<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "modules of `{}` use each other in a circle: `{}`", self.folder, self.modules.join("`, `"))?;
        for Tie { from, to, place, what, defined } in &self.ties {
            write!(out, "\n  `{from}` uses `{to}`: {place} names `{what}`, from {defined}")?;
        }
        Ok(())
    }
}
