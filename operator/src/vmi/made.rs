//! The pod of an instance, and the Secret with its user-data.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::{Api, Resource};
use kubevirt::{Document, Level, cut, hash, render_instance};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::decide::had_pod;
use super::status::Failure;
use crate::context::Context;
use crate::names::{NO_CLAIM, VMI_UID};
use crate::objects::{InstanceKind, Kind as _, Meta as _, VmPod, Vmi};
use crate::write::{creating, is_there, text_of};

/// Longest part of an instance's name in that of its pod.
const MAX_NAME: usize = 50;
/// Longest DNS label.
const MAX_LABEL: usize = 63;
/// Most claims that are asked for, as many as volumes may be.
const MAX_CLAIMS: usize = 64;

/// Why no pod was made.
pub(super) enum MakeError {
    /// The instance is not as it was known; its news is on the way.
    Stale,
    /// It is to be said in its status, and tried again.
    Failed(Failure),
}

/// Name of an instance's pod. Of two instances with one name each has a pod of its own.
#[must_use]
pub(crate) fn pod_name(vmi: &Vmi) -> String {
    format!("{}-{}", cut(vmi.name(), MAX_NAME), hash(vmi.uid(), 8))
}

/// Makes both, unless they are there already.
pub(super) async fn make(vmi: &Vmi, context: &Context) -> Result<VmPod, MakeError> {
    // What was known may be late: an instance that had a pod never gets another one.
    let api: Api<Vmi> = Api::namespaced_with(context.client.clone(), vmi.namespace(), &context.group);
    let fresh = api.get_opt(vmi.name()).await.map_err(|error| failed("the instance is not read", &error))?;
    if fresh
        .is_none_or(|fresh| fresh.uid() != vmi.uid() || fresh.is_going() || fresh.status.is_final() || had_pod(&fresh))
    {
        return Err(MakeError::Stale);
    }
    let claims = claims(vmi, context).await?;
    for object in rendered(vmi, &claims, context)? {
        if object["kind"] == "Secret" {
            make_one::<Secret>(object, vmi, context).await?;
        } else {
            make_one::<Pod>(object, vmi, context).await?;
        }
    }
    let pods: Api<VmPod> = Api::namespaced(context.client.clone(), vmi.namespace());
    pods.get(&pod_name(vmi)).await.map_err(|error| failed("its pod is not read", &error))
}

/// Claims that the instance names: how a disk is given to a VM depends on their modes, so no pod is made before they are there.
async fn claims(vmi: &Vmi, context: &Context) -> Result<Vec<Document>, MakeError> {
    let spec = vmi.spec.value();
    let volumes = spec["volumes"].as_array().into_iter().flatten().take(MAX_CLAIMS);
    let named = volumes.filter_map(|volume| {
        let claim = volume.get("persistentVolumeClaim").or_else(|| volume.pointer("/ephemeral/persistentVolumeClaim"));
        claim?["claimName"].as_str()
    });
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), vmi.namespace());
    let mut claims = Vec::new();
    for name in named {
        let claim = api.get_opt(name).await.map_err(|error| failed(&format!("claim `{name}` is not read"), &error))?;
        let Some(claim) = claim else {
            let message = format!("claim `{name}` is not there; make it, and the VM starts");
            return Err(MakeError::Failed(Failure { reason: NO_CLAIM, message }));
        };
        claims.extend(serde_json::to_value(claim).ok().map(Document::of));
    }
    Ok(claims)
}

/// Both as they are made.
fn rendered(vmi: &Vmi, claims: &[Document], context: &Context) -> Result<Vec<Value>, MakeError> {
    let metadata = &vmi.metadata;
    let mut spec = vmi.spec.value();
    // The guest is called as the instance is: its pod has another name.
    if spec["hostname"].is_null() {
        spec["hostname"] = json!(host_name(vmi.name()));
    }
    let instance = Document::of(json!({
        "apiVersion": context.group.api_version(),
        "kind": InstanceKind::NAME,
        "metadata": {"name": vmi.name(), "namespace": vmi.namespace(), "labels": metadata.labels, "annotations": metadata.annotations},
        "spec": spec,
    }));
    let judged = render_instance(&instance, &pod_name(vmi), claims, &context.options);
    if judged.is_refused() {
        let errors = judged.findings.iter().filter(|finding| finding.level == Level::Error);
        let message: Vec<String> = errors.map(|finding| format!("{}: {}", finding.path, finding.text)).collect();
        return Err(MakeError::Failed(Failure { reason: "InvalidSpec", message: message.join("; ") }));
    }
    let mut objects = judged.objects;
    for object in &mut objects {
        let metadata = &mut object["metadata"];
        metadata["labels"][VMI_UID] = json!(vmi.uid());
        metadata["ownerReferences"] = json!([vmi.owner(context.group)]);
    }
    Ok(objects)
}

/// The first label of a name, which may have several.
fn host_name(name: &str) -> String {
    cut(name.split('.').next().unwrap_or_default(), MAX_LABEL).to_owned()
}

async fn make_one<K>(object: Value, vmi: &Vmi, context: &Context) -> Result<(), MakeError>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let kind = K::kind(&()).into_owned();
    let object: K = serde_json::from_value(object)
        .map_err(|error| MakeError::Failed(Failure { reason: "InvalidSpec", message: format!("{kind}: {error}") }))?;
    let name = object.name().to_owned();
    let api: Api<K> = Api::namespaced(context.client.clone(), vmi.namespace());
    let refused = match api.create(&creating(), &object).await {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    if !is_there(&refused) {
        return Err(failed(&format!("{kind} `{name}` is not made"), &refused));
    }
    match api.get_opt(&name).await {
        Ok(Some(other)) if other.is_of(vmi.uid()) => Ok(()),
        Ok(None) => Err(MakeError::Stale),
        Ok(Some(_)) => {
            let message = format!("{kind} `{name}` is there and is not this instance's; delete it");
            Err(MakeError::Failed(Failure { reason: "NameTaken", message }))
        }
        Err(error) => Err(failed(&format!("{kind} `{name}` is not read"), &error)),
    }
}

fn failed(what: &str, error: &kube::Error) -> MakeError {
    MakeError::Failed(Failure { reason: "FailedCreate", message: format!("{what}: {}", text_of(error)) })
}
