//! A file of CDI: what it says of a container with its devices. Pure.
//!
//! A machine has device nodes, variables and mounts. All else is for processes of the node, and is kept by its name only, so that it can be
//! told.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vmspec::yaml::{self, NotYaml};

/// Options of mounts that volumes of a machine have anyway, or that mean nothing to them.
const OPTIONS: [&str; 12] = [
    "rw", "bind", "rbind", "nosuid", "nodev", "private", "rprivate", "slave", "rslave", "relatime", "noatime",
    "defaults",
];
/// The one that matters.
const READ_ONLY: &str = "ro";

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    /// `vendor/class`.
    pub(super) kind: String,
    /// What goes with each of its devices.
    pub(super) edits: Edits,
    pub(super) devices: BTreeMap<String, Edits>,
}

/// What a container has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::devices) struct Edits {
    /// As `NAME=value`.
    pub(in crate::devices) env: Vec<String>,
    pub(in crate::devices) nodes: Vec<Node>,
    pub(in crate::devices) mounts: Vec<Mount>,
    /// What no machine can have, by its name.
    pub(in crate::devices) rest: BTreeSet<String>,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::devices) struct Node {
    pub(in crate::devices) host_path: String,
    /// In the container.
    pub(in crate::devices) path: String,
    pub(in crate::devices) read_only: bool,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::devices) struct Mount {
    pub(in crate::devices) host_path: String,
    pub(in crate::devices) path: String,
    pub(in crate::devices) read_only: bool,
}

/// Why a text is none.
#[derive(Debug, thiserror::Error)]
pub(in crate::devices) enum NoSpec {
    #[error("it is not JSON: line {0}")]
    Json(usize),
    #[error("it is {0}")]
    Yaml(#[from] NotYaml),
    #[error("it is no map")]
    NoMap,
    #[error("its `cdiVersion` is not of the versions 0 or 1 of CDI")]
    Version,
    #[error("it has no `{0}`, or one of another type")]
    Field(&'static str),
    #[error("its `kind` is not `vendor/class`")]
    Kind,
    #[error("it has two devices of one name")]
    Twice,
    #[error("a variable in it is not `NAME=value`")]
    Variable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawNode {
    path: String,
    #[serde(default)]
    host_path: String,
    #[serde(default)]
    permissions: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMount {
    host_path: String,
    container_path: String,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default, rename = "type")]
    kind: String,
}

// === impl Spec ===

impl Spec {
    pub(super) fn parse(text: &str, is_json: bool) -> Result<Self, NoSpec> {
        let value: Value = if is_json {
            serde_json::from_str(text).map_err(|error| NoSpec::Json(error.line()))?
        } else {
            yaml::value(text)?
        };
        let Value::Object(mut map) = value else { return Err(NoSpec::NoMap) };
        let version: String = field(&mut map, "cdiVersion")?;
        if !["0.", "1."].iter().any(|major| version.trim_start_matches('v').starts_with(major)) {
            return Err(NoSpec::Version);
        }
        let kind: String = field(&mut map, "kind")?;
        if !kind.split_once('/').is_some_and(|(vendor, class)| !vendor.is_empty() && !class.is_empty()) {
            return Err(NoSpec::Kind);
        }
        let mut devices = BTreeMap::new();
        for mut device in field::<Vec<Map<String, Value>>>(&mut map, "devices")? {
            let name: String = field(&mut device, "name")?;
            if devices.insert(name, Edits::take(&mut device)?).is_some() {
                return Err(NoSpec::Twice);
            }
        }
        Ok(Self { kind, edits: Edits::take(&mut map)?, devices })
    }
}

// === impl Edits ===

impl Edits {
    pub(super) fn add(&mut self, other: Self) {
        self.env.extend(other.env);
        self.nodes.extend(other.nodes);
        self.mounts.extend(other.mounts);
        self.rest.extend(other.rest);
    }

    fn take(of: &mut Map<String, Value>) -> Result<Self, NoSpec> {
        const ALL: &str = "containerEdits";
        let mut edits = match of.remove(ALL) {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Object(edits)) => edits,
            Some(_) => return Err(NoSpec::Field(ALL)),
        };
        let env: Vec<String> = list(&mut edits, "env")?;
        let is_variable =
            |text: &String| text.split_once('=').is_some_and(|(name, _)| !name.is_empty()) && !text.contains('\0');
        if !env.iter().all(is_variable) {
            return Err(NoSpec::Variable);
        }
        let nodes: Vec<RawNode> = list(&mut edits, "deviceNodes")?;
        let mut all = Self { env, nodes: nodes.into_iter().map(node).collect(), ..Self::default() };
        for mount in list(&mut edits, "mounts")? {
            all.mount(mount);
        }
        all.rest.extend(edits.into_iter().filter(|(_, value)| !is_nothing(value)).map(|(name, _)| name));
        Ok(all)
    }

    fn mount(&mut self, RawMount { host_path, container_path: path, options, kind }: RawMount) {
        if !["", "bind", "none"].contains(&kind.as_str()) {
            self.rest.insert(format!("mounts of type {kind}"));
            return;
        }
        let read_only = options.iter().any(|option| option == READ_ONLY);
        let others = options.into_iter().filter(|option| option != READ_ONLY && !OPTIONS.contains(&option.as_str()));
        self.rest.extend(others.map(|option| format!("mount option {option}")));
        self.mounts.push(Mount { host_path, path, read_only });
    }
}

fn node(RawNode { path, host_path, permissions }: RawNode) -> Node {
    let host_path = if host_path.is_empty() { path.clone() } else { host_path };
    // All rights, if nothing is said.
    let read_only = !permissions.is_empty() && !permissions.contains('w');
    Node { host_path, path, read_only }
}

fn field<T: DeserializeOwned>(map: &mut Map<String, Value>, name: &'static str) -> Result<T, NoSpec> {
    let value = map.remove(name).ok_or(NoSpec::Field(name))?;
    serde_json::from_value(value).map_err(|_of_another_type| NoSpec::Field(name))
}

/// A list that may be left out.
fn list<T: DeserializeOwned>(map: &mut Map<String, Value>, name: &'static str) -> Result<Vec<T>, NoSpec> {
    match map.remove(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => serde_json::from_value(value).map_err(|_of_another_type| NoSpec::Field(name)),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
