//! What becomes of the objects of a manifest: what is wrong with each, and what is made of it.

use std::cell::Cell;

use serde_json::Value;

use super::finding::Findings;
use super::names::{cut, hash};
use super::preset::{self, Preset};
use super::render::{self, Instance, Options, World};
use super::types::{MachineSpec, Metadata, ReplicaSetSpec, Spec, Template};
use super::{Document, Finding, Kind, Level, Path, kind, rules, table};

/// Most pods that are made of one object, and of all ReplicaSets of a manifest.
const MAX_PODS: u32 = 250;
const MAX_REPLICAS: u32 = 1000;
/// Longest name of a pod's object, less what a replica's name has behind it.
const MAX_SET_NAME: usize = 57;
/// Annotation by which KubeVirt has programs of others change a VM's definition.
const SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";

/// What becomes of one object.
#[derive(Debug)]
pub struct Judged {
    pub findings: Vec<Finding>,
    /// What is applied in its place; nothing if it would be refused.
    pub objects: Vec<Value>,
}

impl Judged {
    /// Whether it would be refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Error)
    }
}

/// What is wrong with each object, and with what is made of it.
#[must_use]
pub fn lint(documents: &[Document], options: &Options) -> Vec<Vec<Finding>> {
    render(documents, options).into_iter().map(|judged| judged.findings).collect()
}

/// What is made of each object, in their order. Presets add to the objects of the same manifest. What is not KubeVirt's stays as it is.
#[must_use]
pub fn render(documents: &[Document], options: &Options) -> Vec<Judged> {
    let world = World::of(documents);
    let presets = presets(documents);
    let judge = Judge { world, presets, options, pod: None, replicas: Cell::new(0) };
    documents.iter().map(|document| judge.document(document)).collect()
}

/// The pod with this name that a VirtualMachineInstance of a cluster is, and its Secret. Presets were added when it was made; `others` are
/// claims that it names, as far as they are there.
#[must_use]
pub fn render_instance(instance: &Document, pod: &str, others: &[Document], options: &Options) -> Judged {
    let world = World::of(others);
    Judge { world, presets: Vec::new(), options, pod: Some(pod), replicas: Cell::new(0) }.document(instance)
}

fn presets(documents: &[Document]) -> Vec<Preset> {
    let of = |document: &Document| {
        let mut found = Findings::default();
        let value = table::check(&document.value, table::of(Kind::Preset)?, &Path::default(), &mut found);
        // What is wrong with it is said where it stands itself.
        (!found.has_errors()).then(|| preset::of(document, value.get("spec").unwrap_or(&Value::Null)))
    };
    documents.iter().filter(|document| document.kind == Kind::Preset).filter_map(of).collect()
}

struct Judge<'a> {
    world: World,
    presets: Vec<Preset>,
    options: &'a Options,
    /// Name of the pod, if it has not that of the instance.
    pod: Option<&'a str>,
    /// Of all ReplicaSets so far.
    replicas: Cell<u32>,
}

