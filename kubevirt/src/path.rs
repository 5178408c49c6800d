//! Where in an object a field is: `spec.domain.devices.disks[1].name`.

use std::fmt;

/// The path of a field.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

/// Longest key that a path shows, in characters.
const MAX_KEY: usize = 64;

impl Path {
    /// That of a field at the top of an object, or deeper with dots.
    #[must_use]
    pub fn of(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// That of a field of this one. A key that is no name of a field, as one of a map, is in brackets.
    #[must_use]
    pub fn field(&self, key: &str) -> Self {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if key.is_empty() || !key.chars().all(is_name) || key.len() > MAX_KEY {
            let key: String = key.chars().take(MAX_KEY).map(|c| if c.is_control() { '?' } else { c }).collect();
            return Self(format!("{}[{key}]", self.0));
        }
        if self.0.is_empty() { Self(key.to_owned()) } else { Self(format!("{}.{key}", self.0)) }
    }

    /// That of an item of a list.
    #[must_use]
    pub fn item(&self, at: usize) -> Self {
        Self(format!("{}[{at}]", self.0))
    }

    /// As it is shown.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
