//! What breaks amid a pod's life: kubelet gets the pod to run, or to go, without a person's help.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{
    Container, ContainerConfig, ContainerState, ListContainersRequest, ListPodSandboxRequest, PodSandbox,
    PodSandboxConfig, StatusRequest,
};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::cri::spec;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::libvirt::{running_domains, virtiofsds};
use tests::node::{BOOT_DEADLINE, Node};
use tests::wait::{wait_for, wait_until};

use super::{DEADLINE, POD_DEADLINE, is_running};

/// libvirt's connection is taken for dead after this and some seconds.
const HANG_DEADLINE: Duration = Duration::from_secs(60);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "kubelet::a_container_that_was_created_and_not_started_is_replaced",
        deadline: DEADLINE,
        run: never_started,
    },
    Case { name: "kubelet::a_libvirtd_that_hangs_amid_a_start", deadline: DEADLINE, run: hanging },
    Case { name: "kubelet::a_virtiofsd_that_dies_costs_a_restart_of_the_container", deadline: DEADLINE, run: unshared },
    Case { name: "kubelet::controld_dies_at_each_step", deadline: DEADLINE, run: |bed| dies(bed, Which::Controld) },
    Case { name: "kubelet::libvirtd_dies_at_each_step", deadline: DEADLINE, run: |bed| dies(bed, Which::Libvirtd) },
    Case { name: "kubelet::tapmanager_dies_at_each_step", deadline: DEADLINE, run: |bed| dies(bed, Which::Tapmanager) },
    Case { name: "kubelet::kubelet_dies_at_each_step", deadline: DEADLINE, run: |bed| dies(bed, Which::Kubelet) },
];

#[derive(Clone, Copy)]
enum Which {
    Controld,
    Libvirtd,
    Tapmanager,
    Kubelet,
}

/// A pod of which nobody asks what is in its guest: it costs no boot, and ends at its deadline.
fn without_system(name: &str, image: &str) -> Value {
    let mut pod = manifest(name, image, &json!({}));
    pod["spec"]["terminationGracePeriodSeconds"] = json!(2);
    pod
}

/// A kubelet that dies between CreateContainer and StartContainer leaves a container that no kubelet removes: the next one
/// makes another attempt.
fn never_started(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.offer_no_system(bed)?;
    let mut kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &without_system("vm", &image))?;
    kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    kubelet.daemon.kill9()?;

    let sandbox = sandboxes(&node)?.pop().context("no sandbox")?;
    let started = containers(&node)?.pop().context("no container")?;
    node.cri.remove(&started.id)?;
    let config = ContainerConfig {
        metadata: started.metadata,
        image: Some(spec(&started.image_ref)),
        log_path: "vm/0.log".into(),
        labels: started.labels,
        annotations: started.annotations,
        ..ContainerConfig::default()
    };
    let pod = PodSandboxConfig { annotations: sandbox.annotations, ..PodSandboxConfig::default() };
    let left = node.cri.create(&sandbox.id, &config, &pod).context("as kubelet would")?;

    kubelet.restart()?;
    kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    wait_until("the next attempt", POD_DEADLINE, || {
        containers(&node)
            .is_ok_and(|all| all.iter().any(|c| c.id != left && c.state() == ContainerState::ContainerRunning))
    })?;
    ensure!(running_domains()?.len() == 1, "not one machine: {:?}", running_domains()?);
    goes(&node, &kubelet, "vm")
}

/// One pod runs and one is being started when libvirtd stops answering; later it goes on.
fn hanging(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.offer_no_system(bed)?;
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("one", &without_system("one", &image))?;
    wait_until("first machine", POD_DEADLINE, || running(&node).is_ok_and(|ids| ids.len() == 1))?;
    let first = running(&node)?;
    kubelet.apply("two", &without_system("two", &image))?;
    wait_until("second container", POD_DEADLINE, || containers(&node).is_ok_and(|all| all.len() == 2))?;
    let held = node.libvirt.libvirtd.hold()?;
    wait_until("a node that says so", HANG_DEADLINE, || !runtime_ready(&node))?;
    drop(held);
    wait_for("both machines", POD_DEADLINE, || {
        let ids = running(&node)?;
        Ok((ids.len() == 2 && running_domains()?.len() == 2).then_some(()))
    })?;
    ensure!(running(&node)?.contains(&first[0]), "the first machine was disturbed");
    kubelet.delete("one")?;
    goes(&node, &kubelet, "two")
}

