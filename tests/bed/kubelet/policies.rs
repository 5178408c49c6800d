//! Restart policies: which ends of a machine are its pod's end.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest, no_pod};
use tests::libvirt::{doing, domains, running_domains, virsh};
use tests::node::Node;
use tests::wait::wait_until;

use super::logs::files;
use super::{DEADLINE, POD_DEADLINE, is_running};

pub(super) const CASES: &[Case] = &[
    Case { name: "kubelet::a_pod_that_is_never_restarted_fails_with_its_machine", deadline: DEADLINE, run: never },
    Case { name: "kubelet::a_pod_that_is_restarted_on_failure", deadline: DEADLINE, run: on_failure },
];

fn never(bed: &Bed) -> Result<()> {
    let (node, kubelet) = pod(bed, "Never")?;
    pull_the_plug()?;
    let pod = kubelet.wait_pod("failed pod", POD_DEADLINE, |pod| phase(pod) == Some("Failed"))?;
    ensure!(restarts(&pod) == Some(0), "{pod}");
    ensure!(running_domains()?.is_empty(), "a machine runs");
    kubelet.delete("vm")?;

    // One that powers itself off.
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let script = json!({"VirtletCloudInitUserDataScript": "#!/bin/sh\npoweroff\n"});
    let mut job = manifest("job", &image, &script);
    job["spec"]["restartPolicy"] = json!("Never");
    kubelet.apply("job", &job)?;
    let pod = kubelet.wait_pod("pod that has succeeded", POD_DEADLINE, |pod| phase(pod) == Some("Succeeded"))?;
    ensure!(restarts(&pod) == Some(0), "{pod}");
    ensure!(has_completed(&pod), "{pod}");
    kubelet.delete("job")
}

/// Started again when the plug was pulled, and not when it powered off.
fn on_failure(bed: &Bed) -> Result<()> {
    let (_node, kubelet) = pod(bed, "OnFailure")?;
    pull_the_plug()?;
    kubelet.wait_pod("second start", POD_DEADLINE, |pod| restarts(pod) == Some(1) && is_running(pod))?;
    wait_until("guest that hears the button", POD_DEADLINE, || {
        for domain in running_domains().unwrap_or_default() {
            // Until it is up it does not hear, and is asked again.
            let _ = virsh(&format!("shutdown --mode acpi {domain}"));
        }
        let done = |pod: &Value| phase(pod) == Some("Succeeded") && has_completed(pod);
        kubelet.pods().is_ok_and(|pods| pods.first().is_some_and(done))
    })
    .with_context(|| {
        let pod = kubelet.pods().unwrap_or_default().first().cloned().unwrap_or_default();
        let machines = domains().unwrap_or_default();
        let machines: Vec<_> = machines.iter().map(|domain| format!("{domain}: {}", doing(domain))).collect();
        let consoles =
            files().unwrap_or_default().iter().filter_map(|file| fs::read_to_string(file).ok()).collect::<String>();
        format!("{}\n{}\nconsoles:\n{consoles}", no_pod("succeeded pod", &pod), machines.join("\n"))
    })?;
    kubelet.delete("vm")
}

fn pod(bed: &Bed, policy: &str) -> Result<(Node, Kubelet)> {
    let node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    let mut pod = manifest("vm", &image, &json!({}));
    pod["spec"]["restartPolicy"] = json!(policy);
    kubelet.apply("vm", &pod)?;
    kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    Ok((node, kubelet))
}

fn pull_the_plug() -> Result<()> {
    virsh(&format!("destroy {}", running_domains()?.concat())).map(drop)
}

fn phase(pod: &Value) -> Option<&str> {
    pod.pointer("/status/phase").and_then(Value::as_str)
}

fn has_completed(pod: &Value) -> bool {
    let ended = pod.pointer("/status/containerStatuses/0/state/terminated");
    ended.is_some_and(|ended| ended["reason"] == "Completed" && ended["exitCode"] == 0)
}

fn restarts(pod: &Value) -> Option<u64> {
    pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_u64)
}
