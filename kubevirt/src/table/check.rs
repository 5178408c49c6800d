//! Whether an object is what the table says, and the object without what says nothing.

use common::quantity;
use serde_json::{Map, Value};

use super::{Field, Object, Shape, Verdict};
use crate::Path;
use crate::finding::Findings;

/// Most bytes of a quantity: more are no number that anybody means, and the cost of rules in a schema goes by it.
pub(crate) const MAX_QUANTITY: usize = 32;
/// Most entries of a map of texts.
pub(crate) const MAX_TEXTS: usize = 1000;
/// Longest part of a text that an error shows, in characters.
const MAX_SHOWN: usize = 64;

/// The object without nulls and without refused fields that ask for nothing; quantities are texts in it. What is wrong is noted.
pub(crate) fn check(value: &Value, object: &Object, at: &Path, found: &mut Findings) -> Value {
    let Value::Object(map) = value else {
        found.error(at, format!("must be an object, and is {}", kind_of(value)));
        return Value::Object(Map::new());
    };
    let mut kept = Map::new();
    for (key, value) in map {
        let at = at.field(key);
        let Some(field) = object.0.iter().find(|field| field.name == key) else {
            found.error(&at, unknown(key, object));
            continue;
        };
        if !value.is_null()
            && let Some(value) = self::field(value, field, &at, found)
            && !value.is_null()
        {
            kept.insert(key.clone(), value);
        }
    }
    let is_there = |field: &&Field| map.get(field.name).is_some_and(|value| !value.is_null() && *value != "");
    for field in object.0.iter().filter(|field| field.is_required && !is_there(field)) {
        found.error(&at.field(field.name), "is required");
    }
    Value::Object(kept)
}

fn field(value: &Value, field: &Field, at: &Path, found: &mut Findings) -> Option<Value> {
    match field.verdict {
        // As KubeVirt's own clients write fields that nobody has set.
        Verdict::Later(_) | Verdict::Refused(_) if asks_nothing(value) => None,
        Verdict::Later(_) | Verdict::Refused(_) => {
            found.error(at, field.verdict.text().unwrap_or_default());
            None
        }
        Verdict::Warned(text) => {
            if !asks_nothing(value) {
                found.warn(at, text);
            }
            Some(shape(value, field.shape, at, found))
        }
        Verdict::Supported => Some(shape(value, field.shape, at, found)),
    }
}

fn asks_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Number(_) | Value::Object(_) | Value::Bool(true) => false,
    }
}

fn shape(value: &Value, shape: Shape, at: &Path, found: &mut Findings) -> Value {
    let mut wrong = |what: &str| {
        found.error(at, format!("must be {what}, and is {}", kind_of(value)));
        Value::Null
    };
    match (shape, value) {
        (Shape::Object(object), value) => return check(value, object, at, found),
        (Shape::List(of, most), Value::Array(all)) => return list(all, *of, most, at, found),
        (Shape::Texts, Value::Object(all)) => return texts(all, at, found),
        (Shape::Quantities, Value::Object(all)) => return quantities(all, at, found),
        (Shape::Quantity, Value::String(_) | Value::Number(_)) => return quantity(value, at, found),
        (Shape::Int(least, most), Value::Number(number)) => match number.as_i64() {
            Some(number) if (least..=most).contains(&number) => {}
            _ => found.error(at, format!("{number} is not a whole number from {least} to {most}")),
        },
        (Shape::Text(form), Value::String(text)) => {
            // Nothing is said by an empty text.
            if text.is_empty() {
                return Value::Null;
            }
            if text.len() > form.most || !(form.is)(text) {
                let it = if form.is_secret { "it".to_owned() } else { shown(text) };
                found.error(at, format!("{it} is not {}", form.what));
            }
        }
        (Shape::Word(words), Value::String(text)) => {
            if text.is_empty() {
                return Value::Null;
            }
            if !words.contains(&text.as_str()) {
                found.error(at, format!("{} is not one of {}", shown(text), words.join(", ")));
            }
        }
        (Shape::Foreign(is, _), value) => {
            if let Err(why) = is(value) {
                found.error(at, why);
            }
        }
        (Shape::Bool, Value::Bool(_)) | (Shape::Unread(_) | Shape::Any, _) => {}
        (Shape::Bool, _) => return wrong("true or false"),
        (Shape::Int(..), _) => return wrong("a whole number"),
        (Shape::Text(_) | Shape::Word(_), _) => return wrong("a text"),
        (Shape::Quantity, _) => return wrong("a quantity, as 1Gi or 500m"),
        (Shape::List(..), _) => return wrong("a list"),
        (Shape::Texts | Shape::Quantities, _) => return wrong("a map"),
    }
    value.clone()
}

fn list(all: &[Value], of: Shape, most: usize, at: &Path, found: &mut Findings) -> Value {
    if all.len() > most {
        found.error(at, format!("has {} items, and {most} are the most", all.len()));
        return Value::Array(Vec::new());
    }
    all.iter().enumerate().map(|(nth, value)| shape(value, of, &at.item(nth), found)).collect()
}

fn texts(all: &Map<String, Value>, at: &Path, found: &mut Findings) -> Value {
    if all.len() > MAX_TEXTS {
        found.error(at, format!("has {} entries, and {MAX_TEXTS} are the most", all.len()));
        return Value::Object(Map::new());
    }
    for (key, value) in all.iter().filter(|(_, value)| !value.is_string()) {
        found.error(&at.field(key), format!("must be a text, and is {}; put it into quotes", kind_of(value)));
    }
    Value::Object(all.clone())
}

fn quantities(all: &Map<String, Value>, at: &Path, found: &mut Findings) -> Value {
    if all.len() > MAX_TEXTS {
        found.error(at, format!("has {} entries, and {MAX_TEXTS} are the most", all.len()));
        return Value::Object(Map::new());
    }
    all.iter().map(|(key, value)| (key.clone(), quantity(value, &at.field(key), found))).collect()
}

fn quantity(value: &Value, at: &Path, found: &mut Findings) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            found.error(at, format!("must be a quantity, as 1Gi or 500m, and is {}", kind_of(other)));
            return Value::Null;
        }
    };
    let is_fine = text.len() <= MAX_QUANTITY && quantity::bytes(&text).is_ok();
    if !is_fine {
        found.error(at, format!("{} is not a quantity from 0 to 8Ei, as 1Gi or 500m", shown(&text)));
    }
    Value::String(text)
}

fn unknown(key: &str, object: &Object) -> String {
    let same = object.0.iter().find(|field| field.name.eq_ignore_ascii_case(key));
    let meant = same.map(|field| format!("; did you mean `{}`?", field.name)).unwrap_or_default();
    format!("unknown field{meant}")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A text in an error: neither at length nor with its control characters.
pub(crate) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(MAX_SHOWN).collect();
    format!("{cut:?}")
}