/// A guest without its volumes cannot go on: kubelet starts the container again, and the next guest has them.
fn unshared(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    let dir = bed.dir.join("files");
    fs::create_dir(&dir)?;
    fs::write(dir.join("word"), "of the node\n")?;
    let mut pod = manifest("vm", &image, &json!({}));
    pod["spec"]["volumes"] =
        json!([{"name": "scratch", "emptyDir": {}}, {"name": "files", "hostPath": {"path": dir, "type": "Directory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}, {"name": "files", "mountPath": "/files", "readOnly": true}]);
    kubelet.apply("vm", &pod)?;
    told(&node, "cat /files/word; echo of the first guest >/scratch/word", "of the node\n")?;

    let first = *virtiofsds()?.first().context("no virtiofsd runs")?;
    kill(Pid::from_raw(first), Signal::SIGKILL)?;
    let restarts =
        |pod: &Value| pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_u64) == Some(1);
    let pod = kubelet.wait_pod("restarted container", POD_DEADLINE, |pod| restarts(pod) && is_running(pod))?;
    let last = pod.pointer("/status/containerStatuses/0/lastState/terminated").context("no last state")?;
    ensure!((last["exitCode"].as_i64(), last["reason"].as_str()) == (Some(133), Some("VirtiofsdDied")), "{last}");
    told(&node, "cat /files/word /scratch/word", "of the node\nof the first guest\n")?;
    goes(&node, &kubelet, "vm")
}

/// Waits until our agent runs the script in the guest that runs, and it prints what was expected.
fn told(node: &Node, script: &str, expected: &str) -> Result<()> {
    let mut last = None;
    let said = wait_for("answer of the guest", BOOT_DEADLINE, || {
        let Some(container) = running(node)?.pop() else { return Ok(None) };
        let ended = node.crictl(&["exec", &container, "sh", "-c", script])?;
        let expected = ended.code == Some(0) && ended.stdout == expected;
        last = Some(ended);
        Ok(expected.then_some(()))
    });
    said.with_context(|| format!("{last:?}"))
}

/// A daemon is killed and started again when the sandbox is there, when the container is, and when the container has ended.
fn dies(bed: &Bed, which: Which) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.offer_no_system(bed)?;
    let mut kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &without_system("vm", &image))?;
    wait_until("sandbox", POD_DEADLINE, || sandboxes(&node).is_ok_and(|all| !all.is_empty()))?;
    again(&mut node, &mut kubelet, which)?;
    wait_until("container", POD_DEADLINE, || containers(&node).is_ok_and(|all| !all.is_empty()))?;
    again(&mut node, &mut kubelet, which)?;
    kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    wait_until("one machine", POD_DEADLINE, || {
        running(&node).is_ok_and(|ids| ids.len() == 1) && running_domains().is_ok_and(|domains| domains.len() == 1)
    })?;
    kubelet.delete("vm")?;
    wait_until("end of the container", POD_DEADLINE, || running(&node).is_ok_and(|ids| ids.is_empty()))?;
    again(&mut node, &mut kubelet, which)?;
    gone(&node)
}

fn again(node: &mut Node, kubelet: &mut Kubelet, which: Which) -> Result<()> {
    match which {
        Which::Kubelet => return kubelet.again(),
        Which::Controld => {
            node.controld.kill9()?;
            node.controld.start_again()?;
        }
        Which::Tapmanager => {
            node.net.tapmanager.kill9()?;
            node.net.tapmanager.start_again()?;
        }
        Which::Libvirtd => {
            node.libvirt.libvirtd.kill9()?;
            node.libvirt.libvirtd.start_again()?;
            node.libvirt.wait_ready()?;
        }
    }
    node.wait_ready()
}

fn goes(node: &Node, kubelet: &Kubelet, name: &str) -> Result<()> {
    kubelet.delete(name)?;
    gone(node)
}

fn gone(node: &Node) -> Result<()> {
    wait_until("end of all machines", POD_DEADLINE, || running_domains().is_ok_and(|domains| domains.is_empty()))?;
    wait_until("removal of all sandboxes", POD_DEADLINE, || sandboxes(node).is_ok_and(|all| all.is_empty()))
}

fn running(node: &Node) -> Result<Vec<String>> {
    let all = containers(node)?.into_iter();
    Ok(all.filter(|c| c.state() == ContainerState::ContainerRunning).map(|c| c.id).collect())
}

fn containers(node: &Node) -> Result<Vec<Container>> {
    let request = ListContainersRequest::default();
    Ok(node.cri.call(|mut client| async move { client.list_containers(request).await })?.containers)
}

fn sandboxes(node: &Node) -> Result<Vec<PodSandbox>> {
    let request = ListPodSandboxRequest::default();
    Ok(node.cri.call(|mut client| async move { client.list_pod_sandbox(request).await })?.items)
}

fn runtime_ready(node: &Node) -> bool {
    let asked = node.cri.call(|mut client| async move { client.status(StatusRequest { verbose: false }).await });
    let conditions = asked.ok().and_then(|answer| answer.status).map(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.r#type == "RuntimeReady" && condition.status)
}
