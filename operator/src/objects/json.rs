//! A value that is kept as text: a tree of it would take ten times the memory.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Json(Box<str>);

impl Json {
    /// That of a value.
    #[must_use]
    pub(crate) fn of(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// The value.
    #[must_use]
    pub(crate) fn value(&self) -> Value {
        // Was made of one.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// The text; of equal values it is the same, as keys are sorted.
    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::of(&Value::Object(Map::new()))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::of(&value))
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}
