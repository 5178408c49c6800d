//! Machines that are for their container's own command, which our agent runs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, ContainerState};
use serde_json::Value;
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use tests::cri;
use tests::image_server::Fault;
use tests::libvirt::running_domains;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node, SHUTDOWN, Vm};
use tests::wait::wait_for;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(5);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::a_container_ends_as_its_command", deadline: DEADLINE, run: ends },
    Case { name: "cri::a_command_that_is_stopped_takes_its_leave", deadline: DEADLINE, run: stopped },
];

/// The command's output and end are there although it ends while controld is not; so is the end of one that cannot be started.
fn ends(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = offer(bed, &node)?;
    let script = "echo begins; until [ -e /tmp/go ]; do sleep 1; done; sleep 2; echo bad >&2; printf 'no end'; exit 5";
    let vm = node.start_pod(node.pod("ends")?, &container(&image, &["sh", "-c", script]))?;
    vm.wait_log(" stdout F begins", BOOT_DEADLINE)?;
    let ended = node.crictl(&["exec", "-s", &vm.container, "touch", "/tmp/go"])?;
    ensure!(ended.code == Some(0), "{ended:?}");
    node.controld.kill9()?;
    wait_for("end of the machine", BOOT_DEADLINE, || Ok(running_domains()?.is_empty().then_some(())))?;
    node.controld.start_again()?;
    node.wait_ready()?;
    ended_as(&node, &vm, 5, "Error", "")?;
    let log = vm.log_text()?;
    let lines: Vec<_> = log.lines().filter_map(|line| line.split_once(' ')).map(|(_, line)| line).collect();
    let (mut sorted, wanted) = (lines.clone(), ["stderr F bad", "stdout F begins", "stdout P no end"]);
    sorted.sort_unstable();
    ensure!(sorted == wanted, "the log is {lines:?}");
    node.remove_vm(&vm, GRACE)?;

    let vm = node.start_pod(node.pod("none")?, &container(&image, &["/no/such"]))?;
    node.wait_state(&vm, ContainerState::ContainerExited, BOOT_DEADLINE)?;
    ended_as(&node, &vm, 127, "Error", "the command was not started: failed to start `/no/such`: No such file")?;
    node.remove_vm(&vm, GRACE)
}

/// The last words and the end of a command are there although virtlogd has died, which has written what it said before.
fn stopped(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = offer(bed, &node)?;
    let script = "trap 'echo leaves; exit 7' TERM; echo ready; until [ -e /tmp/go ]; do sleep 1; done; echo goes on; while :; do sleep 1; done";
    let vm = node.start_pod(node.pod("leaves")?, &container(&image, &["sh", "-c", script]))?;
    vm.wait_log(" stdout F ready", BOOT_DEADLINE)?;
    has_timeline(bed, "leaves")?;
    node.libvirt.virtlogd.kill9()?;
    // While QEMU has nobody to give it to, or after that.
    let ended = node.crictl(&["exec", "-s", &vm.container, "touch", "/tmp/go"])?;
    ensure!(ended.code == Some(0), "{ended:?}");
    vm.wait_log(" stdout F goes on", BOOT_DEADLINE)?;
    ensure!(node.controld.log()?.contains("virtlogd does not write what this machine's command prints any more"));
    node.cri.stop(&vm.container, SHUTDOWN)?;
    ended_as(&node, &vm, 7, "Error", "")?;
    ensure!(vm.log_text()?.ends_with(" stdout F leaves\n"), "{}", vm.log_text()?);
    node.remove_vm(&vm, GRACE)
}

/// Each part of the start is told, from the pod's network to the guest's first words.
fn has_timeline(bed: &Bed, pod: &str) -> Result<()> {
    let mut asked = String::new();
    let words = ["--socket", CRI_SOCKET, "timeline", pod, "-o", "json"];
    let whole = wait_for("parts of the start", BOOT_DEADLINE, || {
        asked = run(&mut command(bed.program("virtletctl"), words))?;
        let told: Value = serde_json::from_str(&asked)?;
        let took = |name: &str| {
            let phase = told["phases"].as_array()?.iter().find(|phase| phase["phase"] == name)?;
            phase["tookSeconds"].as_f64().filter(|_| phase["failed"] == false)
        };
        let all = ["sandbox", "network", "plan", "disks", "turn", "define", "launch", "admit", "output", "agent"];
        Ok(all.into_iter().map(took).collect::<Option<Vec<f64>>>())
    });
    let whole = whole.with_context(|| asked.clone())?;
    ensure!(whole[0] >= whole[1], "the network took longer than the sandbox: {asked}");
    let drawn = run(&mut command(bed.program("virtletctl"), &words[..4]))?;
    ensure!(drawn.contains("until agent answers") && drawn.contains('#'), "{drawn}");
    Ok(())
}

fn offer(bed: &Bed, node: &Node) -> Result<String> {
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    Ok(image)
}

fn container(image: &str, command: &[&str]) -> ContainerConfig {
    let annotations = [("virtlet.cloud/run-command".to_owned(), "true".to_owned())].into();
    let mut container = cri::container(image, annotations);
    container.command = command.iter().map(|word| (*word).to_owned()).collect();
    container
}

fn ended_as(node: &Node, vm: &Vm, code: i32, reason: &str, message: &str) -> Result<()> {
    node.wait_state(vm, ContainerState::ContainerExited, GRACE)?;
    let status = node.cri.container(&vm.container)?;
    let fits = status.exit_code == code && status.reason == reason && status.message.starts_with(message);
    ensure!(fits, "it ended as {} {} `{}`", status.exit_code, status.reason, status.message);
    Ok(())
}
