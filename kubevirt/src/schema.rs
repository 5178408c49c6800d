//! The table as schemas that an API server judges objects by: structural ones of OpenAPI v3, with rules in CEL.
//!
//! The generator of CRDs calls [`spec`]. What the table takes a schema takes, and refused fields are in it, too: a field that is not is
//! dropped in silence unless a client asks for strict validation, as kubectl does. Every text, list and map has a limit, by which the
//! server reckons what its rules cost.
//!
//! A schema refuses less than [`lint`](super::lint) does: it cannot name one of several things ([`rules`]), and of types that are
//! Kubernetes' own it knows only whether they are an object or a list. All of these would be a hundred times as long as ours, and of
//! another version than the cluster's; whoever makes pods of objects judges them once more.

mod rules;

use serde_json::{Map, Value, json};

use self::rules::Rule;
use super::Kind;
use super::table::{self, Field, Json, MAX_ITEMS, MAX_QUANTITY, MAX_TEXTS, Object, Shape, Verdict};

/// Longest value of a map of texts: that of all annotations of an object together.
const MAX_VALUE: usize = 256 << 10;
/// Quantities that are not negative.
const QUANTITY: &str = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";
/// Longest key and longest value of a label.
const MAX_LABEL: (usize, usize) = (317, 63);

/// The schema of the spec of a kind that is ours.
#[must_use]
pub fn spec(kind: Kind) -> Option<Value> {
    let root = table::of(kind)?;
    let field = root.0.iter().find(|field| field.name == "spec")?;
    let rules = rules::of(kind);
    Some(Walk { rules }.shape(field.shape, "", true))
}

/// A walk over the table of a kind, with that kind's rules.
struct Walk {
    rules: Vec<Rule>,
}

impl Walk {
    /// Of a value at a path; of one that has to be there an empty text is not enough.
    fn shape(&self, shape: Shape, at: &str, is_required: bool) -> Value {
        let mut schema = match shape {
            Shape::Bool => json!({"type": "boolean"}),
            Shape::Int(least, most) => whole(least, most),
            Shape::Text(form) => {
                let any = if is_required { "" } else { "?" };
                json!({
                    "type": "string", "maxLength": form.most, "pattern": format!("^({}){any}$", form.pattern), "description": form.what,
                })
            }
            Shape::Word(words) => {
                // An empty text says nothing, as clients of KubeVirt's send it.
                let empty = (!is_required).then_some("");
                let longest = words.iter().map(|word| word.len()).max().unwrap_or_default();
                let words: Vec<&str> = words.iter().copied().chain(empty).collect();
                json!({"type": "string", "maxLength": longest, "enum": words})
            }
            Shape::Quantity => quantity(),
            Shape::Quantities => map(quantity()),
            Shape::Texts => map(text(MAX_VALUE)),
            Shape::Object(object) => self.object(object, at),
            Shape::List(of, most) => {
                json!({"type": "array", "maxItems": most, "items": self.shape(*of, &format!("{at}[]"), true)})
            }
            Shape::Foreign(_, json) | Shape::Unread(json) => unread(json),
            Shape::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        };
        let rules: Vec<Value> = self.rules.iter().filter(|rule| rule.at == at).map(Rule::to_value).collect();
        if !rules.is_empty()
            && let Value::Object(schema) = &mut schema
            && let Value::Array(all) = schema.entry("x-kubernetes-validations").or_insert_with(|| json!([]))
        {
            all.extend(rules);
        }
        schema
    }

    fn object(&self, object: &Object, at: &str) -> Value {
        let mut properties = Map::new();
        for field in object.0 {
            let path = if at.is_empty() { field.name.to_owned() } else { format!("{at}.{}", field.name) };
            let mut schema = self.shape(field.shape, &path, field.is_required);
            if let (Some(text), Value::Object(schema)) = (field.verdict.text(), &mut schema) {
                schema.insert("description".to_owned(), text.into());
            }
            properties.insert(field.name.to_owned(), schema);
        }
        let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), properties.into());
        }
        let required: Vec<&str> = object.0.iter().filter(|field| field.is_required).map(|field| field.name).collect();
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        let refusals: Vec<Value> = object.0.iter().filter_map(refusal).collect();
        if !refusals.is_empty() {
            schema.insert("x-kubernetes-validations".to_owned(), refusals.into());
        }
        schema.into()
    }
}

/// The rule by which a field is refused unless it asks for nothing, as clients of KubeVirt's write fields that nobody has set.
fn refusal(field: &Field) -> Option<Value> {
    let (Verdict::Later(_) | Verdict::Refused(_), Shape::Unread(json)) = (field.verdict, field.shape) else {
        return None;
    };
    let name = field.name;
    let asks_nothing = match json {
        Json::Bool => format!(" || !self.{name}"),
        Json::Text => format!(" || self.{name} == ''"),
        Json::List => format!(" || self.{name}.size() == 0"),
        Json::Quantity | Json::Object | Json::Selector => String::new(),
    };
    Some(json!({
        "rule": format!("!has(self.{name}){asks_nothing}"),
        "message": field.verdict.text(),
        "fieldPath": format!(".{name}"),
    }))
}

/// Of a value whose fields the table does not have. What has no type a rule would not see.
fn unread(json: Json) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    match json {
        Json::Bool => json!({"type": "boolean"}),
        Json::Text => text(MAX_VALUE),
        Json::Quantity => quantity(),
        Json::Object => any,
        Json::List => json!({"type": "array", "maxItems": MAX_ITEMS, "items": any}),
        Json::Selector => selector(),
    }
}

fn whole(least: i64, most: i64) -> Value {
    let mut schema = json!({"type": "integer", "format": "int64", "minimum": least});
    // The largest number is none that the server could compare: its limits are floats.
    if most < i64::MAX {
        schema["maximum"] = most.into();
    }
    schema
}

fn text(most: usize) -> Value {
    json!({"type": "string", "maxLength": most})
}

fn quantity() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
        "maxLength": MAX_QUANTITY, "minimum": 0, "pattern": QUANTITY,
    })
}

fn map(of: Value) -> Value {
    json!({"type": "object", "maxProperties": MAX_TEXTS, "additionalProperties": of})
}

/// Kubernetes' LabelSelector: a rule compares it.
fn selector() -> Value {
    let (key, value) = MAX_LABEL;
    json!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": map(text(value)),
            "matchExpressions": {
                "type": "array", "maxItems": MAX_ITEMS,
                "items": {
                    "type": "object", "required": ["key", "operator"],
                    "properties": {
                        "key": text(key),
                        "operator": {"type": "string", "maxLength": 12, "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {"type": "array", "maxItems": MAX_ITEMS, "items": text(value)},
                    },
                },
            },
        },
    })
}

#[cfg(test)]
mod tests;
