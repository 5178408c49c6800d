//! What breaks amid a pod's life: kubelet gets the pod to run, or to go, without a person's help.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{
    Container, ContainerConfig, ContainerState, ListContainersRequest, ListPodSandboxRequest, PodSandbox,
    PodSandboxConfig, StatusRequest,
};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::cri::spec;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::libvirt::running_domains;
use tests::node::Node;
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

/// A kubelet that dies between CreateContainer and StartContainer leaves a container that no kubelet removes: the next one
/// makes another attempt.
fn never_started(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let mut kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &manifest("vm", &image, &json!({})))?;
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
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("one", &manifest("one", &image, &json!({})))?;
    wait_until("first machine", POD_DEADLINE, || running(&node).is_ok_and(|ids| ids.len() == 1))?;
    let first = running(&node)?;
    kubelet.apply("two", &manifest("two", &image, &json!({})))?;
    wait_until("second container", POD_DEADLINE, || containers(&node).is_ok_and(|all| all.len() == 2))?;
    let libvirtd = Pid::from_raw(node.libvirt.libvirtd.pid()?.cast_signed());
    kill(libvirtd, Signal::SIGSTOP)?;
    wait_until("a node that says so", HANG_DEADLINE, || !runtime_ready(&node))?;
    kill(libvirtd, Signal::SIGCONT)?;
    wait_for("both machines", POD_DEADLINE, || {
        let ids = running(&node)?;
        Ok((ids.len() == 2 && running_domains()?.len() == 2).then_some(()))
    })?;
    ensure!(running(&node)?.contains(&first[0]), "the first machine was disturbed");
    kubelet.delete("one")?;
    goes(&node, &kubelet, "two")
}

/// A daemon is killed and started again when the sandbox is there, when the container is, and when the container has ended.
fn dies(bed: &Bed, which: Which) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let mut kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &manifest("vm", &image, &json!({})))?;
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
