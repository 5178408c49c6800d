//! Tier `kubelet`: a real kubelet runs machines from manifests.

mod cluster;
mod device_plugin;
mod eviction;
mod features;
mod logs;
mod policies;
mod pressure;
mod probes;
mod recovery;
mod traces;
mod volumes;
pub(crate) mod whole;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::http;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, Node};
use tests::wait::{wait_for, wait_until};
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
/// kubelet looks at its directory every second, syncs every other, and gives a pod 20 s to end.
const POD_DEADLINE: Duration = Duration::from_secs(90);

/// The cases of this tier.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    CASES
        .iter()
        .chain(recovery::CASES)
        .chain(policies::CASES)
        .chain(pressure::CASES)
        .chain(probes::CASES)
        .chain(logs::CASES)
        .chain(cluster::CASES)
        .chain(volumes::CASES)
        .chain(device_plugin::CASES)
        .chain(eviction::CASES)
        .chain(features::CASES)
        .chain(traces::CASES)
        .copied()
}

const CASES: &[Case] = &[
    Case { name: "kubelet::a_static_pod_is_a_machine_until_its_manifest_goes", deadline: DEADLINE, run: static_pod },
    Case { name: "kubelet::that_of_the_release_before_runs_a_static_pod", deadline: DEADLINE, run: release_before },
    Case { name: "kubelet::a_guest_that_powers_off_is_started_again", deadline: DEADLINE, run: restarted },
];

fn static_pod(bed: &Bed) -> Result<()> {
    runs_a_pod(bed, Kubelet::start)
}

/// Nodes are upgraded one daemon after the other: an older kubelet beside this controld. All other cases have the newer one.
fn release_before(bed: &Bed) -> Result<()> {
    runs_a_pod(bed, Kubelet::start_before)
}

fn runs_a_pod(bed: &Bed, start: impl FnOnce(&Bed) -> Result<Kubelet>) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = start(bed)?;
    // kubelet has just started, and starts programs.
    let before = World::settled()?;

    kubelet.apply("vm", &manifest("vm", &image, &json!({})))?;
    let pod = kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    let ip: IpAddr = pod.pointer("/status/podIP").and_then(Value::as_str).context("no IP")?.parse()?;
    ensure!(ip.to_string().starts_with("10.77.0."), "not an address of the CNI plugin: {ip}");
    wait_until("HTTP answer", BOOT_DEADLINE, || http::get(ip, "/cgi-bin/info").is_ok())?;
    wait_for("console in kubelet's log directory", BOOT_DEADLINE, || {
        let log = pod_logs()?.first().map(fs::read_to_string).transpose()?.unwrap_or_default();
        Ok(log.contains("tiny: ready").then_some(()))
    })?;

    counts_what_it_uses(&kubelet)?;

    kubelet.delete("vm")?;
    wait_for("end of the machine", POD_DEADLINE, || Ok(running_domains()?.is_empty().then_some(())))?;
    // The sandbox goes with kubelet's next round of garbage collection.
    wait_for("removal of the sandbox", POD_DEADLINE, || {
        let left = node.crictl(&["pods", "-q"])?.stdout;
        Ok(left.trim().is_empty().then_some(()))
    })?;
    let of_kubelet = |thing: &str| thing.contains("KUBE-") || thing.starts_with("process") && thing.contains("tables");
    before.assert_same_but(|thing| {
        thing == "link cni0" || thing.starts_with("file /var/lib/virtlet/images") || of_kubelet(thing)
    })
}

/// A guest of 160 MiB that has booted uses processors, memory and its disk, and kubelet knows.
fn counts_what_it_uses(kubelet: &Kubelet) -> Result<()> {
    let figure = |container: &Value, path: &str| container.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let mut last = Value::Null;
    // kubelet keeps figures for a while: what it saw first may be of a guest that had hardly begun to boot.
    let seen = wait_for("usage of a machine that has booted", POD_DEADLINE, || {
        last = kubelet.stats_summary()?.pointer("/pods/0/containers/0").cloned().unwrap_or_default();
        let booted = figure(&last, "/cpu/usageCoreNanoSeconds") > 1_000_000_000
            && figure(&last, "/memory/workingSetBytes") > 30 << 20
            && figure(&last, "/rootfs/usedBytes") > 100_000;
        Ok(booted.then(|| last.clone()))
    });
    let container = seen.with_context(|| format!("last: {last}"))?;
    ensure!(container["name"] == "vm", "{container}");
    ensure!(figure(&container, "/memory/workingSetBytes") < 400 << 20, "{container}");
    let (used, capacity) = (figure(&container, "/rootfs/usedBytes"), figure(&container, "/rootfs/capacityBytes"));
    ensure!(used < capacity, "{container}");
    Ok(())
}

fn restarted(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    // The count is on the guest's disk, so the second boot stays up only if it is the same disk.
    let script = "#!/bin/sh\n[ \"$(cat /data/boots)\" = 1 ] && poweroff\n:\n";
    let script = json!({"VirtletCloudInitUserDataScript": script});
    kubelet.apply("vm", &manifest("vm", &image, &script))?;
    let restarts =
        |pod: &Value| pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_u64) == Some(1);
    let pod = kubelet.wait_pod("restarted container", POD_DEADLINE, |pod| restarts(pod) && is_running(pod))?;
    let last = pod.pointer("/status/containerStatuses/0/lastState/terminated").context("no last state")?;
    ensure!((last["exitCode"].as_i64(), last["reason"].as_str()) == (Some(0), Some("Completed")), "{last}");
    let ip: IpAddr = pod.pointer("/status/podIP").and_then(Value::as_str).context("no IP")?.parse()?;
    wait_for("second boot of the same disk", BOOT_DEADLINE, || {
        Ok(http::get(ip, "/cgi-bin/info").is_ok_and(|info| info.lines().any(|line| line == "boots 2")).then_some(()))
    })?;
    let sandboxes = node.crictl(&["pods", "-q"])?.stdout;
    ensure!(sandboxes.lines().count() == 1, "another sandbox: {sandboxes}");
    ensure!(pod_logs()?.iter().any(|log| log.ends_with("vm/1.log")), "no log of the second attempt: {:?}", pod_logs()?);
    kubelet.delete("vm")?;
    wait_for("end of the machine", POD_DEADLINE, || Ok(running_domains()?.is_empty().then_some(())))
}

fn is_running(pod: &Value) -> bool {
    pod.pointer("/status/phase") == Some(&json!("Running"))
        && pod.pointer("/status/containerStatuses/0/state/running").is_some()
}

/// Logs of containers, where kubelet keeps them: `/var/log/pods/<namespace>_<name>_<uid>/<container>/<attempt>.log`.
fn pod_logs() -> Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for pod in fs::read_dir("/var/log/pods")? {
        for log in fs::read_dir(pod?.path().join("vm")).into_iter().flatten() {
            logs.push(log?.path());
        }
    }
    Ok(logs)
}
