//! What a cluster's presets add to a VirtualMachineInstance that is about to be made: as a patch, for whoever answers the API server.
//!
//! The same twice is the same as once: what a preset gave the first time stays in its record.

use serde_json::{Value, json};

use super::{Leaf, Plan, Preset, Record, is_excluded, plan, text_of};
use crate::finding::Findings;
use crate::names::PRESETS;
use crate::table;
use crate::types::Metadata;
use crate::{Finding, Kind, Level, Path};

/// Where a patch finds the domain.
const DOMAIN: &str = "/spec/domain";

/// What presets do to an instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// Operations of a JSON patch; none if nothing changes.
    pub patch: Vec<Value>,
    /// Fields that say otherwise than a preset, and win.
    pub warnings: Vec<Finding>,
    /// Which presets are for it and what they gave, as annotation `virtlet.k8s/presets` has it.
    pub record: Option<String>,
}

/// What the presets of a namespace add to an instance that is made in it. Of its other fields nothing is said.
///
/// # Errors
/// All that speaks against it: presets that differ, presets that are wrong themselves, a domain that nothing can be added to.
pub fn apply(instance: &Value, presets: &[Value]) -> Result<Applied, Vec<Finding>> {
    let mut found = Findings::default();
    let Some(metadata) = metadata_of(instance, &mut found) else { return Err(found.all()) };
    if is_excluded(&metadata) {
        return Ok(Applied::default());
    }
    let chosen: Vec<Preset> = presets.iter().filter_map(|preset| chosen(preset, &metadata, &mut found)).collect();
    if found.has_errors() {
        return Err(found.all());
    }
    let noted = metadata.annotations.get(PRESETS).map(String::as_str);
    if chosen.is_empty() {
        // What a copy says that it got elsewhere, it has not got here.
        let gone = noted.map(|_| json!({"op": "remove", "path": annotation()}));
        return Ok(Applied { patch: gone.into_iter().collect(), ..Applied::default() });
    }
    let at = Path::of("spec.domain");
    let own = instance.pointer(DOMAIN).unwrap_or(&Value::Null);
    let domain = domain_of(own, &at)?;
    let before: Record = noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let plan = plan(&domain, chosen.iter().collect(), &before, (&at, &mut found));
    if found.has_errors() {
        return Err(errors(found));
    }
    let record = text_of(&record_of(&plan));
    let mut patch = additions(own.clone(), plan.added);
    if record.as_deref() != noted {
        let has_some = instance.pointer("/metadata/annotations").is_some_and(Value::is_object);
        patch.push(match has_some {
            true => json!({"op": "add", "path": annotation(), "value": record}),
            false => json!({"op": "add", "path": "/metadata/annotations", "value": {PRESETS: record}}),
        });
    }
    Ok(Applied { patch, warnings: found.all(), record })
}

fn metadata_of(instance: &Value, found: &mut Findings) -> Option<Metadata> {
    let at = Path::of("metadata");
    let text = |key: &str| instance.get(key).and_then(Value::as_str).unwrap_or_default();
    if Kind::of(text("apiVersion"), text("kind")) != Kind::VirtualMachineInstance {
        found.error(&Path::of("kind"), "is not VirtualMachineInstance, and presets are for no other");
        return None;
    }
    match instance.get("metadata").map(serde::Deserialize::deserialize) {
        Some(Ok(metadata)) => return Some(metadata),
        // The error would quote it.
        Some(Err(_)) => found.error(&at, "cannot be read"),
        None => found.error(&at, "is required"),
    }
    None
}

/// A preset, if it is for an object with this metadata.
fn chosen(preset: &Value, metadata: &Metadata, found: &mut Findings) -> Option<Preset> {
    let mut wrong = Findings::default();
    let preset = Preset::checked(preset, &mut wrong)?;
    let selects = preset.selects(&metadata.labels);
    if let Err(why) = &selects {
        wrong.error(&Path::of("spec.selector.matchExpressions"), why.as_str());
    }
    // Whom a selector is for that cannot be read, nobody knows.
    let is_its = selects.unwrap_or(true) || wrong.has_error_at(&Path::of("spec.selector"));
    if is_its && wrong.has_errors() {
        for error in errors(wrong) {
            let Finding { path, text, .. } = error;
            found.error(&Path::default(), format!("preset `{}` is wrong: {path}: {text}", preset.name));
        }
        return None;
    }
    is_its.then_some(preset)
}

/// The domain as presets are merged with it.
fn domain_of(own: &Value, at: &Path) -> Result<Value, Vec<Finding>> {
    let mut found = Findings::default();
    let domain = match own {
        Value::Null => {
            found.error(at, "is required");
            Value::Null
        }
        own => table::check(own, &table::DOMAIN, at, &mut found),
    };
    if found.has_errors() { Err(errors(found)) } else { Ok(domain) }
}

fn record_of(plan: &Plan) -> Record {
    let mut record = plan.record.clone();
    for (preset, path) in &plan.overridden {
        record.entry(preset.clone()).or_default().overridden.push(path.clone());
    }
    record
}

/// Operations that set these fields, one after the other, with the objects that they are in.
fn additions(mut domain: Value, added: Vec<(Leaf, Value)>) -> Vec<Value> {
    added.into_iter().filter_map(|(leaf, value)| addition(&mut domain, &leaf, value)).collect()
}

fn addition(domain: &mut Value, leaf: &[String], value: Value) -> Option<Value> {
    let mut place = domain;
    let mut pointer = DOMAIN.to_owned();
    let mut keys = leaf.iter().peekable();
    while let Some(key) = keys.next() {
        pointer.push('/');
        pointer.push_str(&escaped(key));
        if keys.peek().is_none() || !place.get(key).is_some_and(Value::is_object) {
            let value = keys.rev().fold(value, |value, key| json!({ key: value }));
            place.as_object_mut()?.insert(key.clone(), value.clone());
            return Some(json!({"op": "add", "path": pointer, "value": value}));
        }
        place = place.get_mut(key)?;
    }
    None
}

fn annotation() -> String {
    format!("/metadata/annotations/{}", escaped(PRESETS))
}

/// A key as a JSON pointer has it.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn errors(found: Findings) -> Vec<Finding> {
    found.all().into_iter().filter(|finding| finding.level == Level::Error).collect()
}

#[cfg(test)]
mod tests;
