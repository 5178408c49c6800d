//! Every field of KubeVirt's v1 that a VM may be described by, with what becomes of it here.
//!
//! The one source: what manifests are checked by, and what `docs/virtual-machines.md` lists. A field that is not in it is unknown, and an
//! error, as to kubectl. One that is refused is in it, so that the error can say why.

mod check;
mod devices;
mod domain;
mod forms;
mod objects;
mod show;
mod volumes;

pub(crate) use self::check::{MAX_QUANTITY, MAX_TEXTS, check, shown};
pub(crate) use self::domain::DOMAIN;
pub(crate) use self::objects::{MAX_ITEMS, of};
pub use self::show::{Row, rows};

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::forms::Form;

/// Fields of an object.
#[derive(Debug)]
pub(crate) struct Object(pub(crate) &'static [Field]);

/// A field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) verdict: Verdict,
    /// Whether an object without it is wrong.
    pub(crate) is_required: bool,
}

/// What becomes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The VM is as it says.
    Supported,
    /// It is taken, and what comes of it is not all of what KubeVirt makes of it.
    Warned(&'static str),
    /// It is refused as long as nobody has built it. With what does instead, if something does.
    Later(&'static str),
    /// It is refused. With what does instead, or why.
    Refused(&'static str),
}

/// What values a field has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Bool,
    Int(i64, i64),
    /// A text of this form.
    Text(&'static Form),
    /// One of these words.
    Word(&'static [&'static str]),
    Quantity,
    /// Quantities by resources' names.
    Quantities,
    /// Texts by names.
    Texts,
    Object(&'static Object),
    /// So many of them at most.
    List(&'static Shape, usize),
    /// A type of Kubernetes' own: whether a value is one, and what it is in JSON.
    Foreign(fn(&Value) -> Result<(), String>, Json),
    /// Nothing is asked of it but what it is in JSON: of fields that are refused.
    Unread(Json),
    /// Whatever stands there: of what is left to others.
    Any,
}

/// What a value is in JSON whose fields are not in the table. As KubeVirt has it: a schema has to say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Json {
    Bool,
    Text,
    Quantity,
    Object,
    List,
    /// Kubernetes' LabelSelector, of which a schema says more.
    Selector,
}

pub(crate) const fn yes(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, verdict: Verdict::Supported, is_required: false }
}

/// One that has to be there.
pub(crate) const fn must(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, verdict: Verdict::Supported, is_required: true }
}

pub(crate) const fn warned(name: &'static str, shape: Shape, text: &'static str) -> Field {
    Field { name, shape, verdict: Verdict::Warned(text), is_required: false }
}

pub(crate) const fn later(name: &'static str, json: Json, instead: &'static str) -> Field {
    Field { name, shape: Shape::Unread(json), verdict: Verdict::Later(instead), is_required: false }
}

pub(crate) const fn never(name: &'static str, json: Json, instead: &'static str) -> Field {
    Field { name, shape: Shape::Unread(json), verdict: Verdict::Refused(instead), is_required: false }
}

/// Any number of this type.
pub(crate) const fn whole(most: i64) -> Shape {
    Shape::Int(0, most)
}

/// Whether a value is of a type of Kubernetes' own.
pub(crate) fn is<T: DeserializeOwned>(value: &Value) -> Result<(), String> {
    T::deserialize(value).map(drop).map_err(|error| format!("none that the API would take: {error}"))
}

impl Verdict {
    /// As an error or a warning has it; `None` for what is supported.
    #[must_use]
    pub fn text(self) -> Option<String> {
        let with = |what: &str, why: &str| {
            if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") }
        };
        match self {
            Self::Supported => None,
            Self::Warned(text) => Some(text.to_owned()),
            Self::Later(instead) => Some(with("not supported yet", instead)),
            Self::Refused(instead) => Some(with("not supported", instead)),
        }
    }
}

#[cfg(test)]
mod tests;
