//! Metadata of an object, as far as somebody reads it. Who set which field takes as much memory as the object, and is nested as deep.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// Annotation with a second copy of an object, of `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

/// For serde, of a field.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let form = Form::deserialize(deserializer)?;
    let mut annotations = form.annotations;
    if let Some(all) = &mut annotations {
        all.remove(LAST_APPLIED);
    }
    Ok(ObjectMeta {
        name: form.name,
        namespace: form.namespace,
        uid: form.uid,
        resource_version: form.resource_version,
        generation: form.generation,
        creation_timestamp: form.creation_timestamp,
        deletion_timestamp: form.deletion_timestamp,
        labels: form.labels,
        annotations,
        owner_references: form.owner_references,
        finalizers: form.finalizers,
        ..ObjectMeta::default()
    })
}
