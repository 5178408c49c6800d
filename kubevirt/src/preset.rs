//! What presets add to an object: they are chosen by its labels, and what it says itself wins.
//!
//! Merged is field by field, of some parts of a domain. Two presets that differ on a field are an error: neither would be right.

mod apply;
mod compare;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::apply::{Applied, apply};
pub use self::compare::changes;
use super::finding::Findings;
use super::names::{EXCLUDE, OTHER_EXCLUDES};
use super::types::Metadata;
use super::{Document, Kind, Path, table};

/// Parts of a domain that presets may have.
const MERGED: [&[&str]; 10] = [
    &["memory"],
    &["cpu"],
    &["resources", "requests"],
    &["resources", "limits"],
    &["firmware"],
    &["clock"],
    &["features"],
    &["machine"],
    &["ioThreadsPolicy"],
    &["devices"],
];
/// Of its devices, those.
const DEVICES: [&str; 2] = ["watchdog", "rng"];
/// What is taken whole: one of several things, which a mixture would have two of.
const WHOLE: [&[&str]; 2] = [&["firmware", "bootloader"], &["devices", "watchdog"]];
/// Of these an object has one.
const RIVALS: [[&str; 2]; 2] = [["clock", "utc"], ["clock", "timezone"]];

/// Annotations by which an object, if one is `true`, has no presets merged.
pub const EXCLUDES: [&str; 3] = [EXCLUDE, OTHER_EXCLUDES[0], OTHER_EXCLUDES[1]];

/// A preset, with its domain as the table has left it.
#[derive(Debug, Clone)]
pub struct Preset {
    pub name: String,
    pub namespace: Option<String>,
    /// Its `resourceVersion`, if an API server has it.
    pub version: Option<String>,
    pub selector: LabelSelector,
    pub domain: Value,
}

type Leaf = Vec<String>;

/// What each preset has added.
type Record = BTreeMap<String, Added>;

/// What a preset has added.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Added {
    /// Fields of the domain that say otherwise, and won.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overridden: Vec<String>,
    /// Fields of the domain that it gave.
    paths: Vec<String>,
    #[serde(rename = "resourceVersion", skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

/// What becomes of a domain.
#[derive(Debug, Default)]
struct Plan {
    /// What it lacks, in the order in which that is set.
    added: Vec<(Leaf, Value)>,
    record: Record,
    /// Presets, each with a field that says otherwise.
    overridden: Vec<(String, String)>,
}

impl Plan {
    /// Notes that a preset gave a field.
    fn note(&mut self, preset: &str, path: &str) {
        self.record.entry(preset.to_owned()).or_default().paths.push(path.to_owned());
    }
}

impl Preset {
    /// One of a cluster; `None` if it is wrong.
    #[must_use]
    pub fn read(preset: &Value) -> Option<Self> {
        let mut wrong = Findings::default();
        let read = Self::checked(preset, &mut wrong)?;
        (!wrong.has_errors()).then_some(read)
    }

    fn checked(preset: &Value, wrong: &mut Findings) -> Option<Self> {
        let document = Document::of(preset.clone());
        let value = table::check(preset, table::of(Kind::Preset)?, &Path::default(), wrong);
        Some(of(&document, value.get("spec").unwrap_or(&Value::Null)))
    }

    /// Whether it is for an object with these labels.
    ///
    /// # Errors
    /// When its selector has an operator that there is not.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> Result<bool, String> {
        matches(&self.selector, labels)
    }

    /// Fields that it has and that no object gets.
    pub(super) fn unmerged(&self) -> Vec<String> {
        let mut leaves = Vec::new();
        leaves_of(&self.domain, &mut Vec::new(), &mut leaves);
        leaves.into_iter().filter(|(leaf, _)| !is_merged(leaf)).map(|(leaf, _)| leaf.join(".")).collect()
    }

    fn leaves(&self) -> Vec<(Leaf, Value)> {
        let mut leaves = Vec::new();
        leaves_of(&self.domain, &mut Vec::new(), &mut leaves);
        leaves.retain(|(leaf, _)| is_merged(leaf));
        leaves
    }
}

/// Whether labels are those that a selector chooses.
///
/// # Errors
/// When it has an operator that there is not.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> Result<bool, String> {
    let by_labels = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let mut by_expressions = true;
    for expression in selector.match_expressions.iter().flatten() {
        let value = labels.get(&expression.key);
        let is_in = value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
        by_expressions &= match expression.operator.as_str() {
            "In" => is_in,
            "NotIn" => !is_in,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            other => return Err(format!("`{other}` is none of the operators In, NotIn, Exists, DoesNotExist")),
        };
    }
    Ok(by_labels && by_expressions)
}

/// Adds to `domain` what the presets of its namespace say that are for it. Returns which these are, and what they added.
pub(super) fn merge(
    domain: &mut Value,
    metadata: &Metadata,
    namespace: Option<&str>,
    presets: &[Preset],
    (at, found): (&Path, &mut Findings),
) -> Option<String> {
    if is_excluded(metadata) {
        return None;
    }
    let is_its = |preset: &&Preset| {
        preset.namespace.as_deref() == namespace && preset.selects(&metadata.labels).unwrap_or_default()
    };
    let chosen: Vec<&Preset> = presets.iter().filter(is_its).collect();
    let plan = plan(domain, chosen, &Record::new(), (at, found));
    for (leaf, value) in plan.added {
        set(domain, &leaf, value);
    }
    text_of(&plan.record)
}

