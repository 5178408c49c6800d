//! What can be wrong with translation rules: with a directory, a configuration or one rule of it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use common::{Chain, Reason};
use vmimage::error::printable;

/// Most rules of one configuration.
pub(super) const MAX_RULES: usize = 10_000;

/// What kind of thing a configuration is. The lesser is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OriginKind {
    /// Pushed to the store, as a cluster's objects are.
    Mapping,
    File,
    /// A file of the catalogue, which comes with the store and is asked last.
    Catalogue,
}

/// Where a configuration is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// What it is.
    pub kind: OriginKind,
    /// Its name among those of its kind.
    pub name: String,
}

impl Origin {
    pub(crate) fn file(name: &str) -> Self {
        Self { kind: OriginKind::File, name: name.to_owned() }
    }

    pub(crate) fn mapping(name: &str) -> Self {
        Self { kind: OriginKind::Mapping, name: name.to_owned() }
    }

    /// What it may be called: a file also without its extension.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let stem = self.name.rsplit_once('.').map(|(stem, _)| stem).filter(|_| self.kind != OriginKind::Mapping);
        std::iter::once(self.name.as_str()).chain(stem)
    }

    pub(crate) fn short(&self) -> String {
        match self.kind {
            OriginKind::Mapping => format!("mapping `{}`", printable(&self.name)),
            OriginKind::File => format!("`{}`", printable(&self.name)),
            OriginKind::Catalogue => format!("catalogue `{}`", printable(&self.name)),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OriginKind::Mapping => write!(out, "mapping `{}`", printable(&self.name)),
            OriginKind::File => write!(out, "translation file `{}`", printable(&self.name)),
            OriginKind::Catalogue => write!(out, "catalogue `{}`", printable(&self.name)),
        }
    }
}

/// What is wrong with one configuration or a part of it. The rest is in use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Problem {
    /// The configuration is left out.
    #[error("{origin} is not used")]
    File {
        /// Which.
        origin: Origin,
        #[source]
        cause: Reason,
    },
    /// The file cannot be read.
    #[error("{origin} is not readable")]
    Unreadable {
        /// Which.
        origin: Origin,
        #[source]
        cause: Arc<io::Error>,
    },
    /// One rule is left out.
    #[error("rule {place} of {origin} is not used")]
    Rule {
        /// Of which configuration.
        origin: Origin,
        /// Place in it, from 1.
        place: usize,
        #[source]
        cause: Reason,
    },
    /// A transport profile cannot be used, and no rule that names it.
    #[error("transport profile `{transport}` of {origin} is not used")]
    Transport {
        /// Of which configuration.
        origin: Origin,
        /// The profile.
        transport: String,
        #[source]
        cause: Reason,
    },
    /// One rule is in use, and may not do what was meant.
    #[error("rule {place} of {origin} {what}")]
    Notice {
        /// Of which configuration.
        origin: Origin,
        /// Place in it, from 1.
        place: usize,
        /// What it is about.
        what: Notice,
    },
    /// Rules by regexp, with which nothing is done.
    #[error("{count} rules by `regexp` of {origin} are not used: they are off; see `images.regexp_translations`")]
    RegexpsOff {
        /// Of which configuration.
        origin: Origin,
        /// How many.
        count: usize,
    },
}

/// What may not be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A regexp that matches in the middle of a name.
    Unanchored { regexp: String },
    /// A fixed name that is no image name.
    Unreachable {
        /// The name, with the prefix.
        name: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanchored { regexp } => {
                write!(out, "matches anywhere in a name: write `^(?:{regexp})$` for a whole one")
            }
            Self::Unreachable { name } => write!(out, "is never asked for: `{name}` is no image name"),
        }
    }
}

/// The directory cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read directory `{}`", path.display())]
pub struct DirError {
    pub path: PathBuf,
    #[source]
    pub cause: io::Error,
}

/// A pattern as messages show it: with its backslashes as they are.
pub(super) fn on_one_line(pattern: &str) -> String {
    const SHOWN: usize = 300;
    pattern.chars().take(SHOWN).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Tells the log what is new among the problems.
pub(super) fn report(before: &[Problem], now: &[Problem]) {
    let known: Vec<String> = before.iter().map(|problem| Chain(problem).to_string()).collect();
    for problem in now.iter().map(|problem| Chain(problem).to_string()).filter(|problem| !known.contains(problem)) {
        tracing::warn!(problem, "in the translation rules");
    }
}
