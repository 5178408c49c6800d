//! Tier `proxy`: controld in front of a real containerd, under a real kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{
    ContainerStatusRequest, ListContainersRequest, ListPodSandboxRequest, PodSandboxConfig, PodSandboxMetadata,
    StatusRequest,
};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni;
use tests::containerd::{Containerd, PAUSE, Release};
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, Node};
use tests::pace;
use tests::wait::{wait_for, wait_until};
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(600);
/// kubelet looks at its directory every second, syncs every other, and gives a pod 20 s to end.
const POD_DEADLINE: Duration = Duration::from_secs(120);
/// Longer than a Status is the last good one, and than kubelet's patience.
const STOPPED: Duration = Duration::from_secs(60);
const TARGET: &str = "kubernetes.io/target-runtime";

pub(crate) const CASES: &[Case] = &[
    Case { name: "proxy::keys_say_whose_a_sandbox_is", deadline: DEADLINE, run: keys },
    Case { name: "proxy::a_machine_and_a_container_are_pods_of_one_kubelet", deadline: DEADLINE, run: both },
    Case { name: "proxy::a_runtime_that_is_stopped_costs_machines_nothing", deadline: DEADLINE, run: stopped },
    Case { name: "proxy::controld_that_is_killed_restarts_no_pod", deadline: DEADLINE, run: killed },
];

/// A node with both.
struct Both {
    containerd: Containerd,
    node: Node,
}

impl Both {
    fn start(bed: &Bed) -> Result<Self> {
        let socket = Containerd::socket_of(bed, Release::Newest);
        let node = Node::configured(bed, &format!("[proxy]\nruntime_endpoint = 'unix://{}'\n", socket.display()))?;
        // It may come after controld, which answers for machines meanwhile.
        let program = bed.config.dist()?.join("virtlet-install");
        let containerd = Containerd::start_with(bed, Release::Newest, &cni::debian_plugins(), (&program, &["stay"]))?;
        let both = Self { containerd, node };
        wait_for("containerd behind controld", POD_DEADLINE, || Ok(both.ids().is_ok().then_some(())))?;
        Ok(both)
    }

    /// What kubelet is told that there is: sandboxes and containers, by id, with their state.
    fn ids(&self) -> Result<BTreeMap<String, i32>> {
        let sandboxes = self
            .node
            .cri
            .call(|mut client| async move { client.list_pod_sandbox(ListPodSandboxRequest::default()).await })?;
        let containers = self
            .node
            .cri
            .call(|mut client| async move { client.list_containers(ListContainersRequest::default()).await })?;
        let sandboxes = sandboxes.items.into_iter().map(|sandbox| (sandbox.id, sandbox.state));
        Ok(sandboxes
            .chain(containers.containers.into_iter().map(|container| (container.id, container.state)))
            .collect())
    }

