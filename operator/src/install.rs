//! `install`: prints what is to be applied, after a look at whether somebody else has these kinds.

use kube::Client;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::cluster::{ClusterError, api_of, call};
use crate::group::Group;
use crate::manifests::crds::DEFINITIONS;
use crate::names::{MANAGED_BY, OPERATOR};

/// Why nothing is printed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// They are somebody else's, who would own the same objects as we do.
    #[error(
        "CustomResourceDefinitions of {group} are there, and not ours: {}; {}",
        theirs.join(", "),
        instead(*group)
    )]
    Foreign { group: Group, theirs: Vec<String> },
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("failed to write YAML")]
    Yaml(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn instead(group: Group) -> &'static str {
    match group {
        Group::KubeVirt => "install with --group virtlet.k8s beside them, or remove KubeVirt first",
        Group::Virtlet => "remove what they belong to first",
    }
}

/// Sees that no kind of ours in this group is somebody else's.
///
/// # Errors
/// When one is, by what its owner wrote on it; when the cluster cannot be asked.
pub async fn look(client: &Client, group: Group) -> Result<(), InstallError> {
    let mut theirs = Vec::new();
    for definition in &DEFINITIONS {
        let name = definition.crd_name(group);
        let api = api_of(client, &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}));
        let found = call(|| format!("look for CustomResourceDefinition `{name}`"), api.get_metadata_opt(&name)).await?;
        if let Some(found) = found
            && !is_ours(&found.metadata)
        {
            theirs.push(format!("`{name}` {}", owner(&found.metadata)));
        }
    }
    if theirs.is_empty() { Ok(()) } else { Err(InstallError::Foreign { group, theirs }) }
}

/// Whether `install` made it.
pub(crate) fn is_ours(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == OPERATOR)
}

/// Who made it, as far as that is written on it.
fn owner(metadata: &ObjectMeta) -> String {
    let labels = metadata.labels.iter().flatten();
    let annotations = metadata.annotations.iter().flatten();
    let says = |key: &str| {
        key == MANAGED_BY
            || key == "meta.helm.sh/release-name"
            || key.starts_with("kubevirt.io")
            || key.starts_with("operators.coreos.com/")
            || key.starts_with("app.kubernetes.io/")
    };
    if let Some((key, value)) = labels.clone().chain(annotations).find(|(key, _)| *key == MANAGED_BY) {
        return format!("of `{value}` ({key})");
    }
    let annotations = metadata.annotations.iter().flatten();
    if let Some((key, value)) = labels.chain(annotations).find(|(key, _)| says(key)) {
        return format!("with {key}={value:?}");
    }
    let manager = metadata.managed_fields.iter().flatten().find_map(|fields| fields.manager.clone());
    manager.map_or_else(|| "of nobody who says so".to_owned(), |manager| format!("applied by `{manager}`"))
}

/// Objects as documents of YAML.
///
/// # Errors
/// When one cannot be written.
pub fn yaml(objects: &[Value]) -> Result<String, InstallError> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).map_err(|cause| InstallError::Yaml(cause.into()))?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(value: Value) -> ObjectMeta {
        serde_json::from_value(value).expect("metadata")
    }

    #[test]
    fn an_owner_is_told_by_what_is_written() {
        let ours = metadata(json!({"labels": {MANAGED_BY: OPERATOR}}));
        assert!(is_ours(&ours));
        let kubevirt = metadata(json!({"labels": {MANAGED_BY: "virt-operator", "kubevirt.io": ""}}));
        assert!(!is_ours(&kubevirt));
        assert_eq!(owner(&kubevirt), "of `virt-operator` (app.kubernetes.io/managed-by)");
        assert_eq!(owner(&metadata(json!({"labels": {"kubevirt.io": ""}}))), "with kubevirt.io=\"\"");
        let applied = metadata(json!({"managedFields": [{"manager": "kubectl-create"}]}));
        assert_eq!(owner(&applied), "applied by `kubectl-create`");
        assert_eq!(owner(&metadata(json!({}))), "of nobody who says so");
    }

    #[test]
    fn documents_are_what_they_were() {
        let all = crate::manifests::all(&crate::manifests::Settings::default());
        let text = yaml(&all).expect("written");
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        assert_eq!(read, all);
    }
}
