//! Whom the API server trusts when it asks for presets: `caBundle` of our webhook configuration.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde_json::{Value, json};

use crate::names::WEBHOOK;

/// A strategic merge patch after which these authorities, and no others, are trusted; nothing if that is so. It fails if the
/// configuration is not as it was read.
pub(super) fn patch(configuration: &MutatingWebhookConfiguration, authorities: &str) -> Option<Value> {
    let bundle = ByteString(authorities.as_bytes().to_vec());
    let ours = configuration.webhooks.iter().flatten().find(|webhook| webhook.name == WEBHOOK)?;
    if ours.client_config.ca_bundle.as_ref() == Some(&bundle) {
        return None;
    }
    // Items of that list are merged by their names.
    Some(json!({
        "metadata": {"resourceVersion": configuration.metadata.resource_version},
        "webhooks": [{"name": WEBHOOK, "clientConfig": {"caBundle": bundle}}],
    }))
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
        let patched = patch(&without, "PEM").expect("another one");
        let wanted = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [{"name": "presets.virtlet.k8s", "clientConfig": {"caBundle": "UEVN"}}]
        });
        assert_eq!(patched, wanted);
        let with = configuration(json!([webhook(WEBHOOK, json!({"url": "https://x", "caBundle": "UEVN"}))]));
        assert_eq!(patch(&with, "PEM"), None);
        assert!(patch(&with, "PEM2").is_some());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let others = configuration(json!([webhook("a.example.com", json!({"url": "https://a.example.com"}))]));
        assert_eq!(patch(&others, "PEM"), None);
        assert_eq!(patch(&configuration(json!(null)), "PEM"), None);
    }
}
