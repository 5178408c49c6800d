//! Manifests of older days, as today's: kinds and versions, names of fields, and what is refused here and has another form.
//!
//! What is today's already stays as it is, so converting twice changes nothing.

use serde_json::{Map, Value, json};

use super::kind::GROUP;
use super::names::{EXCLUDE, OTHER_EXCLUDES};
use super::{Document, Kind};

/// Version that all objects have afterwards.
const VERSION: &str = "v1";
/// What kinds were called before they had today's names.
const KINDS: [(&str, &str); 6] = [
    ("OfflineVirtualMachine", "VirtualMachine"),
    ("VM", "VirtualMachineInstance"),
    ("VirtualMachineReplicaSet", "VirtualMachineInstanceReplicaSet"),
    ("VMReplicaSet", "VirtualMachineInstanceReplicaSet"),
    ("VirtualMachinePreset", "VirtualMachineInstancePreset"),
    ("VMPreset", "VirtualMachineInstancePreset"),
];
/// What makes a claim with a disk on it.
const DATA_VOLUME: (&str, &str) = ("cdi.kubevirt.io/v1beta1", "DataVolume");

/// An object as today's, in that group, and what is to be applied beside it. Objects that are not KubeVirt's stay as they are.
#[must_use]
pub fn convert(document: &Document, group: &str) -> Vec<Value> {
    let mut value = document.value.clone();
    let Some((of, version)) = document.api_version().split_once('/') else { return vec![value] };
    if of != GROUP && of != group && of != super::kind::OTHER_GROUP {
        return vec![value];
    }
    let kind = today(document.kind_name(), version, &value);
    if !matches!(Kind::of(document.api_version(), kind), Kind::Refused(_) | Kind::Other) {
        value["kind"] = json!(kind);
        value["apiVersion"] = json!(format!("{group}/{VERSION}"));
    }
    drop_status(&mut value);
    annotations(value.pointer_mut("/metadata/annotations"));
    annotations(value.pointer_mut("/spec/template/metadata/annotations"));
    let mut objects = Vec::new();
    match kind {
        "VirtualMachine" => {
            run_strategy(&mut value);
            objects.extend(data_volumes(&mut value, document.namespace()));
            instance(value.pointer_mut("/spec/template/spec"));
        }
        "VirtualMachineInstance" => instance(value.get_mut("spec")),
        "VirtualMachineInstanceReplicaSet" => instance(value.pointer_mut("/spec/template/spec")),
        _ => {}
    }
    objects.push(value);
    objects
}

/// Today's name of a kind. A VirtualMachine was a single run of one until v1alpha2.
fn today<'a>(kind: &'a str, version: &str, value: &Value) -> &'a str {
    let is_old = version.starts_with("v1alpha") && version != "v1alpha3";
    if kind == "VirtualMachine" && is_old && value.pointer("/spec/domain").is_some() {
        return "VirtualMachineInstance";
    }
    KINDS.iter().find(|(old, _)| *old == kind).map_or(kind, |(_, today)| today)
}

fn drop_status(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.remove("status");
    }
    for pointer in ["/metadata", "/spec/template/metadata"] {
        if let Some(Value::Object(metadata)) = value.pointer_mut(pointer)
            && metadata.get("creationTimestamp").is_some_and(Value::is_null)
        {
            metadata.remove("creationTimestamp");
        }
    }
}

/// One name for what KubeVirt's code and its page have two for.
fn annotations(all: Option<&mut Value>) {
    let Some(Value::Object(all)) = all else { return };
    for key in OTHER_EXCLUDES {
        if let Some(value) = all.remove(key) {
            all.entry(EXCLUDE).or_insert(value);
        }
    }
}

/// `running` is the older way to say it.
fn run_strategy(value: &mut Value) {
    let Some(Value::Object(spec)) = value.get_mut("spec") else { return };
    if spec.contains_key("runStrategy") {
        return;
    }
    if let Some(running) = spec.get("running").and_then(Value::as_bool) {
        spec.remove("running");
        spec.insert("runStrategy".to_owned(), json!(if running { "Always" } else { "Halted" }));
    }
}

/// Templates of DataVolumes as objects of their own: CDI makes a claim of each, by the same name.
fn data_volumes(value: &mut Value, namespace: Option<&str>) -> Vec<Value> {
    let Some(Value::Object(spec)) = value.get_mut("spec") else { return Vec::new() };
    let Some(Value::Array(templates)) = spec.remove("dataVolumeTemplates") else { return Vec::new() };
    templates.into_iter().filter_map(|template| data_volume(template, namespace)).collect()
}

fn data_volume(template: Value, namespace: Option<&str>) -> Option<Value> {
    let Value::Object(mut object) = template else { return None };
    object.insert("apiVersion".to_owned(), json!(DATA_VOLUME.0));
    object.insert("kind".to_owned(), json!(DATA_VOLUME.1));
    object.remove("status");
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let (Some(metadata), Some(namespace)) = (metadata.as_object_mut(), namespace) {
        metadata.entry("namespace").or_insert_with(|| json!(namespace));
    }
    Some(Value::Object(object))
}

fn instance(spec: Option<&mut Value>) {
    let Some(Value::Object(spec)) = spec else { return };
    if let Some(Value::Array(disks)) = spec.get_mut("domain").and_then(|domain| domain.pointer_mut("/devices/disks")) {
        disks.iter_mut().filter_map(Value::as_object_mut).for_each(disk);
    }
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.iter_mut().filter_map(Value::as_object_mut).for_each(volume);
    }
}

/// A disk has had the name of its volume since v1alpha3.
fn disk(disk: &mut Map<String, Value>) {
    if let Some(volume) = disk.remove("volumeName") {
        disk.insert("name".to_owned(), volume);
    }
}

fn volume(volume: &mut Map<String, Value>) {
    if let Some(image) = volume.remove("registryDisk") {
        volume.entry("containerDisk").or_insert(image);
    }
    if let Some(name) = volume.get("dataVolume").and_then(|source| source.get("name")).cloned() {
        volume.remove("dataVolume");
        volume.entry("persistentVolumeClaim").or_insert(json!({ "claimName": name }));
    }
}

#[cfg(test)]
mod tests;
