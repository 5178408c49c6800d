//! What a user of the cluster has: machines and containers, and a Service that does not tell one from the other.

use serde_json::{Value, json};

use super::services::{ANSWERS, PATH};

/// An image of containers: one program under many names.
pub(super) const IMAGE: &str = "docker.io/library/box:1";

/// A Deployment of machines, one of containers, and the Service.
pub(super) fn objects(image: &str) -> [Value; 3] {
    let probe = json!({"httpGet": {"port": 80, "path": PATH}, "periodSeconds": 2});
    let deployment = |kind: &str, spec: Value| {
        let labels = json!({"app": "web", "kind": kind});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": kind},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        })
    };
    let machine = deployment(
        "machine",
        json!({
            "runtimeClassName": "virtlet", "terminationGracePeriodSeconds": 10,
            "containers": [{
                "name": "vm", "image": image, "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": "160Mi", "cpu": "500m"}}, "readinessProbe": probe,
            }],
        }),
    );
    let [_, answer] = ANSWERS;
    let script = format!("mkdir -p /tmp /www; echo {answer} >/www{PATH}; httpd -p 80 -h /www; echo ready; exec cat");
    let container = deployment(
        "container",
        json!({
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "stdin": true,
                "command": ["/bin/sh", "-c", script], "resources": {"limits": {"memory": "32Mi", "cpu": "200m"}},
                "readinessProbe": probe,
            }],
        }),
    );
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    [machine, container, service]
}
