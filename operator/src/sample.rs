//! Objects for tests.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::group::Group;
use crate::names::{POD_FINALIZER, VMI_FINALIZER};
use crate::objects::{Json, Object, PhaseTransition, ReplicaSet, Vm, VmPod, Vmi};

pub(crate) const NAMESPACE: &str = "default";

/// A moment, so many seconds after another.
pub(crate) fn at(second: i64) -> Time {
    Time(Timestamp::from_second(1_800_000_000 + second).expect("a time"))
}

fn metadata(name: &str, uid: &str, finalizer: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(uid.to_owned()),
        generation: Some(1),
        finalizers: finalizer.map(|finalizer| vec![finalizer.to_owned()]),
        ..ObjectMeta::default()
    }
}

pub(crate) fn vm(strategy: &str) -> Vm {
    let spec = json!({"runStrategy": strategy, "template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}});
    Object::new(Group::KubeVirt, metadata("db", "vm-uid", Some(VMI_FINALIZER)), Json::of(&spec))
}

/// An instance of a VM of [`vm`], in this phase.
pub(crate) fn vmi(uid: &str, phase: &str) -> Vmi {
    let mut vmi = Vmi::new(Group::KubeVirt, metadata("db", uid, Some(POD_FINALIZER)), Json::default());
    vmi.metadata.owner_references = Some(vec![vm("Always").owner(Group::KubeVirt)]);
    in_phase(&mut vmi, phase);
    vmi
}

/// Of an instance, as if it had come there by all phases before.
pub(crate) fn in_phase(vmi: &mut Vmi, phase: &str) {
    vmi.status.phase = Some(phase.to_owned());
    if phase == "Running" || phase == "Succeeded" {
        let running = PhaseTransition { phase: "Running".to_owned(), phase_transition_timestamp: at(0) };
        vmi.status.phase_transition_timestamps.push(running);
    }
    if phase != "Pending" {
        vmi.status.active_pods.insert("pod-uid".to_owned(), "node1".to_owned());
    }
}

pub(crate) fn going<K: crate::objects::Kind>(mut object: Object<K>) -> Object<K> {
    object.metadata.deletion_timestamp = Some(at(0));
    object
}

/// The pod of an instance, with a status of the API's.
pub(crate) fn pod(vmi: &Vmi, status: &Value) -> Arc<VmPod> {
    let owner = vmi.owner(Group::KubeVirt);
    let pod = json!({
        "metadata": {"name": crate::vmi::pod_name(vmi), "namespace": NAMESPACE, "uid": "pod-uid", "ownerReferences": [owner]},
        "spec": {"nodeName": status.get("node")},
        "status": status,
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

/// A set of so many, and its instances in these phases.
pub(crate) fn set(replicas: usize, phases: &[&str]) -> (ReplicaSet, Vec<Arc<Vmi>>) {
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {}});
    let set = ReplicaSet::new(Group::KubeVirt, metadata("web", "set-uid", None), Json::of(&spec));
    let instance = |(nth, phase): (usize, &&str)| {
        let mut vmi = vmi(&format!("uid-{nth}"), phase);
        vmi.metadata.name = Some(format!("web-{nth}"));
        vmi.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        vmi.metadata.owner_references = Some(vec![set.owner(Group::KubeVirt)]);
        vmi.metadata.creation_timestamp = Some(at(i64::try_from(nth).expect("few")));
        Arc::new(vmi)
    };
    let all = phases.iter().enumerate().map(instance).collect();
    (set, all)
}
