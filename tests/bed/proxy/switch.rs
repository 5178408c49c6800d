//! A node that runs is switched over and back, by what `virtletctl proxy enable --check` and `disable --check` list: each change of a file is
//! made as it is listed, and each daemon restarted, in that order. The container that runs before runs after it, as the same one.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{Container, ContainerState, ListContainersRequest, ListPodSandboxRequest};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni;
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::containerd::{Containerd, Release};
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::libvirt::domains;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::wait::{wait_for, wait_until};
use tests::world::World;

use super::{Both, DEADLINE, POD_DEADLINE, container, machine, of_the_node, times_new, wait_runs};

const CONFIG: &str = "/etc/virtlet/controld.toml";
const RESTART_CONTROLD: &str = "systemctl restart controld";
const RESTART_KUBELET: &str = "systemctl restart kubelet";

pub(super) const CASES: &[Case] =
    &[Case { name: "proxy::a_node_that_runs_is_switched_over_and_back", deadline: DEADLINE, run: switched }];

fn switched(bed: &Bed) -> Result<()> {
    // As virtlet-rs is after its installation: nobody asks it for anything.
    let node = Node::start(bed)?;
    let program = bed.config.dist()?.join("virtlet-install");
    let containerd = Containerd::start_with(bed, Release::Newest, &cni::debian_plugins(), (&program, &["stay"]))?;
    let endpoint = format!("unix://{}", containerd.socket().display());
    let mut both = Both { containerd, node };
    let mut kubelet = Kubelet::configured(bed, &json!({"containerRuntimeEndpoint": endpoint}))?;
    kubelet.apply("c", &container("c"))?;
    let before = Seen::of(&both, &kubelet)?;
    ensure!(
        before.container.starts_with("containerd://") && before.ids.len() == 2 && before.asked_for.len() == 1,
        "{before:?}"
    );
    let world = World::settled()?;

    let changes = asked(bed, &["enable", "--runtime-endpoint", &endpoint])?;
    let config = bed.dir.join("kubelet.yaml").display().to_string();
    let (of_controld, of_kubelet) = ([CONFIG, RESTART_CONTROLD], [&*config, RESTART_KUBELET]);
    ensure!(what(&changes) == [of_controld, of_kubelet].concat(), "{changes}");
    follow(&mut both, &mut kubelet, &changes)?;
    let again = asked(bed, &["enable", "--runtime-endpoint", &endpoint])?;
    ensure!(again == json!([]), "once more: {again}");
    before.assert_same(&both, &kubelet).context("switched over")?;

    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    kubelet.apply("vm", &machine("vm", &image))?;
    wait_runs(&kubelet, "vm", BOOT_DEADLINE)?;
    let ids = both.ids()?;
    ensure!(ids.len() == 4 && before.ids.iter().all(|id| ids.contains_key(id)), "{ids:?}, {before:?}");
    let refused = check(bed, &["disable"])?;
    let why = "in the way: pods of this node are VMs, default/vm-node1: drain the node first, or remove them";
    ensure!(refused.code == Some(1) && refused.stderr.contains(why), "{refused:?}");
    before.assert_same(&both, &kubelet).context("beside a machine")?;
    kubelet.delete("vm")?;
    // kubelet removes the sandbox within a minute.
    wait_until("end of the machine's pod", POD_DEADLINE, || {
        both.ids().is_ok_and(|ids| !ids.keys().any(|id| id.starts_with("vm")))
    })?;

    let changes = asked(bed, &["disable"])?;
    ensure!(what(&changes) == [of_kubelet, of_controld].concat(), "{changes}");
    follow(&mut both, &mut kubelet, &changes)?;
    before.assert_same(&both, &kubelet).context("switched back")?;
    ensure!(domains()?.is_empty() && both.ids()?.is_empty(), "{:?}, {:?}", domains()?, both.ids()?);
    // What it knew last of containerd is kept for the next time.
    world.assert_same_but(|thing| of_the_node(thing) || thing == "file /var/lib/virtlet/proxy.json")?;

    kubelet.delete("c")?;
    wait_for("end of the container", POD_DEADLINE, || {
        let has_ended = |container: &Container| container.state() == ContainerState::ContainerExited;
        Ok(containers_of_containerd(&both)?.iter().all(has_ended).then_some(()))
    })?;
    kubelet.daemon.terminate()?;
    for sandbox in sandboxes_of_containerd(&both)? {
        both.containerd.cri.remove_sandbox(&sandbox)?;
    }
    both.containerd.stop()
}