/// What a domain gets of presets that are for it. `before` is what it has got of them already.
fn plan(domain: &Value, mut chosen: Vec<&Preset>, before: &Record, (at, found): (&Path, &mut Findings)) -> Plan {
    chosen.sort_by(|a, b| a.name.cmp(&b.name));
    let wanted = wanted(&chosen, (at, found));
    let of = |preset: &&Preset| (preset.name.clone(), Added { version: preset.version.clone(), ..Added::default() });
    let mut plan = Plan { record: chosen.iter().map(of).collect(), ..Plan::default() };
    for (leaf, (value, names)) in wanted {
        let path = leaf.join(".");
        let has_got = |name: &str| before.get(name).is_some_and(|added| added.paths.contains(&path));
        let own = get(domain, &leaf).or_else(|| rival_of(&leaf).and_then(|rival| get(domain, &rival)));
        match own {
            Some(own) if own == &value || (own.is_object() && value == json!({})) => {
                names.into_iter().filter(|name| has_got(name)).for_each(|name| plan.note(name, &path));
            }
            Some(own) => {
                let names: Vec<&str> = names.into_iter().collect();
                let text = format!("{own} here wins over {value} of preset `{}`", names.join("`, `"));
                found.warn(&path_of(at, &leaf), text);
                plan.overridden.extend(names.into_iter().map(|name| (name.to_owned(), path.clone())));
            }
            None => {
                names.into_iter().for_each(|name| plan.note(name, &path));
                plan.added.push((leaf, value));
            }
        }
    }
    plan
}

/// All that presets say, and which of them do. Where two differ, that is noted.
fn wanted<'a>(
    chosen: &[&'a Preset],
    (at, found): (&Path, &mut Findings),
) -> BTreeMap<Leaf, (Value, BTreeSet<&'a str>)> {
    let mut wanted: BTreeMap<Leaf, (Value, BTreeSet<&str>)> = BTreeMap::new();
    for preset in chosen {
        for (leaf, value) in preset.leaves() {
            let path = path_of(at, &leaf);
            let others = wanted.iter().find(|(other, _)| **other == leaf || are_rivals(other, &leaf));
            if let Some((other, (others_value, names))) = others
                && (*other != leaf || *others_value != value)
            {
                let name = names.first().copied().unwrap_or_default();
                let text = format!(
                    "presets `{name}` and `{}` differ: {others_value} and {value}; change one of them, or their selectors",
                    preset.name
                );
                found.error(&path, text);
                continue;
            }
            wanted.entry(leaf).or_insert_with(|| (value, BTreeSet::new())).1.insert(&preset.name);
        }
    }
    wanted
}

/// The record as an annotation has it; nothing if no preset is for the object.
fn text_of(record: &Record) -> Option<String> {
    // Names and paths are what JSON can have.
    (!record.is_empty()).then(|| serde_json::to_string(record).unwrap_or_default())
}

/// A preset of a document whose fields the table has looked at; without a selector it is for everything.
pub(super) fn of(document: &Document, spec: &Value) -> Preset {
    let part = |key: &str| spec.get(key).cloned();
    Preset {
        name: document.name().to_owned(),
        namespace: document.namespace().map(str::to_owned),
        version: document.resource_version().map(str::to_owned),
        selector: part("selector").and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default(),
        domain: part("domain").unwrap_or_else(|| json!({})),
    }
}

fn is_excluded(metadata: &Metadata) -> bool {
    EXCLUDES.into_iter().any(|key| metadata.annotations.get(key).is_some_and(|value| value == "true"))
}

fn is_merged(leaf: &[String]) -> bool {
    let is_of = |part: &&[&str]| part.len() <= leaf.len() && part.iter().zip(leaf).all(|(a, b)| a == b);
    MERGED.iter().any(is_of)
        && (leaf.first().is_none_or(|first| first != "devices")
            || leaf.get(1).is_some_and(|device| DEVICES.contains(&device.as_str())))
}

fn leaves_of(value: &Value, at: &mut Leaf, leaves: &mut Vec<(Leaf, Value)>) {
    let is_whole = WHOLE.iter().chain([&RIVALS[0][..], &RIVALS[1][..]].iter()).any(|whole| at == whole);
    match value {
        Value::Object(map) if (!map.is_empty() && !is_whole) || at.is_empty() => {
            for (key, value) in map {
                at.push(key.clone());
                leaves_of(value, at, leaves);
                at.pop();
            }
        }
        // What a preset that has no devices, or resources, is often written with.
        Value::Object(map)
            if map.is_empty() && matches!(at.as_slice(), [one] if one == "devices" || one == "resources") => {}
        other => leaves.push((at.clone(), other.clone())),
    }
}

fn rival_of(leaf: &[String]) -> Option<Leaf> {
    let at = RIVALS.iter().position(|rival| leaf == rival)?;
    RIVALS.get(1 - at).map(|rival| rival.iter().map(|key| (*key).to_owned()).collect())
}

fn are_rivals(a: &[String], b: &[String]) -> bool {
    rival_of(a).is_some_and(|rival| rival == b)
}

fn get<'a>(value: &'a Value, leaf: &[String]) -> Option<&'a Value> {
    leaf.iter().try_fold(value, |value, key| value.get(key))
}

/// Only ever of a path on which nothing but objects are.
fn set(value: &mut Value, leaf: &[String], new: Value) {
    let mut place = value;
    for key in leaf {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key.as_str()];
    }
    *place = new;
}

fn path_of(at: &Path, leaf: &[String]) -> Path {
    leaf.iter().fold(at.clone(), |path, key| path.field(key))
}

#[cfg(test)]
mod tests;
