//! What a node tells of a VM that its pod does not say, by the account that `install` makes for that; and that it may tell nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::controllers::Controllers;
use tests::kubelet::NODE;
use tests::wait::wait_for;

use super::NEWS_DEADLINE;
use super::at;
use crate::kubelet::whole::STEP_DEADLINE;

/// Where controld is told to look for a way to the cluster.
pub(super) fn kubeconfig(bed: &Bed) -> PathBuf {
    bed.dir.join("reporter.kubeconfig")
}

/// Makes that, with a token that is bound to the node, once there is such a node.
pub(super) fn give_token(bed: &Bed, cluster: &Cluster, plane: &mut Controllers) -> Result<()> {
    wait_for("node that is known", STEP_DEADLINE, || {
        Ok(plane.kubectl(&["get", "nodes", "-o", "name"])?.contains(NODE).then_some(()))
    })?;
    let bound = ["--bound-object-kind=Node", &format!("--bound-object-name={NODE}")];
    let account = ["-n", "kube-system", "create", "token", "virtlet-reporter"];
    let token = plane.kubectl(&[&account[..], &bound].concat())?;
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&cluster.admin)?)?;
    file["users"][0]["user"] = json!({"token": token.trim()});
    Ok(fs::write(kubeconfig(bed), file.to_string())?)
}

/// An agent in its guest answers, and has said what that is.
pub(super) fn knows_guest(plane: &mut Controllers) -> Result<()> {
    let agent = r#".status.conditions[?(@.type=="AgentConnected")].status"#;
    let mut last = Vec::new();
    let known = wait_for("guest that is known", STEP_DEADLINE, || {
        last.clear();
        for path in [agent, ".status.guestOSInfo.machine", ".status.interfaces[0].podInterfaceName"] {
            last.push(at(plane, "vmi", path)?);
        }
        Ok((last == ["True", "x86_64", "eth0"]).then_some(()))
    });
    known.with_context(|| format!("at last {last:?}"))?;
    let mac = at(plane, "vmi", ".status.interfaces[0].mac")?;
    ensure!(mac.len() == 17, "no MAC address: {mac:?}");
    Ok(())
}

/// A guest that a person pauses is shown so, as long as it is; `ask` pauses and unpauses.
pub(super) fn pauses(plane: &mut Controllers, ask: impl Fn(&str) -> Result<()>) -> Result<()> {
    for (verb, status, paused) in [("pause", "Paused", "True"), ("unpause", "Running", "")] {
        ask(verb)?;
        wait_for(&format!("VM that is shown {status}"), STEP_DEADLINE, || {
            let condition = r#".status.conditions[?(@.type=="Paused")].status"#;
            let shown = plane.kubectl(&["get", "vm", "db", "--no-headers"])?.contains(status);
            Ok((shown && at(plane, "vmi", condition)? == paused && at(plane, "vm", condition)? == paused).then_some(()))
        })?;
    }
    let wide = plane.kubectl(&["get", "vmi", "db", "-o", "wide"])?;
    ensure!(wide.contains("PAUSED"), "{wide}");
    Ok(())
}

/// What it may not tell is refused, and why.
pub(super) fn forges_nothing(bed: &Bed, plane: &mut Controllers, pod: &str) -> Result<()> {
    plane.apply(&[json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nowhere"},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "c", "image": "none"}]},
    })])?;
    let condition = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "False"}]}});
    let of_metadata = |what: Value| json!({ "metadata": what });
    let said = |guest: &str| of_metadata(json!({"annotations": {"virtlet.k8s/guest": guest}}));
    let way = kubeconfig(bed);
    for allowed in [condition("virtlet.k8s/Other"), said("{}")] {
        let tried = tried(&way, pod, &allowed)?;
        ensure!(tried.is_none(), "{allowed}: {tried:?}");
    }
    let [status, metadata] = ["leaves the rest of the status alone", "leaves the rest of the metadata alone"];
    for (pod, patch, why) in [
        (pod, condition("Ready"), status),
        (pod, json!({"status": {"phase": "Failed"}}), status),
        (pod, json!({"status": {"podIPs": [{"ip": "192.0.2.1"}]}}), status),
        (pod, json!({"status": {"message": "more"}}), status),
        (pod, of_metadata(json!({"labels": {"app": "other"}})), metadata),
        (pod, of_metadata(json!({"annotations": {"a": "b"}})), metadata),
        (pod, of_metadata(json!({"annotations": {"virtlet.k8s/vm": null}})), metadata),
        (pod, said(&"x".repeat(9000)), "at most 8192 bytes"),
        ("nowhere", condition("virtlet.k8s/Paused"), "that are on it"),
        ("nowhere", of_metadata(json!({})), "that are on it"),
    ] {
        let told = tried(&way, pod, &patch)?.unwrap_or_default();
        ensure!(told.contains("virtlet-reporter") && told.contains(why), "{pod} {patch}: {told:?}");
    }
    let unbound = plane.kubectl(&["-n", "kube-system", "create", "token", "virtlet-reporter"])?;
    let mut file: Value = serde_json::from_str(&fs::read_to_string(&way)?)?;
    file["users"][0]["user"] = json!({"token": unbound.trim()});
    let anybody = bed.dir.join("unbound.kubeconfig");
    fs::write(&anybody, file.to_string())?;
    let told = tried(&anybody, pod, &condition("virtlet.k8s/Paused"))?.unwrap_or_default();
    ensure!(told.contains("that are on it"), "{told:?}");
    // A pod is read by a patch that leaves it as it is, which is judged, too, and by no other way.
    let uid = plane.kubectl(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"])?;
    let read = tried(&way, pod, &of_metadata(json!({"uid": uid.trim()})))?;
    ensure!(read.is_none(), "{read:?}");
    let another = tried(&way, pod, &of_metadata(json!({"uid": "another"})))?;
    ensure!(another.as_ref().is_some_and(|told| told.contains("Failure")), "{another:?}");
    let one = ["get", "pod", pod, "--subresource=status"];
    for (words, why) in [(&["get", "pods"][..], "cannot list"), (&one, "cannot get")] {
        let read = finish(plane.command(words).arg("--kubeconfig").arg(&way), TOOL_DEADLINE)?;
        ensure!(read.code != Some(0) && read.stderr.contains(why), "{read:?}");
    }
    plane.kubectl(&["delete", "pod", "nowhere", "--grace-period=0", "--force"])?;
    wait_for("pod that is gone", NEWS_DEADLINE, || {
        Ok(plane.kubectl(&["get", "pod", "nowhere", "--ignore-not-found"])?.is_empty().then_some(()))
    })
}

/// What the server has against a patch of a pod's status, which it does not take. kubectl would read the pod before.
fn tried(kubeconfig: &Path, pod: &str, patch: &Value) -> Result<Option<String>> {
    let file: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
    let text = |path: &str| file.pointer(path).and_then(Value::as_str).with_context(|| format!("no {path}"));
    let (server, token) = (text("/clusters/0/cluster/server")?, text("/users/0/user/token")?);
    let url = format!("{server}/api/v1/namespaces/default/pods/{pod}/status?dryRun=All");
    let mut curl = command("curl", ["-sSk", "--fail-with-body", "-X", "PATCH", &url, "-d", &patch.to_string()]);
    curl.args(["-H", &format!("Authorization: Bearer {token}")]);
    curl.args(["-H", "Content-Type: application/strategic-merge-patch+json"]);
    let ended = finish(&mut curl, TOOL_DEADLINE)?;
    Ok((ended.code != Some(0)).then_some(ended.stdout + &ended.stderr))
}
