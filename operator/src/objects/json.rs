//! A value that is kept as text: a tree of it would take ten times the memory.

mod shallow;

use std::cell::Cell;

use serde::de::DeserializeSeed as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use self::shallow::{LEVELS, Shallow};

/// JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Json {
    text: Box<str>,
    /// Whether it is not all that the API server has, as that is nested too deep.
    is_cut: bool,
}

impl Json {
    /// That of a value.
    #[must_use]
    pub(crate) fn of(value: &Value) -> Self {
        Self { text: value.to_string().into(), is_cut: false }
    }

    /// Why it is not what the API server has, if it is not.
    #[must_use]
    pub(crate) fn wrong(&self) -> Option<String> {
        self.is_cut.then(|| format!("it is nested deeper than {LEVELS} levels"))
    }

    /// The value.
    #[must_use]
    pub(crate) fn value(&self) -> Value {
        // Was made of one.
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The text; of equal values it is the same, as keys are sorted.
    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::of(&Value::Object(Map::new()))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_cut = Cell::new(false);
        let value = Shallow { left: LEVELS, is_cut: &is_cut }.deserialize(deserializer)?;
        Ok(Self { is_cut: is_cut.get(), ..Self::of(&value) })
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}
