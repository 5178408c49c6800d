//! The pods in a manifest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::Value;
use serde_saphyr::Options;

/// Most bytes of a manifest: what the API takes, and some.
const MAX_BYTES: usize = 8 << 20;
/// Where the kinds that make pods have the pod.
const OWNERS: [(&str, &str); 8] = [
    ("Deployment", "/spec/template"),
    ("StatefulSet", "/spec/template"),
    ("DaemonSet", "/spec/template"),
    ("ReplicaSet", "/spec/template"),
    ("ReplicationController", "/spec/template"),
    ("Job", "/spec/template"),
    ("CronJob", "/spec/jobTemplate/spec/template"),
    ("PodTemplate", "/template"),
];

/// What a manifest has for us.
#[derive(Debug, Default)]
pub struct Manifest {
    pub pods: Vec<PodToBe>,
    /// RuntimeClasses by their names.
    pub classes: BTreeMap<String, RuntimeClass>,
}

/// A pod, or what somebody makes pods of.
#[derive(Debug, Clone)]
pub struct PodToBe {
    /// As `kubectl` names the object: `deployment/web`.
    pub object: String,
    pub name: String,
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: PodSpec,
    mount_options: MountOptionsOf,
}

/// `bindMountOptions` by container and path. Kubernetes has them since 1.37, and the API's types that are used here are older.
type MountOptionsOf = BTreeMap<(String, String), Vec<String>>;

/// Why a text is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("not valid YAML")]
    NotYaml(#[source] Box<serde_saphyr::Error>),
    #[error("{object} is none that the API would take")]
    NotObject {
        object: String,
        #[source]
        cause: serde_json::Error,
    },
    #[error("has no Pod, Deployment or other object that makes pods")]
    NoPods,
}

/// What a manifest says, of one or more documents.
///
/// # Errors
/// When it is no manifest, or has nothing that makes pods.
pub fn read(text: &str) -> Result<Manifest, ManifestError> {
    if text.len() > MAX_BYTES {
        return Err(ManifestError::TooLong);
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|error| ManifestError::NotYaml(Box::new(error)))?;
    let mut manifest = Manifest::default();
    for document in documents {
        manifest.take(document)?;
    }
    if manifest.pods.is_empty() { Err(ManifestError::NoPods) } else { Ok(manifest) }
}

impl Manifest {
    fn take(&mut self, document: Value) -> Result<(), ManifestError> {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
        let object = format!("{}/{name}", kind.to_lowercase());
        let failed = |cause| ManifestError::NotObject { object: object.clone(), cause };
        if kind == "List" {
            let items = document.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            return items.into_iter().try_for_each(|item| self.take(item));
        }
        if kind == "RuntimeClass" {
            let class = serde_json::from_value(document).map_err(failed)?;
            self.classes.insert(name, class);
            return Ok(());
        }
        let pod = match OWNERS.iter().find(|(owner, _)| *owner == kind) {
            Some((_, pointer)) => document.pointer(pointer).cloned().unwrap_or_default(),
            None if kind == "Pod" => document,
            None => return Ok(()),
        };
        let mount_options = mount_options(&pod);
        let Pod { metadata, spec, .. } = serde_json::from_value(pod).map_err(failed)?;
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        self.pods.push(PodToBe {
            name: if name.is_empty() { "pod".to_owned() } else { name },
            namespace,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            spec: spec.unwrap_or_default(),
            mount_options,
            object,
        });
        Ok(())
    }
}

impl PodToBe {
    /// `bindMountOptions` of what a container mounts at this path.
    #[must_use]
    pub fn mount_options(&self, container: &str, path: &str) -> &[String] {
        self.mount_options.get(&(container.to_owned(), path.to_owned())).map_or(&[], Vec::as_slice)
    }
}

fn mount_options(pod: &Value) -> MountOptionsOf {
    let list = |of: &Value, pointer: &str| of.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut all = MountOptionsOf::new();
    for container in [list(pod, "/spec/initContainers"), list(pod, "/spec/containers")].concat() {
        for mount in list(&container, "/volumeMounts") {
            let options: Vec<_> = list(&mount, "/bindMountOptions")
                .into_iter()
                .filter_map(|option| option.as_str().map(str::to_owned))
                .collect();
            if !options.is_empty() {
                all.insert((text(&container, "name"), text(&mount, "mountPath")), options);
            }
        }
    }
    all
}

/// As kubectl reads YAML, as far as that matters; and a few lines of aliases cannot stand for gigabytes.
fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        // An image may be called `y`.
        strict_booleans: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_in_whatever_makes_them() {
        let text = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, annotations: {VirtletVCPUCount: '2'}}
spec: {containers: [{name: vm, image: x}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec: {template: {metadata: {labels: {a: b}}, spec: {runtimeClassName: virtlet, containers: []}}}
---
kind: List
items:
- {kind: CronJob, metadata: {name: nightly}, spec: {jobTemplate: {spec: {template: {spec: {containers: []}}}}}}
- {kind: Service, metadata: {name: web}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: vms}
handler: virtlet
";
        let manifest = read(text).expect("a manifest");
        let pods: Vec<_> = manifest.pods.iter().map(|pod| (pod.object.as_str(), pod.namespace.as_str())).collect();
        assert_eq!(pods, [("pod/web", "shop"), ("deployment/db", "default"), ("cronjob/nightly", "default")]);
        assert_eq!(manifest.pods[0].annotations["VirtletVCPUCount"], "2");
        assert_eq!(manifest.classes["vms"].handler, "virtlet");
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let told = |text: &str| common::Chain(&read(text).expect_err(text)).to_string();
        assert_eq!(
            told("kind: Service\nmetadata: {name: x}"),
            "has no Pod, Deployment or other object that makes pods"
        );
        assert!(told("a: [").starts_with("not valid YAML: "));
        assert!(told("kind: Pod\nspec: {containers: 7}").starts_with("pod/ is none that the API would take: "));
        assert_eq!(told(&" ".repeat(MAX_BYTES + 1)), format!("longer than {MAX_BYTES} bytes"));
    }
}
