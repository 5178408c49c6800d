//! The instances of a set.

use kube::api::PostParams;
use kube::core::ObjectMeta;
use uuid::Uuid;

use crate::group::Group;
use crate::names::OPERATOR;
use crate::objects::{Json, Meta as _, ReplicaSet, Vmi};

/// Longest part of a set's name in those of its instances.
const MAX_NAME: usize = 57;

/// One more, with a name of its own.
pub(super) fn instance(set: &ReplicaSet, group: Group) -> Vmi {
    let spec = set.spec.value();
    let template = &spec["template"];
    let texts = |key: &str| {
        let map = template["metadata"][key].as_object().cloned().unwrap_or_default();
        map.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()
    };
    let name: String = set.name().chars().take(MAX_NAME).collect();
    let random: String = Uuid::new_v4().simple().to_string().chars().take(5).collect();
    let metadata = ObjectMeta {
        name: Some(format!("{}-{random}", name.trim_end_matches(['-', '.']))),
        namespace: Some(set.namespace().to_owned()),
        labels: Some(texts("labels")),
        annotations: Some(texts("annotations")),
        owner_references: Some(vec![set.owner(group)]),
        ..ObjectMeta::default()
    };
    Vmi::new(group, metadata, Json::of(&template["spec"]))
}

pub(super) fn params() -> PostParams {
    PostParams { field_manager: Some(OPERATOR.to_owned()), ..PostParams::default() }
}
