//! The description of a machine in one annotation ([`proto::vm`]). It is read and refused: this release makes no machine by it, and one
//! that lacks what its pod says is worse than none.

use std::collections::BTreeMap;
use std::fmt;

use proto::vm::{ANNOTATION, DescriptionError, VmDescription};
use serde_json::Value;

use super::Problem;
use super::reader::Reader;

/// Why a description is refused. Has no value of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotDescription {
    /// It says these things.
    Unbuilt(Vec<String>),
    /// It is of this version.
    Version(u32),
    /// It is too long, or none.
    Malformed,
}

/// Refuses a description. Whoever has nothing to say in it leaves it out.
pub(super) fn refuse(all: &BTreeMap<String, String>, reader: &mut Reader<'_>) {
    let Some(text) = all.get(ANNOTATION).filter(|text| !text.is_empty()) else { return };
    let why = match VmDescription::parse(text) {
        Ok(description) => NotDescription::Unbuilt(parts(&description)),
        Err(DescriptionError::Version(version)) => NotDescription::Version(version),
        Err(DescriptionError::TooLong | DescriptionError::Malformed(_)) => NotDescription::Malformed,
    };
    reader.refuse(ANNOTATION, Problem::NotDescription(why));
}

/// What it is about, by the names of its keys.
fn parts(description: &VmDescription) -> Vec<String> {
    let value = serde_json::to_value(description).unwrap_or_default();
    let keys = value.as_object().into_iter().flat_map(serde_json::Map::<String, Value>::keys);
    keys.filter(|key| *key != "v").cloned().collect()
}

impl fmt::Display for NotDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbuilt(parts) if parts.is_empty() => f.write_str("says nothing; leave it out"),
            Self::Unbuilt(parts) => {
                let parts = parts.join(", ");
                write!(
                    f,
                    "says {parts}, by which this release makes no machine; leave that out of the object that the pod is made of \
                     (`virtletctl vm lint` names the fields)"
                )
            }
            Self::Version(version) => {
                write!(f, "is of version {version}, which this release does not know; it takes a newer one on the node")
            }
            Self::Malformed => f.write_str("is no description of a machine; leave it out"),
        }
    }
}
