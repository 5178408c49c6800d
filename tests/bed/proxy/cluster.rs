//! Machines and containers on the node of a whole Kubernetes: what runs on each node as pods, one Service in front of both kinds, each of
//! kubectl's verbs for either, an autoscaler for either, and a drain.
//!
//! The machine has a RuntimeClass and no annotation: what a cluster's users write.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::containerd::archive_of;
use tests::controllers::Controllers;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, NODE};
use tests::libvirt::running_domains;
use tests::metrics_server::MetricsServer;
use tests::terminal;
use tests::wait::wait_for;

use super::services::{ANSWERS, PATH};
use super::workloads::IMAGE;
use super::{Both, admission, autoscaling, node_agents, services, workloads};
use crate::kubelet::whole::{self, STEP_DEADLINE, is_ready};

/// A whole Kubernetes starts, and a machine boots beside it.
const DEADLINE: Duration = Duration::from_secs(720);
const BUSYBOX: &str = "/bin/busybox";
const NAMES: [&str; 11] = [
    "bin/busybox",
    "bin/sh",
    "bin/cat",
    "bin/httpd",
    "bin/tar",
    "bin/ping",
    "bin/mkdir",
    "bin/sleep",
    "bin/wget",
    "bin/cp",
    "bin/mv",
];

pub(super) const CASES: &[Case] =
    &[Case { name: "proxy::a_service_has_machines_and_containers_behind_it", deadline: DEADLINE, run }];

/// A pod that is ready.
#[derive(Debug)]
struct Pod {
    name: String,
    ip: IpAddr,
    id: String,
}

fn run(bed: &Bed) -> Result<()> {
    let both = Both::without_network(bed, "[handlers.virtlet]\nguest_agent = true\n")?;
    both.containerd.import(&archive_of(&bed.dir, IMAGE, (BUSYBOX.as_ref(), &NAMES), &[])?)?;
    let image = both.node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let cluster = Cluster::start(bed)?;
    let mut plane = Controllers::start(bed, &cluster)?;
    let mut metrics = MetricsServer::start(bed, &cluster)?;
    let _kubelet = Kubelet::start_in(bed, &cluster)?;
    admission::apply(bed, &mut plane)?;
    plane.apply(&workloads::objects(&image))?;
    node_agents::start(bed, &both, &cluster, &mut plane)?;

    let pods = wait_for("a machine and a container", STEP_DEADLINE, || both_ready(&mut plane))?;
    let [machine, container] = &pods;
    ensure!(machine.id.starts_with("vm") && !container.id.starts_with("vm"), "{pods:?}");
    behind_the_service(&mut plane, &pods)?;
    services::answers(&mut plane, "web", [&machine.name, &container.name])?;
    // From here on there may be more of either.
    plane.apply(&autoscaling::objects())?;

    for ((pod, other), answer) in [(machine, container), (container, machine)].into_iter().zip(ANSWERS) {
        let name = &*pod.name;
        let said = plane.kubectl(&["exec", name, "--", "sh", "-c", "echo here; exit 0"])?;
        ensure!(said == "here\n", "{name}: {said:?}");
        plane.kubectl(&["exec", name, "--", "ping", "-c", "1", "-W", "30", &other.ip.to_string()])?;
        copied(bed, &mut plane, name)?;
        let answered = whole::forwarded(bed, &plane, name, PATH)?;
        ensure!(answered.contains(answer), "{name}: {answered}");
        let log = plane.kubectl(&["logs", name])?;
        ensure!(log.contains("ready"), "{name}: {log}");
        wait_for("usage of the pod", STEP_DEADLINE, || Ok(plane.kubectl(&["top", "pod", name]).ok()))?;
    }
    terminal::answers(bed, &mut plane.command(&["attach", "--stdin", &machine.name]))?;
    echoed(bed, &plane, &container.name)?;
    wait_for("usage of the node", STEP_DEADLINE, || Ok(plane.kubectl(&["top", "node", NODE]).ok()))?;

    autoscaling::grown(&mut plane)?;

    // A drain ends both kinds, and leaves what is of each node. What kubelet keeps of pods that have ended it removes a minute later.
    plane.kubectl(&["drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--grace-period=5"])?;
    let placed = plane.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"])?;
    ensure!(placed.is_empty(), "pods on a node that was drained: {placed}");
    let machines = running_domains()?;
    ensure!(machines.is_empty(), "machines on a node that was drained: {machines:?}");
    node_agents::stand(&mut plane)?;
    metrics.still_runs()?;
    plane.kubectl(&["delete", "hpa,deployment", "--all", "--wait=false"])?;
    node_agents::remove(&mut plane)?;
    wait_for("end of all pods", STEP_DEADLINE, || Ok(both.ids()?.is_empty().then_some(())))?;
    both.containerd.stop()
}

