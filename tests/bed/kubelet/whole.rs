//! A whole Kubernetes: API server, controllers, scheduler, kubectl and a node of ours. How the cases that need one begin, and what they
//! ask of it.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::command::{TOOL_DEADLINE, finish};
use tests::controllers::Controllers;
use tests::cri;
use tests::http;
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, Node};
use tests::wait::wait_for;

/// Until the cluster has done one thing.
pub(crate) const STEP_DEADLINE: Duration = Duration::from_secs(240);
/// On the node, for as long as a step takes.
const FORWARDED: u16 = 18080;

/// All but kubelet, which the case starts once all is there that it shall find. controld has these settings.
pub(crate) fn start(bed: &Bed, settings: &str) -> Result<(Node, Cluster, Controllers)> {
    with_features(bed, settings, &[])
}

/// [`start`] with these of Kubernetes' features turned on.
pub(crate) fn with_features(bed: &Bed, settings: &str, features: &[&str]) -> Result<(Node, Cluster, Controllers)> {
    let node = Node::configured(bed, settings)?;
    let cluster = Cluster::with_features(bed, features)?;
    let plane = Controllers::start(bed, &cluster)?;
    Ok((node, cluster, plane))
}

/// Of our runtime, with the memory that a machine takes beside its guest.
pub(crate) fn runtime_class() -> Value {
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "virtlet"}, "handler": "virtlet",
        "overhead": {"podFixed": {"memory": format!("{}", cri::POD_FIXED)}},
    })
}

/// A pod of [`runtime_class`] whose only container is a machine.
pub(crate) fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "runtimeClassName": "virtlet", "terminationGracePeriodSeconds": 10, "automountServiceAccountToken": false,
            "containers": [{
                "name": "vm", "image": image, "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": "160Mi", "cpu": "500m"}},
            }],
        },
    })
}

/// A pod as the API server has it.
pub(crate) fn seen(plane: &mut Controllers, pod: &str) -> Result<Value> {
    Ok(serde_json::from_str(&plane.kubectl(&["get", "pod", pod, "-o", "json"])?)?)
}

/// Whether the cluster has no pods, and the node no machines that run.
pub(crate) fn is_empty(plane: &mut Controllers) -> Result<bool> {
    Ok(plane.kubectl(&["get", "pods", "-o", "name"])?.is_empty() && running_domains()?.is_empty())
}

/// Waits until our agent runs the script in the guest of the pod and it prints what was expected. The script may be run more than once.
pub(crate) fn says(plane: &Controllers, pod: &str, script: &str, expected: &str) -> Result<()> {
    let mut last = String::new();
    let said = wait_for("answer of the guest", BOOT_DEADLINE, || {
        let ended = finish(&mut plane.command(&["exec", pod, "--", "sh", "-c", script]), TOOL_DEADLINE)?;
        last = format!("{ended:?}");
        Ok((ended.code == Some(0) && ended.stdout == expected).then_some(()))
    });
    said.with_context(|| format!("`{script}` in pod {pod}: {last}"))
}

/// Whether a pod is ready, and is to stay.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is_leaving = pod.pointer("/metadata/deletionTimestamp").is_some();
    !is_leaving && conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// What a pod answers at `path` of its port 80, by `kubectl port-forward`.
pub(crate) fn forwarded(bed: &Bed, plane: &Controllers, pod: &str, path: &str) -> Result<String> {
    let log = File::create(bed.logs().join(format!("forwarded-{pod}.log")))?;
    let ports = format!("{FORWARDED}:80");
    let mut forwarder = plane
        .command(&["port-forward", pod, &ports])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let answer = wait_for("answer at a forwarded port", BOOT_DEADLINE, || {
        Ok(http::get_from(Ipv4Addr::LOCALHOST.into(), FORWARDED, path).ok())
    });
    forwarder.kill()?;
    forwarder.wait()?;
    answer
}
