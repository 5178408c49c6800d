//! What runs on each node of a cluster as pods of DaemonSets: kube-proxy, and a CNI's agent. Both are in the node's own network, and
//! start on a node that has no other.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::cni::{Kind, Network, SUBNET};
use tests::containerd::archive_of;
use tests::controllers::Controllers;
use tests::kubelet::NODE;
use tests::wait::wait_for;

use super::workloads::IMAGE;
use super::{Both, TARGET};
use crate::kubelet::whole::{STEP_DEADLINE, is_ready};

/// Where CNI configurations are, which nobody but the agent writes here.
const NETWORKS: &str = "/etc/cni/net.d";
const NAMESPACE: &str = "kube-system";
const PROXY_IMAGE: &str = "docker.io/library/kube-proxy:1";
const PROXY_CONFIG: &str = "/etc/kube-proxy";
const PROXY_HEALTH: u16 = 10256;

/// Starts both, one after the other, and shows that each starts without a network and that the node gets ready by the second.
pub(super) fn start(bed: &Bed, both: &Both, cluster: &Cluster, plane: &mut Controllers) -> Result<()> {
    both.containerd.import(&archive_of(
        &bed.dir,
        PROXY_IMAGE,
        (&bed.config.peer("kube-proxy")?, &["kube-proxy"]),
        &[],
    )?)?;
    wait_for("a node that says it has no network", STEP_DEADLINE, || {
        let (is_ready, why) = node(plane)?;
        ensure!(!is_ready, "ready without a network");
        Ok(why.contains("cni plugin not initialized").then_some(()))
    })?;
    plane.apply(&kube_proxy(cluster)?)?;
    runs(plane, "kube-proxy")?;
    ensure!(fs::read_dir(NETWORKS)?.next().is_none(), "somebody else has made a network");
    ensure!(!node(plane)?.0, "ready without a network");
    let placed = plane.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"])?;
    ensure!(placed.is_empty(), "pods on a node that is not ready: {placed}");

    plane.apply(&cni_agent())?;
    runs(plane, "cni-agent")?;
    wait_for("ready node", STEP_DEADLINE, || Ok(node(plane)?.0.then_some(())))?;
    let marks = format!("jsonpath={{.items[*].metadata.annotations['{}']}}", TARGET.replace('.', "\\."));
    let marked = plane.kubectl(&["-n", NAMESPACE, "get", "pods", "-o", &marks])?;
    ensure!(marked.is_empty(), "an agent was taken for a machine: {marked}");
    Ok(())
}

/// Both are as they were started.
pub(super) fn stand(plane: &mut Controllers) -> Result<()> {
    runs(plane, "kube-proxy")?;
    runs(plane, "cni-agent")
}

/// Takes both away.
pub(super) fn remove(plane: &mut Controllers) -> Result<()> {
    plane.kubectl(&["-n", NAMESPACE, "delete", "daemonset", "--all", "--wait=false"]).map(drop)
}

/// Whether the node is ready, and what it says of that.
fn node(plane: &mut Controllers) -> Result<(bool, String)> {
    // kubelet may not have made it yet.
    let told = plane.kubectl(&["get", "node", NODE, "--ignore-not-found", "-o", "json"])?;
    let node: Value = if told.is_empty() { Value::Null } else { serde_json::from_str(&told)? };
    let why = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let why = why.filter(|one| one["type"] == "Ready").filter_map(|one| one["message"].as_str()).collect();
    Ok((is_ready(&node), why))
}

/// Waits until the DaemonSet's pod is ready, and has the node's address.
fn runs(plane: &mut Controllers, name: &str) -> Result<()> {
    let label = format!("name={name}");
    let mut last = String::new();
    wait_for(&format!("{name} on the node"), STEP_DEADLINE, || {
        last = plane.kubectl(&["-n", NAMESPACE, "get", "pods", "-l", &label, "-o", "json"])?;
        let list: Value = serde_json::from_str(&last)?;
        let Some(pod) = list.pointer("/items/0") else { return Ok(None) };
        let restarts = pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_u64);
        if restarts > Some(0) {
            bail!("{name} ended: {}", plane.kubectl(&["-n", NAMESPACE, "logs", "--previous", "-l", &label])?);
        }
        if !is_ready(pod) {
            return Ok(None);
        }
        let (own, nodes) = (pod.pointer("/status/podIP"), pod.pointer("/status/hostIP"));
        ensure!(own.is_some() && own == nodes, "{name} is not in the node's network: {own:?}");
        Ok(Some(()))
    })
    .with_context(|| last)
}

