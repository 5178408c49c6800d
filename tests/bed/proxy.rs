//! Tier `proxy`: controld in front of a real containerd, under a real kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ListContainersRequest, ListPodSandboxRequest, PodSandbox, RuntimeCondition, StatusRequest};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni;
use tests::containerd::{Containerd, PAUSE, Release};
use tests::kubelet::{Kubelet, manifest};
use tests::node::Node;
use tests::wait::wait_for;

mod admission;
mod autoscaling;
mod away;
mod cluster;
mod critest;
mod faults;
mod filesystems;
mod image_collection;
mod keys;
mod node_agents;
mod pods;
mod restarts;
mod services;
mod switch;
mod told;
mod workloads;

const DEADLINE: Duration = Duration::from_secs(600);
/// kubelet looks at its directory every second, syncs every other, and gives a pod 20 s to end.
const POD_DEADLINE: Duration = Duration::from_secs(120);
const TARGET: &str = "kubernetes.io/target-runtime";

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [
        keys::CASES,
        pods::CASES,
        cluster::CASES,
        away::CASES,
        faults::CASES,
        restarts::CASES,
        critest::CASES,
        filesystems::CASES,
        image_collection::CASES,
        switch::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// A node with both.
struct Both {
    containerd: Containerd,
    node: Node,
}

impl Both {
    fn start(bed: &Bed) -> Result<Self> {
        Self::with(bed, Release::Newest, "")
    }

    /// With such a containerd, and these further settings of controld.
    fn with(bed: &Bed, release: Release, settings: &str) -> Result<Self> {
        Self::beside(bed, release, Node::configured(bed, &proxy(bed, release, settings))?)
    }

    /// With the newest containerd on such a network.
    fn on(bed: &Bed, conflist: &Value, settings: &str) -> Result<Self> {
        let release = Release::Newest;
        let node = Node::on(bed, conflist, &cni::debian_plugins(), &proxy(bed, release, settings))?;
        Self::beside(bed, release, node)
    }

    /// The newest containerd on a node that has no network yet.
    fn without_network(bed: &Bed, settings: &str) -> Result<Self> {
        let release = Release::Newest;
        Self::beside(bed, release, Node::without_network(bed, &proxy(bed, release, settings))?)
    }

    fn beside(bed: &Bed, release: Release, node: Node) -> Result<Self> {
        // It may come after controld, which answers for machines meanwhile.
        let program = bed.config.dist()?.join("virtlet-install");
        let containerd = Containerd::start_with(bed, release, &cni::debian_plugins(), (&program, &["stay"]))?;
        let both = Self { containerd, node };
        wait_for("containerd behind controld", POD_DEADLINE, || Ok(both.ids().is_ok().then_some(())))?;
        Ok(both)
    }

    /// The sandboxes of both sides.
    fn sandboxes(&self) -> Result<Vec<PodSandbox>> {
        let list = ListPodSandboxRequest::default;
        Ok(self.node.cri.call(|mut client| async move { client.list_pod_sandbox(list()).await })?.items)
    }

    /// What kubelet is told that there is: sandboxes and containers, by id, with their state.
    fn ids(&self) -> Result<BTreeMap<String, i32>> {
        let containers = self
            .node
            .cri
            .call(|mut client| async move { client.list_containers(ListContainersRequest::default()).await })?;
        let sandboxes = self.sandboxes()?.into_iter().map(|sandbox| (sandbox.id, sandbox.state));
        Ok(sandboxes
            .chain(containers.containers.into_iter().map(|container| (container.id, container.state)))
            .collect())
    }

    /// What kubelet is told of the node, by kind.
    fn conditions(&self) -> Result<BTreeMap<String, RuntimeCondition>> {
        let status =
            self.node.cri.call(|mut client| async move { client.status(StatusRequest { verbose: false }).await })?;
        let conditions = status.status.context("no status")?.conditions;
        Ok(conditions.into_iter().map(|condition| (condition.r#type.clone(), condition)).collect())
    }

    /// Fails unless kubelet is told so.
    fn told(&self, kind: &str, status: bool) -> Result<()> {
        let conditions = self.conditions()?;
        ensure!(conditions.get(kind).is_some_and(|condition| condition.status == status), "{conditions:?}");
        Ok(())
    }
}

/// controld's settings in front of such a containerd, and further ones.
fn proxy(bed: &Bed, release: Release, settings: &str) -> String {
    let socket = Containerd::socket_of(bed, release);
    format!("proxy.runtime_endpoint = 'unix://{}'\n{settings}", socket.display())
}

/// A pod whose only container is one.
fn container(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": PAUSE, "imagePullPolicy": "Never"}],
        },
    })
}

fn machine(name: &str, image: &str) -> Value {
    manifest(name, image, &json!({TARGET: "virtlet.cloud"}))
}

/// One of many for which a node has processors at a time, with an image in which there is no system: it costs no boot, and ends at its deadline.
fn idle_machine(name: &str, image: &str) -> Value {
    let mut pod = machine(name, image);
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m"});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(2);
    pod
}

fn runs(kubelet: &Kubelet, name: &str) -> Result<bool> {
    let suffix = format!("{name}-{}", tests::kubelet::NODE);
    let pods = kubelet.pods()?;
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == suffix.as_str());
    let status = pod.and_then(|pod| pod.pointer("/status/containerStatuses/0"));
    let Some(status) = status else { return Ok(false) };
    ensure!(status["restartCount"] == 0, "pod {name} was restarted: {status}");
    Ok(status.pointer("/state/running").is_some())
}

fn wait_runs(kubelet: &Kubelet, name: &str, deadline: Duration) -> Result<()> {
    wait_for(&format!("running pod {name}"), deadline, || Ok(runs(kubelet, name)?.then_some(())))
}

/// How often kubelet, over all its lives, has taken the pod for one that has no sandbox: as long as it is new, and never after.
fn times_new(kubelet: &Kubelet, name: &str) -> Result<usize> {
    let pod = format!("pod=\"default/{name}-{}\"", tests::kubelet::NODE);
    let log = kubelet.daemon.log()?;
    Ok(log.lines().filter(|line| line.contains("Need to start a new one") && line.contains(&pod)).count())
}

/// Of what there is in the cell, what is another one after a restart, and what is of the node and no pod's.
fn of_the_node(thing: &str) -> bool {
    // kubelet makes its rules of the firewall when it gets to it.
    thing.starts_with("process ") || thing.starts_with("file /var/lib/virtlet/images") || thing.contains("KUBE-")
}
