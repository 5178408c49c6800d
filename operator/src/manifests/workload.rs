//! The operator itself: two replicas, of which one acts and both answer the webhook. And how any program of ours runs in a cluster.

use serde_json::{Value, json};

use super::{Settings, object, object_in};
use crate::names::{NAMESPACE, OPERATOR};

/// Label by which a program's pods are chosen.
pub(super) const NAME: &str = "app.kubernetes.io/name";
pub(super) const HTTP: u16 = 8080;
const WEBHOOK: u16 = 9443;
/// No user of a node.
const USER: u32 = 65532;

/// What runs, as an account of its own name.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Behind the program's name.
    pub(super) words: Vec<String>,
    pub(super) env: Value,
    pub(super) ports: Vec<Value>,
    pub(super) resources: Value,
}

pub(super) fn namespace() -> Value {
    let mut namespace = object("v1", "Namespace", NAMESPACE);
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted".into();
    namespace
}

/// What runs it, in its namespace.
pub(super) fn all(settings: &Settings) -> [Value; 3] {
    [deployment(settings, &operator(settings)), service(settings), budget(settings, OPERATOR)]
}

fn operator(settings: &Settings) -> Program {
    let mut words =
        vec!["run".to_owned(), format!("--group={}", settings.group), format!("--namespace={}", settings.namespace)];
    words.push(format!("--webhook=[::]:{WEBHOOK}"));
    words.extend(settings.runtime_classes.iter().map(|class| format!("--runtime-class={class}")));
    Program {
        name: OPERATOR,
        words,
        // By which the replicas know each other.
        env: json!([{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        ports: vec![port("http", HTTP), port("webhook", WEBHOOK)],
        resources: json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}),
    }
}

/// Two replicas of a program.
pub(super) fn deployment(settings: &Settings, program: &Program) -> Value {
    let name = program.name;
    let mut deployment = object_in(settings, "apps/v1", "Deployment", name);
    deployment["spec"] = json!({
        "replicas": 2,
        "selector": {"matchLabels": {NAME: name}},
        // A new one is ready before an old one goes.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {
                "labels": {NAME: name},
                "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": HTTP.to_string()},
            },
            "spec": {
                "serviceAccountName": name,
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {NAME: name}},
                        "topologyKey": "kubernetes.io/hostname",
                    },
                }]}},
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container(settings, program)],
            },
        },
    });
    deployment
}

fn container(settings: &Settings, program: &Program) -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 5});
    let mut container = json!({
        "name": program.name.trim_start_matches("virtlet-"),
        "image": settings.image,
        "command": [OPERATOR],
        "args": program.words,
        "ports": program.ports,
        // Until no API server comes to this one any more.
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "readinessProbe": probe("/readyz"),
        "livenessProbe": probe("/healthz"),
        "resources": program.resources,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    if program.env.as_array().is_some_and(|env| !env.is_empty()) {
        container["env"] = program.env.clone();
    }
    container
}

/// A port of a container.
pub(super) fn port(name: &str, number: u16) -> Value {
    json!({"name": name, "containerPort": number})
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

/// One of a program's pods is there, whatever is drained.
pub(super) fn budget(settings: &Settings, name: &str) -> Value {
    let mut budget = object_in(settings, "policy/v1", "PodDisruptionBudget", name);
    budget["spec"] = json!({"minAvailable": 1, "selector": {"matchLabels": {NAME: name}}});
    budget
}