/// The machine and the container once both are ready.
fn both_ready(plane: &mut Controllers) -> Result<Option<[Pod; 2]>> {
    let list: Value = serde_json::from_str(&plane.kubectl(&["get", "pods", "-o", "json"])?)?;
    let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().filter(|pod| is_ready(pod)).collect();
    let of = |kind: &str| pods.iter().find(|pod| pod.pointer("/metadata/labels/kind") == Some(&json!(kind)));
    let (Some(machine), Some(container)) = (of("machine"), of("container")) else { return Ok(None) };
    admission::follows(machine, true)?;
    admission::follows(container, false)?;
    Ok(Some([pod(machine)?, pod(container)?]))
}

fn pod(seen: &Value) -> Result<Pod> {
    let text = |path: &str| seen.pointer(path).and_then(Value::as_str).with_context(|| format!("no {path} in {seen}"));
    let id = text("/status/containerStatuses/0/containerID")?;
    let (_, id) = id.split_once("://").context("an id without a runtime")?;
    Ok(Pod { name: text("/metadata/name")?.to_owned(), ip: text("/status/podIP")?.parse()?, id: id.to_owned() })
}

/// The Service has both for its endpoints.
fn behind_the_service(plane: &mut Controllers, pods: &[Pod]) -> Result<()> {
    let mut expected: Vec<String> = pods.iter().map(|pod| pod.ip.to_string()).collect();
    expected.sort_unstable();
    let query = [
        "get",
        "endpointslices",
        "-l",
        "kubernetes.io/service-name=web",
        "-o",
        "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}",
    ];
    wait_for("both behind the Service", STEP_DEADLINE, || {
        let told = plane.kubectl(&query)?;
        let mut found: Vec<&str> = told.split_whitespace().collect();
        found.sort_unstable();
        Ok((found == expected).then_some(()))
    })
}

/// `kubectl cp`, there and back.
fn copied(bed: &Bed, plane: &mut Controllers, name: &str) -> Result<()> {
    let (file, again) = (bed.dir.join("sent"), bed.dir.join(format!("received-{name}")));
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&file, &bytes)?;
    plane.kubectl(&["cp", &file.to_string_lossy(), &format!("{name}:/tmp/file")])?;
    plane.kubectl(&["cp", &format!("{name}:/tmp/file"), &again.to_string_lossy()])?;
    ensure!(fs::read(&again)? == bytes, "what came back of {name} is not what was sent");
    Ok(())
}

/// `kubectl attach` to the container, whose program gives back what it is sent.
fn echoed(bed: &Bed, plane: &Controllers, name: &str) -> Result<()> {
    let output = bed.dir.join("attached");
    let mut attached =
        plane.command(&["attach", "--stdin", name]).stdin(Stdio::piped()).stdout(File::create(&output)?).spawn()?;
    attached.stdin.as_mut().context("no stdin")?.write_all(b"echoed\n")?;
    let seen = wait_for("what the container gives back", STEP_DEADLINE, || {
        Ok(fs::read_to_string(&output)?.contains("echoed").then_some(()))
    });
    attached.kill()?;
    attached.wait()?;
    seen
}
