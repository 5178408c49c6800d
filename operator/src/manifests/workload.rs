//! The operator itself: two replicas, of which one acts and both answer the webhook.

use serde_json::{Value, json};

use super::{Settings, object, object_in};
use crate::names::{NAMESPACE, OPERATOR};

/// Label by which its pods are chosen.
const NAME: &str = "app.kubernetes.io/name";
const HTTP: u16 = 8080;
const WEBHOOK: u16 = 9443;
/// No user of a node.
const USER: u32 = 65532;

pub(super) fn namespace() -> Value {
    let mut namespace = object("v1", "Namespace", NAMESPACE);
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted".into();
    namespace
}

/// What runs it, in its namespace.
pub(super) fn all(settings: &Settings) -> [Value; 3] {
    [deployment(settings), service(settings), budget(settings)]
}

fn deployment(settings: &Settings) -> Value {
    let mut deployment = object_in(settings, "apps/v1", "Deployment", OPERATOR);
    deployment["spec"] = json!({
        "replicas": 2,
        "selector": {"matchLabels": {NAME: OPERATOR}},
        // A new one is ready before an old one goes.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {
                "labels": {NAME: OPERATOR},
                "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": HTTP.to_string()},
            },
            "spec": {
                "serviceAccountName": OPERATOR,
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {NAME: OPERATOR}},
                        "topologyKey": "kubernetes.io/hostname",
                    },
                }]}},
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container(settings)],
            },
        },
    });
    deployment
}

fn container(settings: &Settings) -> Value {
    let mut words =
        vec!["run".to_owned(), format!("--group={}", settings.group), format!("--namespace={}", settings.namespace)];
    words.push(format!("--webhook=[::]:{WEBHOOK}"));
    words.extend(settings.runtime_classes.iter().map(|class| format!("--runtime-class={class}")));
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5});
    json!({
        "name": "operator",
        "image": settings.image,
        "command": [OPERATOR],
        "args": words,
        // By which the replicas know each other.
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "http", "containerPort": HTTP}, {"name": "webhook", "containerPort": WEBHOOK}],
        // Until no API server comes to this one any more.
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "readinessProbe": probe("/readyz"),
        "livenessProbe": probe("/healthz"),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

fn service(settings: &Settings) -> Value {
    let mut service = object_in(settings, "v1", "Service", OPERATOR);
    service["spec"] = json!({
        "selector": {NAME: OPERATOR},
        "ports": [
            {"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"},
            {"name": "http", "port": HTTP, "targetPort": "http", "protocol": "TCP"},
        ],
    });
    service
}

fn budget(settings: &Settings) -> Value {
    let mut budget = object_in(settings, "policy/v1", "PodDisruptionBudget", OPERATOR);
    budget["spec"] = json!({"minAvailable": 1, "selector": {"matchLabels": {NAME: OPERATOR}}});
    budget
}
