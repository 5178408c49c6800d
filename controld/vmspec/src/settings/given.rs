//! A text of the file that is looked at together with all others, so that all problems are told at once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::problems::Problems;

/// A value, if the file has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Given<T> {
    #[default]
    Nothing,
    Value(T),
    /// A text that is no such value.
    Wrong {
        text: String,
        /// What would be right.
        problem: String,
    },
}

impl<T> Given<T> {
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            // No configuration that is in use has one that is wrong.
            Self::Nothing | Self::Wrong { .. } => None,
        }
    }

    /// Notes what is wrong with it, if something is. `whose` names the table.
    pub fn check(&self, key: &'static str, whose: &str, problems: &mut Problems) {
        if let Self::Wrong { text, problem } = self {
            let text: String = text.chars().take(64).collect();
            problems.add(key, format!("is `{}` for {whose}: {problem}", text.escape_debug()));
        }
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(match text.parse() {
            Ok(value) => Self::Value(value),
            Err(error) => Self::Wrong { problem: T::Err::to_string(&error), text },
        })
    }
}
