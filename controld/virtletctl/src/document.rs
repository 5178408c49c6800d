//! Results for programs: JSON and YAML.

use std::io;

use serde_json::Value;

use super::cli::Form;
use super::error::CtlError;
use super::text::{harmless, shown};

/// As JSON, or as YAML if that is what is wanted.
pub(super) fn of(value: Value, form: Form) -> Result<String, CtlError> {
    if form == Form::Yaml { yaml(value) } else { Ok(json(&value)) }
}

/// As JSON over several lines.
pub(super) fn json(value: &Value) -> String {
    harmless(&format!("{value:#}\n"))
}

/// As YAML. Characters that could harm a terminal come as their escapes, since not each of YAML's notations has any.
fn yaml(value: Value) -> Result<String, CtlError> {
    Ok(serde_saphyr::to_string(&escaped(value)).map_err(io::Error::other)?)
}

fn escaped(value: Value) -> Value {
    match value {
        // Text of several lines, such as a file in an annotation, stays so.
        Value::String(text) => Value::String(text.split('\n').map(shown).collect::<Vec<_>>().join("\n")),
        Value::Array(all) => all.into_iter().map(escaped).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (shown(&key), escaped(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_what_json_is() {
        let value =
            json!([{ "name": "web", "ip": null, "n": 1, "file": "a: b\nc\n", "on": "yes", "hostile": "a\u{1b}[2J" }]);
        let text = of(value, Form::Yaml).expect("written");
        let read: Value = serde_saphyr::from_str(&text).expect("YAML");
        let wanted =
            json!([{ "name": "web", "ip": null, "n": 1, "file": "a: b\nc\n", "on": "yes", "hostile": "a\\u{1b}[2J" }]);
        assert_eq!(read, wanted, "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