    fn conditions(&self) -> Result<BTreeMap<String, (bool, String)>> {
        let status =
            self.node.cri.call(|mut client| async move { client.status(StatusRequest { verbose: false }).await })?;
        let conditions = status.status.context("no status")?.conditions;
        Ok(conditions.into_iter().map(|condition| (condition.r#type, (condition.status, condition.reason))).collect())
    }
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

/// The matrix of handler and annotation, against the runtimes themselves.
fn keys(bed: &Bed) -> Result<()> {
    let both = Both::start(bed)?;
    for (number, (handler, target, wanted)) in [
        ("", None, Ok(false)),
        ("runc", None, Ok(false)),
        ("virtlet", None, Ok(true)),
        ("", Some("virtlet.cloud"), Ok(true)),
        ("virtlet", Some("virtlet.cloud"), Ok(true)),
        ("runc", Some("virtlet.cloud"), Err((Code::InvalidArgument, "leave one of them out"))),
        ("", Some("docker"), Err((Code::InvalidArgument, "`virtlet.cloud`"))),
        // containerd's own words.
        ("ghost", None, Err((Code::Unknown, "no runtime for \"ghost\" is configured"))),
    ]
    .into_iter()
    .enumerate()
    {
        let metadata = PodSandboxMetadata {
            name: format!("p{number}"),
            uid: format!("u{number}"),
            namespace: "default".into(),
            attempt: 0,
        };
        let annotations = target.map(|target| (TARGET.to_owned(), target.to_owned())).into_iter().collect();
        let log_directory = bed.dir.join(format!("logs{number}")).display().to_string();
        let config =
            PodSandboxConfig { metadata: Some(metadata), annotations, log_directory, ..PodSandboxConfig::default() };
        match (both.node.cri.run_sandbox_for(&config, handler), wanted) {
            (Ok(id), Ok(ours)) => {
                ensure!(id.starts_with("vm") == ours, "{handler} {target:?}: {id}");
                both.node.cri.sandbox(&id).with_context(|| format!("status of {id}"))?;
                ensure!(both.ids()?.contains_key(&id), "{id} is not listed");
                both.node.cri.remove_sandbox(&id)?;
                ensure!(!both.ids()?.contains_key(&id), "{id} is listed still");
            }
            (Err(status), Err((code, text))) => {
                ensure!(status.code() == code && status.message().contains(text), "{handler} {target:?}: {status}");
            }
            (answer, wanted) => anyhow::bail!("{handler} {target:?}: {answer:?}, not {wanted:?}"),
        }
    }
    both.containerd.stop()
}

fn both(bed: &Bed) -> Result<()> {
    let both = Both::start(bed)?;
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let ids = both.ids()?;
    ensure!(ids.len() == 4 && ids.keys().filter(|id| id.starts_with("vm")).count() == 2, "{ids:?}");
    // kubelet places the usage of both.
    wait_until("usage of both pods", POD_DEADLINE, || {
        kubelet.stats_summary().is_ok_and(|summary| summary["pods"].as_array().is_some_and(|pods| pods.len() == 2))
    })?;
    let conditions = both.conditions()?;
    ensure!(conditions.get("VirtletReady").is_some_and(|(ready, _)| *ready), "{conditions:?}");
    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}

/// SIGSTOP: connections stay, and nothing is answered.
fn stopped(bed: &Bed) -> Result<()> {
    let both = Both::start(bed)?;
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("one", &machine("one", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "one", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let before = both.ids()?;
    let containerd = Pid::from_raw(both.containerd.daemon.pid()?.cast_signed());
    kill(containerd, Signal::SIGSTOP)?;
    let begun = pace::now();
    // A new machine comes up as ever, and what is there is listed.
    kubelet.apply("two", &machine("two", &image))?;
    wait_runs(&kubelet, "two", POD_DEADLINE)?;
    wait_for("a minute of it", POD_DEADLINE + STOPPED, || {
        let now = both.ids()?;
        ensure!(
            before.iter().all(|(id, state)| now.get(id) == Some(state)),
            "a pod is gone from the list: {before:?}, then {now:?}"
        );
        Ok((begun.elapsed() > STOPPED).then_some(()))
    })?;
    let conditions = both.conditions()?;
    ensure!(
        conditions.get("RuntimeReady").is_some_and(|(ready, why)| !ready && why == "ContainerRuntimeDown"),
        "{conditions:?}"
    );
    ensure!(conditions.get("VirtletReady").is_some_and(|(ready, _)| *ready), "{conditions:?}");
    let of_containers = before.keys().find(|id| !id.starts_with("vm")).context("no container")?.clone();
    let request = ContainerStatusRequest { container_id: of_containers, verbose: false };
    let refused = both.node.cri.call(|mut client| async move { client.container_status(request).await });
    ensure!(refused.as_ref().is_err_and(|status| status.code() == Code::Unavailable), "{refused:?}");
    kill(containerd, Signal::SIGCONT)?;
    wait_until("a ready node", POD_DEADLINE, || {
        both.conditions().is_ok_and(|conditions| conditions.get("RuntimeReady").is_some_and(|(ready, _)| *ready))
    })?;
    // Neither was made again.
    for name in ["one", "two", "c"] {
        wait_runs(&kubelet, name, POD_DEADLINE)?;
    }
    let after = both.ids()?;
    ensure!(
        before.keys().all(|id| after.contains_key(id)) && after.len() == before.len() + 2,
        "{before:?}, then {after:?}"
    );
    for name in ["one", "two", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}

fn killed(bed: &Bed) -> Result<()> {
    let mut both = Both::start(bed)?;
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "vm", BOOT_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let before = both.ids()?;
    for _ in 0..5 {
        both.node.controld.kill9()?;
        both.node.controld.start_again()?;
        both.node.wait_ready()?;
        wait_until("both runtimes behind controld", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids == before))?;
    }
    wait_runs(&kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    ensure!(running_domains()?.len() == 1, "{:?}", running_domains()?);
    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}
