//! The configuration by which the API server asks the operator for presets when an instance is made.
//!
//! While no operator answers, no instance can be made: without its presets it would be another VM, and nobody would run it. Who made the
//! certificate the operator writes into it; so that applying it again does not take that away, it is not in it.

use kubevirt::preset::EXCLUDES;
use serde_json::{Value, json};

use super::{Settings, object};
use crate::group::VERSION;
use crate::names::{OPERATOR, WEBHOOK, WEBHOOK_CONFIGURATION, WEBHOOK_PATH};

pub(super) fn configuration(settings: &Settings) -> Value {
    let kind = "MutatingWebhookConfiguration";
    let mut configuration = object("admissionregistration.k8s.io/v1", kind, WEBHOOK_CONFIGURATION);
    let is_excluded = |key| format!("object.metadata.?annotations['{key}'].orValue('') == 'true'");
    let excluded: Vec<String> = EXCLUDES.into_iter().map(is_excluded).collect();
    configuration["webhooks"] = json!([{
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {"name": OPERATOR, "namespace": settings.namespace, "path": WEBHOOK_PATH, "port": 443},
        },
        "rules": [{
            "apiGroups": [settings.group.name()],
            "apiVersions": [VERSION],
            "operations": ["CREATE"],
            "resources": ["virtualmachineinstances"],
            "scope": "Namespaced",
        }],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        // Presets choose by labels.
        "matchConditions": [
            {"name": "not-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
            {"name": "has-labels", "expression": "object.metadata.?labels.orValue({}).size() > 0"},
            {"name": "not-excluded", "expression": format!("!({})", excluded.join(" || "))},
        ],
    }]);
    configuration
}
