//! The instance that a VM is run as.

use std::time::Duration;

use kube::Api;
use kube::core::ObjectMeta;
use serde_json::json;
use uuid::Uuid;

use super::spec::template;
use crate::context::{Context, Error};
use crate::objects::{Json, Meta as _, Vm, Vmi, texts};
use crate::write::{creating, is_stale, is_there, text_of};

/// Annotation of an instance with the hash of the template that it was made of.
pub(super) const TEMPLATE: &str = "virtlet.k8s/template";

/// What came of making one.
pub(super) enum Made {
    /// It is there.
    Yes,
    /// The VM, or its instance, is not as it was known; news are on the way.
    Stale,
    /// It was refused a moment ago, and is not asked for again for so long.
    Held(Duration),
    /// The API server does not want it.
    Refused(String),
}

/// Makes the instance, unless one is there.
pub(super) async fn make(vm: &Vm, context: &Context) -> Result<Made, Error> {
    // What was known may be late, and a VM that was stopped is not started.
    let vms: Api<Vm> = Api::namespaced_with(context.client.clone(), vm.namespace(), &context.group);
    let fresh = vms.get_opt(vm.name()).await?;
    if fresh.is_none_or(|fresh| fresh.metadata.resource_version != vm.metadata.resource_version) {
        return Ok(Made::Stale);
    }
    let vmis: Api<Vmi> = Api::namespaced_with(context.client.clone(), vm.namespace(), &context.group);
    match vmis.create(&creating(), &instance(vm, context)).await {
        Ok(_) => Ok(Made::Yes),
        Err(error) if is_there(&error) || is_stale(&error) => Ok(Made::Stale),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
            Ok(Made::Refused(text_of(&kube::Error::Api(status))))
        }
        Err(error) => Err(error.into()),
    }
}

fn instance(vm: &Vm, context: &Context) -> Vmi {
    let spec = vm.spec.value();
    let mut instance = spec["template"]["spec"].clone();
    // What a guest knows itself by is the same in each run.
    let firmware = &mut instance["domain"]["firmware"];
    if firmware["uuid"].is_null() {
        firmware["uuid"] = json!(Uuid::new_v5(&Uuid::NAMESPACE_OID, vm.uid().as_bytes()).to_string());
    }
    let mut annotations = texts(&spec["template"], "annotations");
    annotations.insert(TEMPLATE.to_owned(), hash(&template(vm)));
    let metadata = ObjectMeta {
        name: Some(vm.name().to_owned()),
        namespace: Some(vm.namespace().to_owned()),
        labels: Some(texts(&spec["template"], "labels")),
        annotations: Some(annotations),
        owner_references: Some(vec![vm.owner(context.group)]),
        ..ObjectMeta::default()
    };
    Vmi::new(context.group, metadata, Json::of(&instance))
}

/// Of a template.
pub(super) fn hash(template: &Json) -> String {
    kubevirt::hash(template.text(), 16)
}
