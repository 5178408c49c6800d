//! The objects of a manifest, in their order.
//!
//! Read as kubectl reads, with limits: what comes from others may be long, deep, or a few lines of aliases that stand for gigabytes.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options};

use super::Kind;

/// Most bytes of a manifest.
pub const MAX_BYTES: usize = 8 << 20;
/// Most objects of one.
pub const MAX_OBJECTS: usize = 10_000;
/// Most bytes of all texts of one, aliases resolved.
const MAX_TEXT: usize = 32 << 20;
/// Deepest that maps and lists may be in each other.
const MAX_DEPTH: usize = 64;

/// One object.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Which it is of its manifest, from 1; an item of a `List` counts by itself.
    pub number: usize,
    pub kind: Kind,
    pub value: Value,
}

/// Why a text is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("more than {MAX_OBJECTS} objects")]
    TooMany,
    #[error("not valid YAML")]
    NotYaml(#[source] Box<serde_saphyr::Error>),
    #[error("document {0} is no object: it needs `apiVersion` and `kind`")]
    NotObject(usize),
}

/// All objects of a manifest in YAML or JSON. Lists are taken apart, and empty documents left out.
///
/// # Errors
/// When it is none.
pub fn read(text: &str) -> Result<Vec<Document>, ReadError> {
    if text.len() > MAX_BYTES {
        return Err(ReadError::TooLong);
    }
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|error| ReadError::NotYaml(Box::new(error)))?;
    let mut documents = Vec::new();
    for value in values {
        take(value, &mut documents)?;
    }
    Ok(documents)
}

fn take(value: Value, documents: &mut Vec<Document>) -> Result<(), ReadError> {
    if value.is_null() {
        return Ok(());
    }
    let number = documents.len() + 1;
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Err(ReadError::NotObject(number));
    };
    if number > MAX_OBJECTS {
        return Err(ReadError::TooMany);
    }
    if kind.ends_with("List") && value.get("items").is_some_and(Value::is_array) {
        let Value::Object(mut list) = value else { return Ok(()) };
        let Some(Value::Array(items)) = list.remove("items") else { return Ok(()) };
        return items.into_iter().try_for_each(|item| take(item, documents));
    }
    let kind = Kind::of(api_version, kind);
    documents.push(Document { number, kind, value });
    Ok(())
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        // An error would quote the document, which may have secrets.
        with_snippet: false,
        // An image may be called `y`.
        strict_booleans: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        budget: serde_saphyr::budget! { max_total_scalar_bytes: MAX_TEXT, max_depth: MAX_DEPTH },
    }
}

// === impl Document ===

impl Document {
    /// One of a value that is no manifest's.
    #[must_use]
    pub fn of(value: Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = Kind::of(text("apiVersion"), text("kind"));
        Self { number: 1, kind, value }
    }

    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its version, as `kubevirt.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    /// Its kind, as it says.
    #[must_use]
    pub fn kind_name(&self) -> &str {
        self.text("/kind")
    }

    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its namespace; that of who applies it if it says none.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty())
    }

    /// Which of its states it is, if it is an API server's.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        Some(self.text("/metadata/resourceVersion")).filter(|version| !version.is_empty())
    }
}

#[cfg(test)]
mod tests;
