//! Machines that write more to an emptyDir than its `sizeLimit`: kubelet evicts the pod, whether the volume is a disk of the guest or
//! is shared with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::controllers::Controllers;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, no_pod};
use tests::libvirt::domains;
use tests::wait::wait_for;

use super::is_running;
use super::whole::{self, STEP_DEADLINE, runtime_class, says, seen};

/// A whole Kubernetes starts, and two machines boot beside it.
const DEADLINE: Duration = Duration::from_secs(720);
const PODS: &str = "/var/lib/kubelet/pods";
/// Disks of machines, a directory for each pod.
const DISKS: &str = "/var/lib/virtlet/volumes";
/// A file system that is new takes some of it.
const LIMIT: &str = "16Mi";
const DISK: &str = "scratch=64Mi";

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::a_volume_past_its_limit_evicts_its_machine", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let (node, cluster, mut plane) = whole::start(bed, "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let _kubelet = Kubelet::configured_in(bed, &cluster, &json!({"volumeStatsAggPeriod": "2s"}))?;
    let by_disk = json!({"virtlet.cloud/emptydir-disks": DISK});
    plane.apply(&[runtime_class(), pod("disk", &image, &by_disk), pod("shared", &image, &json!({}))])?;

    for (pod, kind) in [("disk", "ext4"), ("shared", "virtiofs")] {
        says(&plane, pod, "grep ' /scratch ' /proc/mounts | cut -d ' ' -f 3", &format!("{kind}\n"))?;
        writes(&plane, pod, 4)?;
        // kubelet gives a pod that it evicts for its volumes a second. A guest that shuts down in it ends with 0, and its pod has
        // succeeded, as any pod's that heeds its signal; most guests take longer.
        says(&plane, pod, "printf '#!/bin/sh\n' >/sbin/poweroff", "")?;
        let files = files(&seen(&mut plane, pod)?)?;
        ensure!(files.iter().all(|file| file.exists()), "pod {pod} has its files elsewhere: {files:?}");
    }
    overfills(&plane, "disk")?;
    evicted(&mut plane, "disk", 1)?;
    let other = seen(&mut plane, "shared")?;
    ensure!(is_running(&other), "it is within its limit: {}", other["status"]);
    overfills(&plane, "shared")?;
    evicted(&mut plane, "shared", 0)
}

/// Has the guest write so many MiB, over what it wrote before.
fn writes(plane: &Controllers, pod: &str, mib: u32) -> Result<()> {
    says(plane, pod, &format!("dd if=/dev/zero of=/scratch/file bs=1M count={mib} conv=fsync 2>/dev/null"), "")
}

/// Has the guest write more than its volume may have, and does not wait for that: kubelet may see it, and end the pod, while it is written.
fn overfills(plane: &Controllers, pod: &str) -> Result<()> {
    says(plane, pod, "(dd if=/dev/zero of=/scratch/file bs=1M count=32 conv=fsync </dev/null >/dev/null 2>&1 &)", "")
}

/// Waits for the end of a pod whose volume is too large, and of all that it had on the node, which has so many machines then. The
/// pod's object alone is left.
fn evicted(plane: &mut Controllers, name: &str, machines: usize) -> Result<()> {
    let mut last = Value::Null;
    let ended = wait_for("evicted pod", STEP_DEADLINE, || {
        last = seen(plane, name)?;
        Ok((last["status"]["phase"] == "Failed").then(|| last.clone()))
    });
    let pod = ended.with_context(|| no_pod("evicted pod", &last))?;
    let status = &pod["status"];
    let why = format!("Usage of EmptyDir volume \"scratch\" exceeds the limit \"{LIMIT}\"");
    let told = status["message"].as_str().unwrap_or_default();
    ensure!(status["reason"] == "Evicted" && told.contains(&why), "{status}");

    let selector = format!("--field-selector=reason=Evicted,involvedObject.name={name}");
    wait_for("event that says so", STEP_DEADLINE, || {
        let events = plane.kubectl(&["get", "events", &selector, "-o", "jsonpath={.items[*].message}"])?;
        Ok(events.contains(&why).then_some(()))
    })?;

    let files = files(&pod)?;
    let mut left = Vec::new();
    wait_for("end of the machine and of its files", STEP_DEADLINE, || {
        left = domains()?;
        let gone = left.len() == machines && !files.iter().any(|file| file.exists());
        Ok(gone.then_some(()))
    })
    .with_context(|| format!("{files:?}, {left:?}"))
}

/// Where the pod's volume is, and the disks of its machine.
fn files(pod: &Value) -> Result<[PathBuf; 2]> {
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).context("no UID")?;
    let volume = Path::new(PODS).join(uid).join("volumes/kubernetes.io~empty-dir/scratch");
    Ok([volume, Path::new(DISKS).join(uid)])
}

fn pod(name: &str, image: &str, annotations: &Value) -> Value {
    let mut pod = whole::pod(name, image);
    pod["metadata"]["annotations"] = annotations.clone();
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {"sizeLimit": LIMIT}}]);
    pod
}
