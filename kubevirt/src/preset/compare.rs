//! Whether presets would make something else of a VirtualMachineInstance now: for whoever has one that runs.
//!
//! What it was given is in its record. As long as that has a preset as it is, no field of either is looked at.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Leaf, Preset, Record, get, is_excluded, rival_of};
use crate::names::PRESETS;
use crate::types::Metadata;

/// Which presets would make something else of an instance with this metadata, each with what became of it since then. `presets` are those of its
/// namespace, `domain` gives its domain if that has to be looked at.
#[must_use]
pub fn changes(metadata: &Metadata, presets: &[&Preset], domain: impl FnOnce() -> Value) -> Vec<String> {
    let noted = metadata.annotations.get(PRESETS);
    let record: Record = noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if is_excluded(metadata) {
        return Vec::new();
    }
    let is_its = |preset: &&&Preset| preset.selects(&metadata.labels).unwrap_or_default();
    let its: BTreeMap<&str, &Preset> = presets.iter().filter(is_its).map(|preset| (&*preset.name, *preset)).collect();
    let gone = record.iter().filter(|(name, added)| !added.paths.is_empty() && !its.contains_key(name.as_str()));
    let mut changes: Vec<String> = gone.map(|(name, _)| format!("`{name}` is gone, or not for it any more")).collect();
    let is_another = |preset: &&Preset| {
        record.get(&preset.name).is_none_or(|added| added.version.is_none() || added.version != preset.version)
    };
    let others: Vec<&Preset> = its.into_values().filter(is_another).collect();
    if others.is_empty() {
        return changes;
    }
    let domain = domain();
    for preset in others {
        let (name, leaves) = (&preset.name, preset.leaves());
        match record.get(name) {
            None if leaves.iter().any(|(leaf, _)| !has(&domain, leaf)) => changes.push(format!("`{name}` is new")),
            Some(added) => {
                let gives_less = |path: &String| leaves.iter().all(|(leaf, _)| leaf.join(".") != *path);
                let is_same = |(leaf, value): &(Leaf, Value)| {
                    let is_overridden = added.overridden.contains(&leaf.join("."));
                    is_overridden || get(&domain, leaf).is_some_and(|own| own == value || *value == json!({}))
                };
                if added.paths.iter().any(gives_less) || !leaves.iter().all(is_same) {
                    changes.push(format!("`{name}` was changed"));
                }
            }
            None => {}
        }
    }
    changes
}

/// Whether a domain says something itself where a preset would.
fn has(domain: &Value, leaf: &[String]) -> bool {
    get(domain, leaf).is_some() || rival_of(leaf).is_some_and(|rival| get(domain, &rival).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str, version: &str, selector: Value, domain: Value) -> Preset {
        let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version});
        Preset::read(&json!({"metadata": metadata, "spec": {"selector": selector, "domain": domain}}))
            .expect("a preset")
    }

    fn metadata(record: &str) -> Metadata {
        let labels = [("a".to_owned(), "b".to_owned())].into();
        Metadata { labels, annotations: [(PRESETS.to_owned(), record.to_owned())].into(), ..Metadata::default() }
    }

    #[test]
    fn what_became_of_each_preset_is_told() {
        let its = || json!({"matchLabels": {"a": "b"}});
        let domain = json!({"cpu": {"cores": 4, "model": "own"}, "memory": {"guest": "1Gi"}});
        let record = r#"{"big": {"resourceVersion": "1", "paths": ["cpu.cores"], "overridden": ["cpu.model"]}}"#;
        let told = |presets: &[Preset]| {
            changes(&metadata(record), &presets.iter().collect::<Vec<_>>(), || domain.clone()).join(", ")
        };
        let big = |version: &str, domain: Value| preset("big", version, its(), domain);
        let as_it_was = || big("1", json!({"cpu": {"cores": 4, "model": "other"}}));
        assert_eq!(told(&[as_it_was()]), "");
        // Another label of it.
        assert_eq!(told(&[big("2", json!({"cpu": {"cores": 4, "model": "more"}}))]), "");
        let changed = "`big` was changed";
        assert_eq!(told(&[big("2", json!({"cpu": {"cores": 8, "model": "other"}}))]), changed);
        assert_eq!(told(&[big("2", json!({"cpu": {"model": "other"}}))]), changed);
        assert_eq!(told(&[big("2", json!({"cpu": {"cores": 4}, "machine": {"type": "q35"}}))]), changed);
        let gone = "`big` is gone, or not for it any more";
        assert_eq!(told(&[]), gone);
        assert_eq!(told(&[preset("big", "2", json!({"matchLabels": {"a": "c"}}), json!({"cpu": {"cores": 4}}))]), gone);
        let new = |domain: Value| preset("new", "3", its(), domain);
        assert_eq!(told(&[as_it_was(), new(json!({"machine": {"type": "q35"}}))]), "`new` is new");
        assert_eq!(told(&[as_it_was(), new(json!({"memory": {"guest": "2Gi"}}))]), "", "it says that itself");
        assert_eq!(told(&[new(json!({"machine": {"type": "q35"}}))]), format!("{gone}, `new` is new"));
    }

    #[test]
    fn whoever_has_what_the_record_says_is_not_looked_at() {
        let preset = preset("p", "1", json!({}), json!({"cpu": {"cores": 4}}));
        let none = || -> Value { panic!("is looked at") };
        let noted = metadata(r#"{"p": {"resourceVersion": "1", "paths": ["cpu.cores"]}}"#);
        assert!(changes(&noted, &[&preset], none).is_empty());
        let mut excluded = metadata("no record");
        excluded.annotations.insert("virtlet.k8s/preset-exclude".to_owned(), "true".to_owned());
        assert!(changes(&excluded, &[&preset], none).is_empty());
        assert!(changes(&Metadata::default(), &[], none).is_empty());
    }
}
