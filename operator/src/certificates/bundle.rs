//! Whom the API server trusts when it comes to a server of ours: `caBundle` of the object by which it comes.

use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Resource;
use kube::api::Patch;
use kube::core::ClusterResourceScope;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::names::WEBHOOK;

/// An object of the cluster that says so.
pub(crate) trait Bundle:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Whether these authorities, and no others, are trusted, or it says nothing of a server of ours.
    fn names(&self, authorities: &str) -> bool;

    /// A patch after which that is so. It fails if the object is not as it was read.
    fn patch(&self, authorities: &str) -> Patch<Value>;
}

/// Presets are asked for by our webhook in it.
impl Bundle for MutatingWebhookConfiguration {
    fn names(&self, authorities: &str) -> bool {
        let ours: Option<&MutatingWebhook> = self.webhooks.iter().flatten().find(|webhook| webhook.name == WEBHOOK);
        ours.is_none_or(|ours| ours.client_config.ca_bundle == Some(bytes(authorities)))
    }

    fn patch(&self, authorities: &str) -> Patch<Value> {
        // Items of that list are merged by their names.
        Patch::Strategic(json!({
            "metadata": {"resourceVersion": self.metadata.resource_version},
            "webhooks": [{"name": WEBHOOK, "clientConfig": {"caBundle": bytes(authorities)}}],
        }))
    }
}

/// Subresources are.
impl Bundle for APIService {
    fn names(&self, authorities: &str) -> bool {
        self.spec.as_ref().is_none_or(|spec| spec.ca_bundle == Some(bytes(authorities)))
    }

    fn patch(&self, authorities: &str) -> Patch<Value> {
        Patch::Merge(json!({
            "metadata": {"resourceVersion": self.metadata.resource_version},
            "spec": {"caBundle": bytes(authorities)},
        }))
    }
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(webhooks: Value) -> MutatingWebhookConfiguration {
        let value = json!({"metadata": {"name": "virtlet-presets", "resourceVersion": "7"}, "webhooks": webhooks});
        serde_json::from_value(value).expect("a configuration")
    }

    fn webhook(name: &str, client: Value) -> Value {
        json!({"name": name, "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]})
    }

    #[test]
    fn our_webhook_is_patched_by_its_name_if_it_trusts_others() {
        let other = webhook("a.example.com", json!({"url": "https://a.example.com"}));
        let without = configuration(json!([other, webhook(WEBHOOK, json!({"url": "https://x"}))]));
        let wanted = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [{"name": "presets.virtlet.k8s", "clientConfig": {"caBundle": "UEVN"}}]
        });
        assert!(!without.names("PEM"));
        assert!(matches!(without.patch("PEM"), Patch::Strategic(patch) if patch == wanted));
        let with = configuration(json!([webhook(WEBHOOK, json!({"url": "https://x", "caBundle": "UEVN"}))]));
        assert!(with.names("PEM") && !with.names("PEM2"));
    }

    #[test]
    fn what_is_not_ours_stays() {
        let others = configuration(json!([webhook("a.example.com", json!({"url": "https://a.example.com"}))]));
        assert!(others.names("PEM"));
        assert!(configuration(json!(null)).names("PEM"));
    }

    #[test]
    fn a_service_of_the_api_is_patched_if_it_trusts_others() {
        let mut service = json!({
            "metadata": {"name": "v1.subresources.kubevirt.io", "resourceVersion": "7"},
            "spec": {"group": "subresources.kubevirt.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
        });
        let without: APIService = serde_json::from_value(service.clone()).expect("a service");
        assert!(!without.names("PEM"));
        let wanted = json!({"metadata": {"resourceVersion": "7"}, "spec": {"caBundle": "UEVN"}});
        assert!(matches!(without.patch("PEM"), Patch::Merge(patch) if patch == wanted));
        service["spec"]["caBundle"] = "UEVN".into();
        let with: APIService = serde_json::from_value(service).expect("a service");
        assert!(with.names("PEM") && !with.names("PEM2"));
    }
}