/// As kubeadm makes it, but that it runs the node's `nft`, with the node's libraries.
fn kube_proxy(cluster: &Cluster) -> Result<[Value; 2]> {
    let mut access: Value = serde_json::from_slice(&fs::read(&cluster.admin)?)?;
    let authority = access.pointer("/clusters/0/cluster/certificate-authority").and_then(Value::as_str);
    let authority = fs::read_to_string(authority.context("no authority in the administrator's kubeconfig")?)?;
    access["clusters"][0]["cluster"]["certificate-authority"] = json!("ca.crt");
    // With no more rights than every cluster gives it.
    access["users"][0]["user"]["as"] = json!("system:kube-proxy");
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
        "clientConnection": {"kubeconfig": format!("{PROXY_CONFIG}/kubeconfig")},
        "hostnameOverride": NODE, "clusterCIDR": SUBNET, "healthzBindAddress": format!("0.0.0.0:{PROXY_HEALTH}"),
        // These are the whole machine's.
        "conntrack": {
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s", "udpStreamTimeout": "0s",
        },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kube-proxy", "namespace": NAMESPACE},
        "stringData": {"kubeconfig": access.to_string(), "ca.crt": authority, "config": config.to_string()},
    });
    let container = json!({
        "image": PROXY_IMAGE, "command": ["/kube-proxy", format!("--config={PROXY_CONFIG}/config"), "--v=2"],
        "volumeMounts": [
            {"name": "config", "mountPath": PROXY_CONFIG},
            {"name": "usr", "mountPath": "/usr", "readOnly": true},
            {"name": "lib", "mountPath": "/lib", "readOnly": true},
            {"name": "lib64", "mountPath": "/lib64", "readOnly": true},
        ],
        "readinessProbe": {"httpGet": {"port": PROXY_HEALTH, "path": "/healthz"}, "periodSeconds": 1},
    });
    let volumes = json!([
        {"name": "config", "secret": {"secretName": "kube-proxy"}},
        {"name": "usr", "hostPath": {"path": "/usr"}},
        {"name": "lib", "hostPath": {"path": "/lib"}},
        {"name": "lib64", "hostPath": {"path": "/lib64"}},
    ]);
    Ok([secret, daemon_set("kube-proxy", container, volumes)])
}

/// An agent of ours, which does what all of them do for the node: it puts a configuration into the node's directory, whole, once it
/// runs. A link for each pod, as many agents make it, so that what pods say to each other passes the node's firewall anywhere.
fn cni_agent() -> [Value; 2] {
    let network = Network { kind: Kind::Ptp, masquerade: true, hairpin: false }.conflist().to_string();
    let configuration = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cni-agent", "namespace": NAMESPACE},
        "data": {"10-vtnet.conflist": network},
    });
    let script =
        "cp /config/10-vtnet.conflist /node/.new && mv /node/.new /node/10-vtnet.conflist && exec sleep 1000000";
    let container = json!({
        "image": IMAGE, "command": ["/bin/sh", "-c", script],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}, {"name": "node", "mountPath": "/node"}],
    });
    let volumes = json!([
        {"name": "config", "configMap": {"name": "cni-agent"}},
        {"name": "node", "hostPath": {"path": NETWORKS}},
    ]);
    [configuration, daemon_set("cni-agent", container, volumes)]
}

/// Of one privileged container in the node's network.
fn daemon_set(name: &str, mut container: Value, volumes: Value) -> Value {
    container["name"] = json!(name);
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["securityContext"] = json!({"privileged": true});
    let labels = json!({"name": name});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "hostNetwork": true, "priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 2, "containers": [container], "volumes": volumes,
            }},
        },
    })
}
