//! The pod as a whole.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proto::vm::ANNOTATION;
use proto::vm::guest::GUEST;
use serde_json::Value;
use vmspec::annotations::PodAnnotations;
use vmspec::plan::{Described, NotDescribed};

use super::{Draft, Instance, Options, World, cloud_init, described, disks, networks, probes, resources, value_of};
use crate::Path;
use crate::finding::Findings;
use crate::names::{INSTANCE_ID, PRESETS, TARGET, VM_NAME, VMI, instance_id, label_value};
use crate::table::shown;
use crate::types::Spec;

/// Name of the container that is the VM.
const CONTAINER: &str = "vm";
/// Annotations of a client's own, which would say something wrong of the pod.
const CLIENTS: &str = "kubectl.kubernetes.io/";

/// The objects of an instance: its Secret, if it has one, and its pod.
pub(crate) fn pod(instance: &Instance<'_>, world: &World, options: &Options, found: &mut Findings) -> Vec<Value> {
    let mut draft = Draft::new(instance, world, options, found);
    runtime_class(&mut draft);
    resources::of(&mut draft);
    disks::of(&mut draft);
    networks::of(&mut draft);
    cloud_init::of(&mut draft);
    probes::of(&mut draft);
    described::of(&mut draft);
    let annotations = annotations(&mut draft);
    let labels = labels(instance);
    let Draft { container, pod, secret, spec, .. } = draft;
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: instance.namespace.map(str::to_owned),
        labels: Some(labels.clone()),
        ..ObjectMeta::default()
    };
    let secret = secret.map(|mut secret| {
        secret.metadata = metadata(secret.metadata.name.as_deref().unwrap_or_default());
        value_of(&secret)
    });
    let pod = Pod {
        metadata: ObjectMeta { annotations: Some(annotations), ..metadata(instance.pod) },
        spec: Some(copied(spec, instance, container, pod)),
        status: None,
    };
    secret.into_iter().chain([value_of(&pod)]).collect()
}

/// What a pod has as the instance has it, and what every VM pod has.
fn copied(spec: &Spec, instance: &Instance<'_>, container: Container, pod: PodSpec) -> PodSpec {
    let mut node_selector = spec.node_selector.clone();
    if let Some(architecture) = &spec.architecture {
        node_selector.insert("kubernetes.io/arch".to_owned(), architecture.clone());
    }
    let some = |all: Vec<_>| if all.is_empty() { None } else { Some(all) };
    PodSpec {
        containers: vec![Container { name: CONTAINER.to_owned(), stdin: Some(true), tty: Some(true), ..container }],
        restart_policy: Some(instance.restart.to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        hostname: spec.hostname.clone(),
        subdomain: spec.subdomain.clone(),
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        node_selector: Some(node_selector).filter(|selector| !selector.is_empty()),
        affinity: spec.affinity.clone(),
        tolerations: some(spec.tolerations.clone()),
        topology_spread_constraints: Some(spec.topology_spread_constraints.clone()).filter(|all| !all.is_empty()),
        scheduler_name: spec.scheduler_name.clone(),
        priority_class_name: spec.priority_class_name.clone(),
        service_account_name: spec.service_account_name.clone(),
        dns_policy: spec.dns_policy.clone(),
        dns_config: spec.dns_config.clone(),
        ..pod
    }
}

/// Which handler: that is a matter of the firmware.
fn runtime_class(draft: &mut Draft<'_>) {
    let options = draft.options;
    let class = match draft.spec.domain.firmware.efi() {
        None => Some(&options.runtime_class),
        Some(efi) if efi.is_secure() => options.secure_boot.as_ref(),
        Some(_) => options.efi.as_ref(),
    };
    let class = class.cloned().unwrap_or_else(|| {
        let what = if draft.spec.domain.firmware.efi().is_some_and(crate::types::Efi::is_secure) { "secure-boot" } else { "efi" };
        let at = draft.domain("firmware").field("bootloader").field("efi");
        let text = format!(
            "takes a RuntimeClass whose handler has this firmware, and none is named: virtletctl vm --runtime-class {what}=NAME"
        );
        draft.found.error(&at, text);
        options.runtime_class.clone()
    });
    draft.pod.runtime_class_name = Some(class);
}

fn labels(instance: &Instance<'_>) -> BTreeMap<String, String> {
    let mut labels = instance.metadata.labels.clone();
    for key in [VMI, VM_NAME] {
        labels.insert(key.to_owned(), label_value(instance.name));
    }
    labels.insert(INSTANCE_ID.to_owned(), instance_id(instance.name));
    labels
}

fn annotations(draft: &mut Draft<'_>) -> BTreeMap<String, String> {
    let instance = draft.instance;
    let at = instance.at_metadata.field("annotations");
    // That of the guest is for its node to write.
    let is_own = |key: &str| !key.starts_with(CLIENTS) && key != GUEST;
    let own = instance.metadata.annotations.iter().filter(|(key, _)| is_own(key));
    let mut all: BTreeMap<String, String> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    if all.contains_key(ANNOTATION) {
        draft.found.error(&at.field(ANNOTATION), "is made of the object's fields; leave it out");
    }
    for (key, (value, of)) in &draft.annotations {
        if let Some(other) = all.insert(key.clone(), value.clone())
            && other != *value
        {
            draft.found.error(
                &at.field(key),
                format!("says {}, and {of} makes it {}; leave one of them out", shown(&other), shown(value)),
            );
        }
    }
    // Judged as a node would, but for what it does not take yet.
    if let Err(problems) = PodAnnotations::parse(&all) {
        problems.each().for_each(|problem| draft.found.error(&at, problem));
    }
    let ours = [
        (TARGET.0, Some(TARGET.1.to_owned())),
        (PRESETS, instance.presets.clone()),
        (ANNOTATION, description(draft, &instance.at)),
    ];
    all.extend(ours.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    all
}

fn description(draft: &mut Draft<'_>, at: &Path) -> Option<String> {
    let text = draft.description.text()?;
    let text_is_short = text.len() <= proto::vm::MAX_BYTES;
    // Judged as a node would; what that does not take yet was told where it is said.
    if let Err(wrong) = Described::of(draft.description.clone())
        && !matches!(wrong, NotDescribed::Unbuilt(_))
    {
        draft.found.error(at, wrong.to_string());
    }
    draft.found.unless(text_is_short, at, "has more to say than fits into annotation virtlet.k8s/vm");
    Some(text)
}
