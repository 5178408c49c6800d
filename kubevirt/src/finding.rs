//! What is found in an object.

use std::fmt;

use super::Path;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The object would be refused.
    Error,
    /// It would be taken, and is not all that was said.
    Warning,
}

/// One thing that is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// Of the field.
    pub path: Path,
    pub text: String,
}

/// What was found so far, up to [`MOST`].
#[derive(Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
    has_errors: bool,
    /// Whether there were more.
    is_cut: bool,
}

/// Most findings of an object: nobody reads more, and a hostile one may have any number.
const MOST: usize = 200;

impl Level {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, path, text } = self;
        write!(f, "{}: ", level.word())?;
        if !path.as_str().is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(text)
    }
}

// === impl Findings ===

impl Findings {
    pub(crate) fn error(&mut self, path: &Path, text: impl Into<String>) {
        self.push(Level::Error, path, text);
    }

    pub(crate) fn warn(&mut self, path: &Path, text: impl Into<String>) {
        self.push(Level::Warning, path, text);
    }

    /// An error unless something holds.
    pub(crate) fn unless(&mut self, holds: bool, path: &Path, text: impl Into<String>) {
        if !holds {
            self.error(path, text);
        }
    }

    pub(crate) fn push(&mut self, level: Level, path: &Path, text: impl Into<String>) {
        let finding = Finding { level, path: path.clone(), text: text.into() };
        self.has_errors |= level == Level::Error;
        if self.all.contains(&finding) {
            return;
        }
        if self.all.len() < MOST {
            self.all.push(finding);
        } else {
            self.is_cut = true;
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// Whether something is wrong with a field, or below it.
    pub(crate) fn has_error_at(&self, path: &Path) -> bool {
        let is_below = |other: &Path| {
            other
                .as_str()
                .strip_prefix(path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.all.iter().any(|finding| finding.level == Level::Error && is_below(&finding.path))
    }

    pub(crate) fn all(mut self) -> Vec<Finding> {
        if self.is_cut {
            let level = if self.has_errors { Level::Error } else { Level::Warning };
            self.all.push(Finding { level, path: Path::default(), text: format!("has more than these {MOST}") });
        }
        self.all
    }
}
