//! Reads keys of a configuration one by one, and keeps all that is wrong with them, so that a user learns of everything
//! at once. Called by [`super::pools`] and [`super::config`].

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Longest piece of a strange value that an error shows.
const MAX_SHOWN: usize = 64;

/// A table of keys.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    table: &'a Map<String, Value>,
    /// What stands before a key in an error.
    place: String,
    problems: &'a mut Vec<String>,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Reads `table`, whose keys are told with `place` before them.
    pub(super) fn new(table: &'a Map<String, Value>, place: impl Into<String>, problems: &'a mut Vec<String>) -> Self {
        Self { table, place: place.into(), problems }
    }

    /// The value of `key`; `None` if there is none, or it is of the wrong kind, which is told.
    pub(super) fn get<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.table.get(key).filter(|value| !value.is_null())?;
        match T::deserialize(value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong(key, &format!("is `{}`: {error}", shown(&value.to_string())));
                None
            }
        }
    }

    /// Says what is wrong with `key`.
    pub(super) fn wrong(&mut self, key: &str, problem: &str) {
        self.problems.push(format!("`{}{key}` {problem}", self.place));
    }

    /// Refuses all keys but `known`.
    pub(super) fn expect_only(&mut self, known: &[&str]) {
        let unknown: Vec<&String> = self.table.keys().filter(|key| !known.contains(&key.as_str())).collect();
        for key in unknown {
            self.wrong(&shown(key), &format!("is no key; there are `{}`", known.join("`, `")));
        }
    }

    /// Refuses keys that differ from one of `known` in the case of letters alone: they would do nothing.
    pub(super) fn expect_no_likes_of(&mut self, known: &[&str]) {
        let table = self.table;
        for key in table.keys() {
            if let Some(meant) = known.iter().find(|known| **known != key.as_str() && known.eq_ignore_ascii_case(key)) {
                self.wrong(key, &format!("is no key; write `{meant}`"));
            }
        }
    }
}

/// A stranger's text on one line, cut to a length.
pub(super) fn shown(text: &str) -> String {
    common::shown(text, MAX_SHOWN)
}
