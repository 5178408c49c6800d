//! A node whose disk gets full: kubelet removes images that nobody uses, and then the pod that has taken the room.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::command::sh;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, NODE, manifest, no_pod};
use tests::libvirt::running_domains;
use tests::node::Node;
use tests::wait::wait_for;

use super::is_running;

const DEADLINE: Duration = Duration::from_secs(720);
/// kubelet looks every ten seconds, and keeps a condition for as long as it was told to.
const STEP_DEADLINE: Duration = Duration::from_secs(240);
/// Bytes of an image that leave less room than kubelet wants.
const UNUSED: u64 = 270 << 20;
/// A guest that takes as much.
const WRITER: &str = "#!/bin/sh\ndd if=/dev/zero of=/dev/vda bs=1M seek=256 count=270 conv=fsync\n";
const STATE: &str = "/var/lib/virtlet";
const PODS: &str = "/api/v1/namespaces/default/pods";

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::a_full_disk_costs_unused_images_and_then_a_pod", deadline: DEADLINE, run: pressed }];

fn pressed(bed: &Bed) -> Result<()> {
    fs::create_dir_all(STATE)?;
    sh(&format!("mount -t tmpfs -o size=400m,mode=755 small {STATE}"))?;
    let node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let (noise, unused) = (bed.dir.join("noise"), bed.dir.join("unused.qcow2"));
    io::copy(&mut File::open("/dev/urandom")?.take(UNUSED), &mut File::create(&noise)?)?;
    sh(&format!("qemu-img convert -f raw -O qcow2 {} {}", noise.display(), unused.display()))?;
    let unused = node.images.offer("unused.qcow2", &unused, Fault::None);
    // Before kubelet: it lets images be that it has seen for a short time only, and looks for new ones every five minutes.
    node.cri.pull(&unused)?;
    let cluster = Cluster::start(bed)?;
    let settings = json!({
        // Of 400 MiB, of all images and disks.
        "evictionHard": {"imagefs.available": "40%", "nodefs.available": "1%", "memory.available": "50Mi"},
        "evictionPressureTransitionPeriod": "1s", "imageMinimumGCAge": "1s", "nodeStatusUpdateFrequency": "2s",
    });
    let _kubelet = Kubelet::configured_in(bed, &cluster, &settings)?;
    // First, since it is over soon after the removal.
    told(&cluster, "True")?;
    wait_for("removal of the image that nobody uses", STEP_DEADLINE, || {
        Ok((!node.crictl(&["images", "-o", "json"])?.stdout.contains("unused.qcow2")).then_some(()))
    })?;
    told(&cluster, "False")?;

    let annotations = json!({"VirtletRootVolumeSize": "1Gi", "VirtletCloudInitUserDataScript": WRITER});
    let mut pod = manifest("vm", &image, &annotations);
    pod["spec"]["nodeName"] = json!(NODE);
    // The API server takes overhead from a RuntimeClass alone, and there is none: the limit pays for QEMU, too, and for what
    // it writes, which takes memory here.
    pod["spec"].as_object_mut().context("a pod's spec")?.remove("overhead");
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("1Gi");
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    cluster.apply(PODS, &pod)?;
    let pod = |what: &str, holds: &dyn Fn(&Value) -> bool| -> Result<Value> {
        let mut last = Value::Null;
        let seen = wait_for(what, STEP_DEADLINE, || {
            last = cluster.get(&format!("{PODS}/vm"))?;
            Ok(holds(&last).then(|| last.clone()))
        });
        seen.with_context(|| no_pod(what, &last))
    };
    pod("running pod", &is_running)?;
    told(&cluster, "True")?;
    // A guest that shuts down within its grace ends with 0, and its pod has succeeded, as any pod's that heeds its signal. But
    // kubelet also removes ended containers to make room: if it does before it has noted how this one ended, the pod has failed.
    let evicted = pod("evicted pod", &|pod| {
        let status = &pod["status"];
        status["phase"] == "Succeeded" || (status["phase"] == "Failed" && status["reason"] == "Evicted")
    })?;
    let conditions = evicted.pointer("/status/conditions").and_then(Value::as_array);
    let disrupted = conditions.into_iter().flatten().find(|one| one["type"] == "DisruptionTarget");
    let why = disrupted.context("kubelet did not end the pod")?["message"].as_str().unwrap_or_default();
    ensure!(why.contains("low on resource: ephemeral-storage"), "{why}");
    wait_for("end of the machine", STEP_DEADLINE, || Ok(running_domains()?.is_empty().then_some(())))?;
    cluster.delete(&format!("{PODS}/vm"))?;
    told(&cluster, "False")
}

/// Waits until kubelet says whether the disk is too full.
fn told(cluster: &Cluster, pressure: &str) -> Result<()> {
    wait_for(&format!("pressure on the node's disk that is {pressure}"), STEP_DEADLINE, || {
        // kubelet may not have made it yet.
        let Ok(node) = cluster.get(&format!("/api/v1/nodes/{NODE}")) else { return Ok(None) };
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        let told = conditions.into_iter().flatten().find(|one| one["type"] == "DiskPressure");
        Ok(told.is_some_and(|one| one["status"] == pressure).then_some(()))
    })
}
