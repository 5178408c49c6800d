//! Takes annotations by name out of a pod's, and collects what is wrong on the way.

use std::collections::BTreeMap;

use super::keys::{self, KNOWN, Use};
use super::{AnnotationError, AnnotationErrors, Problem};

/// The annotations of a pod that are ours and not empty.
pub(super) struct Reader<'a> {
    /// By canonical name.
    given: BTreeMap<&'static str, Given<'a>>,
    problems: Vec<AnnotationError>,
}

/// An annotation under the name that its author chose, which is the one that errors name.
#[derive(Clone, Copy)]
struct Given<'a> {
    key: &'a str,
    value: &'a str,
}

impl<'a> Reader<'a> {
    /// Sorts out the keys, and deals with all that have no parser.
    pub(super) fn new(all: &'a BTreeMap<String, String>) -> Self {
        let mut reader = Self { given: BTreeMap::new(), problems: Vec::new() };
        let names: BTreeMap<String, (&'static str, Use)> = KNOWN
            .iter()
            .flat_map(|&(name, becomes)| {
                [Some(name.to_owned()), keys::alias(name)].into_iter().flatten().map(move |key| (key, (name, becomes)))
            })
            .collect();
        for (key, value) in all.iter().filter(|(key, _)| keys::is_ours(key)) {
            match names.get(key) {
                Some((name, becomes)) => reader.take(name, *becomes, Given { key, value }),
                None => reader.refuse(key, Problem::Unknown { nearest: keys::nearest(key) }),
            }
        }
        reader
    }

    /// What `parse` makes of an annotation, if it is given and right.
    pub(super) fn read<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, Problem>) -> Option<T> {
        let Given { key, value } = *self.given.get(name)?;
        parse(value).map_err(|problem| self.refuse(key, problem)).ok()
    }

    /// The same for two annotations that say one thing in two ways.
    pub(super) fn either<T>(
        &mut self,
        (first, parse_first): (&'static str, impl FnOnce(&str) -> Result<T, Problem>),
        (second, parse_second): (&'static str, impl FnOnce(&str) -> Result<T, Problem>),
    ) -> Option<T> {
        self.refuse_together(first, second);
        let first = self.read(first, parse_first);
        self.read(second, parse_second).or(first)
    }

    /// Refuses the first of two annotations if it is given without the second, which it is about.
    pub(super) fn refuse_without(&mut self, first: &'static str, second: &'static str) {
        if let (Some(first), None) = (self.given.get(first), self.given.get(second)) {
            self.refuse(first.key, Problem::Without { other: second });
        }
    }

    /// Refuses the second of two annotations if both are given.
    pub(super) fn refuse_together(&mut self, first: &'static str, second: &'static str) {
        if let (Some(first), Some(second)) = (self.given.get(first), self.given.get(second)) {
            let (key, other) = (second.key, first.key.to_owned());
            self.refuse(key, Problem::Together { other });
        }
    }

    /// `parsed`, unless something was wrong.
    pub(super) fn finish<T>(mut self, parsed: T) -> Result<T, AnnotationErrors> {
        if self.problems.is_empty() {
            return Ok(parsed);
        }
        self.problems.sort_by(|a, b| a.key.cmp(&b.key));
        Err(AnnotationErrors(self.problems))
    }

    fn take(&mut self, name: &'static str, becomes: Use, given: Given<'a>) {
        if given.value.is_empty() {
            return;
        }
        if let Some(before) = self.given.insert(name, given) {
            if before.value != given.value {
                self.refuse(given.key, Problem::Contradicts { other: before.key.to_owned() });
            }
            return;
        }
        if let Err(problem) = check(becomes) {
            self.refuse(given.key, problem);
        }
    }

    /// Notes what is wrong.
    pub(super) fn refuse(&mut self, key: &str, problem: Problem) {
        self.problems.push(AnnotationError { key: key.to_owned(), problem });
    }
}

/// Deals with a key that nothing else reads.
fn check(becomes: Use) -> Result<(), Problem> {
    match becomes {
        Use::Read | Use::Images => Ok(()),
        Use::Never => Err(Problem::Never),
    }
}

/// `true` or `false`.
pub(super) fn switch(value: &str) -> Result<bool, Problem> {
    value.parse().map_err(|_| Problem::NotBool(value.to_owned()))
}