impl Judge<'_> {
    fn document(&self, document: &Document) -> Judged {
        let mut found = Findings::default();
        let objects = match document.kind {
            Kind::Other => vec![document.value.clone()],
            Kind::Refused(instead) => {
                let text = format!("{} is not supported: {instead}", document.kind_name());
                found.error(&Path::of("kind"), text);
                Vec::new()
            }
            kind => self.own(document, kind, &mut found),
        };
        let objects = if found.has_errors() { Vec::new() } else { objects };
        Judged { findings: found.all(), objects }
    }

    fn own(&self, document: &Document, kind: Kind, found: &mut Findings) -> Vec<Value> {
        if !kind::is_current(document.api_version()) {
            let text = format!("{} is of older days; `virtletctl vm convert` rewrites it", document.api_version());
            found.error(&Path::of("apiVersion"), text);
        }
        let Some(object) = table::of(kind) else { return Vec::new() };
        let value = table::check(&document.value, object, &Path::default(), found);
        let metadata: Metadata = part(&value, "metadata", found).unwrap_or_default();
        found.unless(!metadata.name.is_empty(), &Path::of("metadata.name"), "is required");
        sidecars(&metadata, &Path::of("metadata"), found);
        let spec = value.get("spec").cloned().unwrap_or(Value::Object(serde_json::Map::new()));
        match kind {
            Kind::Preset => preset_of(document, &spec, found),
            Kind::VirtualMachineInstance => {
                let places = (Path::of("metadata"), Path::of("spec"));
                return self.instance(&metadata, spec, places, "Never", found);
            }
            Kind::VirtualMachine => return self.machine(&metadata, spec, found),
            Kind::ReplicaSet => return self.replica_set(&metadata, spec, found),
            Kind::Refused(_) | Kind::Other => {}
        }
        Vec::new()
    }

    fn machine(&self, metadata: &Metadata, spec: Value, found: &mut Findings) -> Vec<Value> {
        let at = Path::of("spec");
        let says = |key: &str| spec.get(key).is_some();
        match (says("running"), says("runStrategy")) {
            (true, true) => found.error(&at, "has both running and runStrategy; write one of them"),
            (false, false) => found.error(&at.field("runStrategy"), "is required, unless running says it"),
            _ => {}
        }
        let own = without_template(&spec);
        let own: MachineSpec = read(own, &at, found).unwrap_or_default();
        // kubelet's word for what the strategy comes to without anybody who looks after the VM.
        let restart = match own.strategy() {
            Some("Always") => "Always",
            Some("RerunOnFailure") => "OnFailure",
            _ => "Never",
        };
        if matches!(own.strategy(), Some("Halted" | "Manual")) {
            let at = if own.run_strategy.is_some() { at.field("runStrategy") } else { at.field("running") };
            found.warn(&at, "the pod runs as soon as it is applied: nobody waits for a start");
        }
        let Some((template, inner)) = self.template(spec, found) else { return Vec::new() };
        let metadata = Metadata { name: metadata.name.clone(), namespace: metadata.namespace.clone(), ..template };
        let at = at.field("template");
        self.instance(&metadata, inner, (at.field("metadata"), at.field("spec")), restart, found)
    }

    fn replica_set(&self, metadata: &Metadata, spec: Value, found: &mut Findings) -> Vec<Value> {
        let at = Path::of("spec");
        let own: ReplicaSetSpec = read(without_template(&spec), &at, found).unwrap_or_default();
        let Some((template, inner)) = self.template(spec, found) else { return Vec::new() };
        let at_template = at.field("template");
        let selector = own.selector.unwrap_or_default();
        let is_empty = selector.match_labels.iter().flatten().next().is_none()
            && selector.match_expressions.iter().flatten().next().is_none();
        found.unless(!is_empty, &at.field("selector"), "selects nothing");
        match preset::matches(&selector, &template.labels) {
            Ok(chosen) => found.unless(
                chosen || is_empty,
                &at_template.field("metadata").field("labels"),
                "are not those that spec.selector selects",
            ),
            Err(why) => found.error(&at.field("selector").field("matchExpressions"), why),
        }
        stateless(&inner, &at_template.field("spec"), found);
        let replicas = own.replicas.unwrap_or(1);
        self.replicas.set(self.replicas.get().saturating_add(replicas));
        let is_fine = replicas <= MAX_PODS && self.replicas.get() <= MAX_REPLICAS;
        let text =
            format!("as pods there are at most {MAX_PODS}, and {MAX_REPLICAS} of all that are rendered together");
        found.unless(is_fine, &at.field("replicas"), text);
        let text = "pods of their own: nobody makes new ones, or fewer, when one ends or the number changes";
        found.warn(&at.field("replicas"), text);
        let mut objects = Vec::new();
        // One at least, so that all is looked at that there is.
        for nth in 0..replicas.clamp(1, MAX_PODS) {
            let suffix = hash(&format!("{}/{nth}", metadata.name), 5);
            let metadata = Metadata {
                name: format!("{}-{suffix}", cut(&metadata.name, MAX_SET_NAME)),
                namespace: metadata.namespace.clone(),
                ..template.clone()
            };
            let places = (at_template.field("metadata"), at_template.field("spec"));
            let made = self.instance(&metadata, inner.clone(), places, "Never", found);
            if found.has_errors() {
                return Vec::new();
            }
            objects.extend(made);
        }
        if replicas == 0 { Vec::new() } else { objects }
    }

    /// Metadata and spec of a template.
    fn template(&self, spec: Value, found: &mut Findings) -> Option<(Metadata, Value)> {
        let at = Path::of("spec.template");
        // One that is not there was told.
        let Some(Value::Object(mut template)) = spec.get("template").cloned() else { return None };
        let spec = template.remove("spec").unwrap_or(Value::Object(serde_json::Map::new()));
        let Template { metadata, .. } = read(Value::Object(template), &at, found)?;
        sidecars(&metadata, &at.field("metadata"), found);
        Some((metadata, spec))
    }

    /// The pod of an instance with this spec, as the table has left it; and where its metadata and its spec are.
    fn instance(
        &self,
        metadata: &Metadata,
        mut spec: Value,
        (at_metadata, at): (Path, Path),
        restart: &'static str,
        found: &mut Findings,
    ) -> Vec<Value> {
        let namespace = metadata.namespace.as_deref();
        let at_domain = at.field("domain");
        // What has to be there and is not was told.
        if spec.get("domain").is_none() {
            return Vec::new();
        }
        let presets = preset::merge(&mut spec["domain"], metadata, namespace, &self.presets, (&at_domain, found));
        let Some(mut spec) = read::<Spec>(spec, &at, found) else { return Vec::new() };
        rules::fill(&mut spec);
        rules::check(&spec, &at, found);
        if found.has_errors() {
            return Vec::new();
        }
        let instance = Instance {
            name: &metadata.name,
            pod: self.pod.unwrap_or(&metadata.name),
            namespace,
            metadata,
            at_metadata,
            spec: &spec,
            at,
            restart,
            presets,
        };
        render::pod(&instance, &self.world, self.options, found)
    }
}

