//! Rules between fields, as [`rules`](crate::rules) has them, in CEL: those that can be said in one text wherever they are broken, since
//! the place is told by the server. What names one of several things, as the disk that has no volume, costs more than a schema may;
//! policies say that.

mod devices;
mod domain;
mod kinds;
mod spec;

use serde_json::{Value, json};

use crate::Kind;

/// One rule.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// What it is a rule of, by its path from the spec, with `[]` behind lists.
    pub(super) at: String,
    /// The field that is told, of what it is a rule of; empty for the whole.
    pub(super) field: &'static str,
    /// Holds of `self`.
    holds: String,
    /// Of a value that it does not hold of.
    text: Text,
}

#[derive(Debug, Clone, Copy)]
enum Text {
    Fixed(&'static str),
    /// An expression that makes it.
    Made(&'static str),
}

/// A rule of what is at a path.
fn rule(at: &str, field: &'static str, text: &'static str, holds: impl Into<String>) -> Rule {
    Rule { at: at.to_owned(), field, holds: holds.into(), text: Text::Fixed(text) }
}

/// How many of these fields there are.
fn count(fields: &[&str]) -> String {
    let each: Vec<String> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    format!("[{}].filter(is, is).size()", each.join(", "))
}

/// The rules of a kind. Those of an instance are those of a template, too; a preset says only a part, and is judged with the rest.
pub(super) fn of(kind: Kind) -> Vec<Rule> {
    let instance = || [spec::rules(), domain::rules(), devices::rules()].concat();
    let below = |mut rule: Rule| {
        let dot = if rule.at.is_empty() { "" } else { "." };
        rule.at = format!("template.spec{dot}{}", rule.at);
        rule
    };
    let template = || instance().into_iter().map(below).collect();
    match kind {
        Kind::VirtualMachineInstance => [kinds::instance(), instance()].concat(),
        Kind::VirtualMachine => [kinds::machine(), template()].concat(),
        Kind::ReplicaSet => [kinds::replica_set(), template()].concat(),
        Kind::Preset | Kind::Refused(_) | Kind::Other => Vec::new(),
    }
}

impl Rule {
    /// As a schema has it.
    pub(super) fn to_value(&self) -> Value {
        let mut rule = match self.text {
            Text::Fixed(text) => json!({"rule": self.holds, "message": text}),
            Text::Made(made) => json!({"rule": self.holds, "messageExpression": made}),
        };
        if !self.field.is_empty() {
            rule["fieldPath"] = format!(".{}", self.field).into();
        }
        rule
    }
}
