//! `VirtletCloudInitMetaData`: a map in YAML, hence in JSON too.

use serde_json::{Map, Value};

use super::Problem;
use crate::yaml;

/// Keys that cloud-init takes as strings, and breaks on when they are not.
const STRINGS: [&str; 2] = ["instance-id", "local-hostname"];

pub(super) fn parse(text: &str) -> Result<Map<String, Value>, Problem> {
    let map = match yaml::value(text)? {
        Value::Object(map) => map,
        _ => return Err(Problem::NotMap { line: 1 }),
    };
    match STRINGS.iter().find(|key| map.get(**key).is_some_and(|value| !value.is_string())) {
        Some(key) => Err(Problem::NotString(key)),
        None => Ok(map),
    }
}
