//! What is written to the API server: never over what somebody else wrote meanwhile.

use std::fmt::Debug;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicResourceScope;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::context::{Context, Error};
use crate::group::Group;
use crate::names::OPERATOR;
use crate::objects::{Kind, Meta as _, Object};

/// Writes a status, if it is another one. Returns whether it was: the object's news lead to it again, and until then it cannot be changed.
pub(crate) async fn write_status<K: Kind>(
    context: &Context,
    object: &Object<K>,
    status: &K::Status,
) -> Result<bool, Error> {
    if object.status == *status {
        return Ok(false);
    }
    let [before, after] = [&object.status, status].map(|status| serde_json::to_value(status).unwrap_or_default());
    let patch = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version}, "status": in_place_of(&before, &after),
    });
    let api: Api<Object<K>> = api(context, object);
    unless_gone(api.patch_status(object.name(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
    Ok(true)
}

/// What makes one value of another by a merge, which leaves what it does not name.
fn in_place_of(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let is = after.iter().map(|(key, value)| {
        (key.clone(), before.get(key).map_or_else(|| value.clone(), |before| in_place_of(before, value)))
    });
    gone.chain(is).collect()
}

/// Changes an object's finalizers.
pub(crate) async fn finalizers<K: Kind>(
    context: &Context,
    object: &Object<K>,
    change: impl FnOnce(&mut Vec<String>),
) -> Result<(), Error> {
    let mut all = object.metadata.finalizers.clone().unwrap_or_default();
    change(&mut all);
    merge(context, object, json!({"metadata": {"finalizers": all}})).await
}

/// Merges a patch into an object, if that is as it is known.
pub(crate) async fn merge<K: Kind>(context: &Context, object: &Object<K>, mut patch: Value) -> Result<(), Error> {
    patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
    let api: Api<Object<K>> = api(context, object);
    unless_gone(api.patch(object.name(), &PatchParams::default(), &Patch::Merge(&patch)).await)
}

fn api<K>(context: &Context, object: &K) -> Api<K>
where
    K: Resource<DynamicType = Group, Scope = DynamicResourceScope> + DeserializeOwned + Debug,
{
    Api::namespaced_with(context.client.clone(), object.namespace(), &context.group)
}

/// Nothing is to be said of an object that is gone.
fn unless_gone<T>(written: Result<T, kube::Error>) -> Result<(), Error> {
    match written {
        Err(error) if !is_missing(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether the API server says that there is no such object.
#[must_use]
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether it says that there is such an object.
#[must_use]
pub(crate) fn is_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether the object is not as it was known.
#[must_use]
pub(crate) fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "Conflict")
}

/// What the API server says; of other errors, what they say.
#[must_use]
pub(crate) fn text_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => common::Chain(other).to_string(),
    }
}

/// How objects are made: as what the operator manages.
#[must_use]
pub(crate) fn creating() -> PostParams {
    PostParams { field_manager: Some(OPERATOR.to_owned()), ..PostParams::default() }
}

/// Deletes this very object, within so many seconds if that is said. What depends on it goes in the background.
pub(crate) async fn delete<K>(api: &Api<K>, object: &K, grace: Option<u32>) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let uid = Preconditions { uid: Some(object.uid().to_owned()), resource_version: None };
    let mut params = DeleteParams::background().preconditions(uid);
    params.grace_period_seconds = grace;
    match api.delete(object.name(), &params).await {
        // Another one with its name has another uid.
        Err(error) if !is_missing(&error) && !is_stale(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_named_however_deep_it_was() {
        let before = json!({"os": {"id": "a", "version": "1"}, "reason": "x", "list": [{"a": 1}], "same": 1});
        let after = json!({"os": {"id": "b"}, "list": [{}], "same": 1, "new": {"a": {}}});
        let patch =
            json!({"os": {"id": "b", "version": null}, "reason": null, "list": [{}], "same": 1, "new": {"a": {}}});
        assert_eq!(in_place_of(&before, &after), patch);
    }
}