fn preset_of(document: &Document, spec: &Value, found: &mut Findings) {
    let preset = preset::of(document, spec);
    let at = Path::of("spec");
    if let Err(why) = preset.selects(&std::collections::BTreeMap::new()) {
        found.error(&at.field("selector").field("matchExpressions"), why);
    }
    for field in preset.unmerged() {
        let path = Path::of(&format!("spec.domain.{field}"));
        found.warn(&path, "is not what presets add to a VM; write it into the VM");
    }
}

fn sidecars(metadata: &Metadata, at: &Path, found: &mut Findings) {
    let is_there = metadata.annotations.contains_key(SIDECARS);
    let text = "not supported: no program of others changes a VM's definition";
    found.unless(!is_there, &at.field("annotations").field(SIDECARS), text);
}

/// A claim is one VM's.
fn stateless(spec: &Value, at: &Path, found: &mut Findings) {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten().enumerate();
    for (nth, volume) in volumes {
        let Some(claim) = volume.get("persistentVolumeClaim") else { continue };
        if claim.get("readOnly").and_then(Value::as_bool) != Some(true) {
            let at = at.field("volumes").item(nth).field("persistentVolumeClaim");
            found.error(&at, "is one VM's, and there are several; use ephemeral, or readOnly");
        }
    }
}

fn without_template(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Value::Object(spec) = &mut spec {
        spec.remove("template");
    }
    spec
}

fn part<T: serde::de::DeserializeOwned>(value: &Value, key: &str, found: &mut Findings) -> Option<T> {
    read(value.get(key)?.clone(), &Path::of(key), found)
}

/// What the table took, as values. Where something is wrong this may fail, and was told already.
fn read<T: serde::de::DeserializeOwned>(value: Value, at: &Path, found: &mut Findings) -> Option<T> {
    match serde_json::from_value(value) {
        Ok(read) => Some(read),
        Err(error) => {
            if !found.has_errors() {
                found.error(at, format!("cannot be read: {error}"));
            }
            None
        }
    }
}

#[cfg(test)]
mod tests;
