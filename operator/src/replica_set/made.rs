//! The instances of a set.

use kube::core::ObjectMeta;
use kubevirt::cut;
use uuid::Uuid;

use crate::group::Group;
use crate::objects::{Json, Meta as _, ReplicaSet, Vmi, texts};

/// Longest part of a set's name in those of its instances.
const MAX_NAME: usize = 57;

/// One more, with a name of its own.
pub(super) fn instance(set: &ReplicaSet, group: Group) -> Vmi {
    let spec = set.spec.value();
    let template = &spec["template"];
    let random: String = Uuid::new_v4().simple().to_string().chars().take(5).collect();
    let metadata = ObjectMeta {
        name: Some(format!("{}-{random}", cut(set.name(), MAX_NAME))),
        namespace: Some(set.namespace().to_owned()),
        labels: Some(texts(template, "labels")),
        annotations: Some(texts(template, "annotations")),
        owner_references: Some(vec![set.owner(group)]),
        ..ObjectMeta::default()
    };
    Vmi::new(group, metadata, Json::of(&template["spec"]))
}
