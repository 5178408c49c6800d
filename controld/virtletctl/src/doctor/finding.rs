//! What a check found, in the words that are printed. Pure.
//!
//! Names of checks are an interface: `docs/doctor.md` lists them, and a test compares.

use std::fmt;

use serde_json::{Value, json};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// As it should be, or not needed here.
    Ok,
    /// Something works less well, or could not be looked at.
    Warning,
    /// Pods do not run because of it.
    Failure,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: State,
    /// What was seen.
    pub(super) seen: String,
    /// The command or setting that mends it; none of what is well.
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, state: State::Ok, seen: seen.into(), mend: None }
    }

    pub(super) fn warning(check: &'static str, seen: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, state: State::Warning, seen: seen.into(), mend: Some(mend.into()) }
    }

    pub(super) fn failure(check: &'static str, seen: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, state: State::Failure, seen: seen.into(), mend: Some(mend.into()) }
    }

    /// Of a check that could not be made.
    pub(super) fn unknown(check: &'static str, why: impl fmt::Display) -> Self {
        Self { check, state: State::Warning, seen: format!("not known: {why}"), mend: None }
    }

    pub(super) fn as_json(&self) -> Value {
        json!({ "check": self.check, "state": self.state.to_string(), "seen": self.seen, "mend": self.mend })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        })
    }
}
