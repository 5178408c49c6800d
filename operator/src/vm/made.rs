//! The instance that a VM is run as.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use uuid::Uuid;

use super::spec::template;
use crate::context::{Context, Error};
use crate::objects::{Json, Meta as _, Vm, Vmi, texts};
use crate::write::{creating, is_stale, is_there, text_of};

/// Annotation of an instance with the hash of the template that it was made of.
pub(super) const TEMPLATE: &str = "virtlet.k8s/template";

/// As many as a pod has.
const MAX_NICS: usize = 15;

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
    let macs = macs(vm.uid(), &instance);
    if !macs.is_empty() {
        annotations.entry(kubevirt::MACS.to_owned()).or_insert_with(|| json!(macs).to_string());
    }
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

/// MAC addresses of NICs whose spec says none, by their links in the pod: the same ones in each run. They are wishes, as not every network
/// takes one.
fn macs(uid: &str, spec: &Value) -> BTreeMap<String, String> {
    let said = spec["domain"]["devices"]["interfaces"].as_array();
    let says = |name: &str| said.into_iter().flatten().any(|nic| nic["name"] == name && nic["macAddress"].is_string());
    let link = |nth| if nth == 0 { "eth0".to_owned() } else { format!("net{nth}") };
    let nics = kubevirt::render::nics(spec);
    let unsaid = nics.iter().enumerate().take(MAX_NICS).filter(|(_, name)| !says(name));
    unsaid.map(|(nth, name)| (link(nth), mac(uid, name))).collect()
}

/// Locally administered, of one NIC of one VM.
fn mac(uid: &str, nic: &str) -> String {
    let digits = kubevirt::hash(&format!("{uid}/{nic}"), 10);
    let bytes = digits.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).into_owned());
    ["02".to_owned()].into_iter().chain(bytes).collect::<Vec<_>>().join(":")
}

/// Of a template.
pub(super) fn hash(template: &Json) -> String {
    kubevirt::hash(template.text(), 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vms_nics_have_addresses_of_their_own_in_each_run() {
        let spec = json!({
            "domain": {"devices": {"interfaces": [
                {"name": "lan", "bridge": {}}, {"name": "pod", "bridge": {}}, {"name": "said", "macAddress": "02:00:00:00:00:01"},
            ]}},
            "networks": [
                {"name": "pod", "pod": {}}, {"name": "lan", "multus": {"networkName": "x"}},
                {"name": "said", "multus": {"networkName": "y"}},
            ],
        });
        let of = |uid: &str| macs(uid, &spec);
        let first = of("6f0b");
        assert_eq!(first.keys().collect::<Vec<_>>(), ["eth0", "net1"]);
        assert!(first.values().all(|mac| mac.len() == 17 && mac.starts_with("02:")), "{first:?}");
        assert_eq!(first["eth0"], mac("6f0b", "pod"));
        assert!(first == of("6f0b") && first["eth0"] != first["net1"] && first["eth0"] != of("6f0c")["eth0"]);
        assert_eq!(macs("6f0b", &json!({})).keys().collect::<Vec<_>>(), ["eth0"], "there is one in any case");
    }
}