/// What is known of the pod.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// As its status has it: with the name of its runtime.
    container: String,
    /// What containerd has: sandboxes, and then containers.
    ids: Vec<String>,
    /// For which pods containerd was asked to make a sandbox.
    asked_for: Vec<String>,
    times_new: usize,
}

impl Seen {
    fn of(both: &Both, kubelet: &Kubelet) -> Result<Self> {
        // Also that it was not restarted.
        wait_runs(kubelet, "c", POD_DEADLINE)?;
        let containers = containers_of_containerd(both)?.into_iter().map(|container| container.id);
        Ok(Self {
            container: container_id(kubelet)?,
            ids: sandboxes_of_containerd(both)?.into_iter().chain(containers).collect(),
            asked_for: both.containerd.sandboxes_asked_for()?,
            times_new: times_new(kubelet, "c")?,
        })
    }

    fn assert_same(&self, both: &Both, kubelet: &Kubelet) -> Result<()> {
        let now = Self::of(both, kubelet)?;
        ensure!(now == *self, "{now:?}, and before {self:?}");
        Ok(())
    }
}

fn container_id(kubelet: &Kubelet) -> Result<String> {
    let pods = kubelet.pods()?;
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == "c-node1").context("no pod")?;
    let id = pod.pointer("/status/containerStatuses/0/containerID").and_then(Value::as_str);
    Ok(id.with_context(|| format!("no id in {pod}"))?.to_owned())
}

fn check(bed: &Bed, words: &[&str]) -> Result<Ended> {
    let mut virtletctl = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "proxy"]);
    finish(virtletctl.args(words).args(["--check", "-o", "json"]), TOOL_DEADLINE)
}

/// What is listed, when nothing is in the way.
fn asked(bed: &Bed, words: &[&str]) -> Result<Value> {
    let ended = check(bed, words)?;
    let mut told: Value = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?;
    ensure!(ended.code == Some(0) && told["inTheWay"] == json!([]), "{ended:?}");
    Ok(told["changes"].take())
}

/// The files and commands of a list.
fn what(changes: &Value) -> Vec<&str> {
    let changes = changes.as_array().into_iter().flatten();
    changes.filter_map(|change| change["file"].as_str().or(change["run"].as_str())).collect()
}

/// Does what is listed.
fn follow(both: &mut Both, kubelet: &mut Kubelet, changes: &Value) -> Result<()> {
    for change in changes.as_array().into_iter().flatten() {
        match (change["file"].as_str(), change["run"].as_str()) {
            (Some(file), None) => fs::write(file, edited(&fs::read_to_string(file)?, change)?)?,
            (None, Some(RESTART_CONTROLD)) => {
                both.node.controld.terminate()?;
                both.node.controld.start_again()?;
                both.node.wait_ready()?;
                // In front of containerd it has to know what that has before kubelet asks; without it, it knows its own.
                wait_until("list of what there is", POD_DEADLINE, || both.ids().is_ok())?;
            }
            (None, Some(RESTART_KUBELET)) => {
                kubelet.daemon.terminate()?;
                kubelet.restart()?;
            }
            _ => anyhow::bail!("not a change that can be made: {change}"),
        }
    }
    Ok(())
}

/// A file after a change: lines in the place of others, below one, or at the end.
fn edited(text: &str, change: &Value) -> Result<String> {
    let listed = |key: &str| -> Vec<String> {
        change[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (remove, add) = (listed("remove"), listed("add"));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let find = |line: &str| lines.iter().position(|has| has.trim() == line).with_context(|| format!("no line {line}"));
    let at = match (remove.first(), change["below"].as_str()) {
        (Some(line), _) => find(line)?,
        (None, Some(line)) => find(line)? + 1,
        (None, None) => lines.len(),
    };
    lines.splice(at..at + remove.len(), add);
    Ok(lines.join("\n") + "\n")
}

/// Asked at its own socket.
fn sandboxes_of_containerd(both: &Both) -> Result<Vec<String>> {
    let request = ListPodSandboxRequest::default();
    let listed = both.containerd.cri.call(|mut client| async move { client.list_pod_sandbox(request).await })?;
    Ok(listed.items.into_iter().map(|sandbox| sandbox.id).collect())
}

fn containers_of_containerd(both: &Both) -> Result<Vec<Container>> {
    let request = ListContainersRequest::default();
    Ok(both.containerd.cri.call(|mut client| async move { client.list_containers(request).await })?.containers)
}
