//! How YAML of a pod is read: as cloud-init's PyYAML does as far as that matters, and with limits. Pure; called for annotations,
//! for seeds and for CDI's files.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Options};

/// Most bytes of all texts in a document, aliases resolved: twice as many as a seed may have, which has its own error.
const MAX_TEXT: usize = 32 << 20;

/// A text that is not well-formed, or too much of it, by the line where that shows. Nothing of what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not valid YAML: line {line}")]
pub struct NotYaml {
    pub(super) line: u64,
}

/// What stands at the top of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Top {
    /// Nothing, or comments only.
    Empty,
    /// A map with these keys, and any that are no texts.
    Map(BTreeSet<String>),
    /// Anything else.
    Other,
}

/// What stands at the top of a document that is well-formed to its end.
pub(super) fn top(text: &str) -> Result<Top, NotYaml> {
    let mut options = options();
    // Nothing is made of the numbers here.
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    read(text, options)
}

/// The value of a document. JSON has no infinite numbers, so here they are an error.
pub fn value(text: &str) -> Result<Value, NotYaml> {
    read(text, options())
}

/// An error tells the line, and nothing of what stands there.
fn read<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, NotYaml> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // Where nothing more precise is known, the document begins at its first line.
        let line = error.location().map_or(1, |at| at.line().max(1));
        NotYaml { line }
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        // PyYAML takes the last of a key, and `0644` for an octal number, as YAML 1.1 says.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        // An error would quote the document.
        with_snippet: false,
        // A few lines of aliases can stand for gigabytes.
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        // What they stand for counts, too.
        budget: serde_saphyr::budget! { max_total_scalar_bytes: MAX_TEXT },
    }
}

// === impl Top ===

impl<'de> Deserialize<'de> for Top {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TopVisitor)
    }
}

struct TopVisitor;

impl<'de> Visitor<'de> for TopVisitor {
    type Value = Top;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a YAML document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some((key, IgnoredAny)) = map.next_entry::<Value, IgnoredAny>()? {
            if let Value::String(key) = key {
                keys.insert(key);
            }
        }
        Ok(Top::Map(keys))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Top, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Top::Other)
    }

    fn visit_unit<E>(self) -> Result<Top, E> {
        Ok(Top::Empty)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Top, E> {
        Ok(Top::Other)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Top, E> {
        Ok(Top::Other)
    }
}
