//! Tier `restart`: each daemon is killed without warning while a guest runs. Nothing but the daemon is lost.

mod cut_start;
mod start_steps;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{ContainerState, ListPodSandboxRequest, PodSandboxState, StopPodSandboxRequest};
use tests::case::{Bed, Case};
use tests::counting::{SCRIPT, complete, counts};
use tests::libvirt::{only_qemu, running_domains, virsh};
use tests::net_node::NetNode;
use tests::node::{BOOT_DEADLINE, Node, SHUTDOWN, Vm};
use tests::pings::Pings;
use tests::wait::{wait_for, wait_until};
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);

/// The cases of this tier.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().chain(start_steps::CASES).chain(cut_start::CASES).copied()
}

const CASES: &[Case] = &[
    Case { name: "restart::controld", deadline: DEADLINE, run: |bed| killed(bed, Which::Controld) },
    Case { name: "restart::tapmanager", deadline: DEADLINE, run: |bed| killed(bed, Which::Tapmanager) },
    Case { name: "restart::libvirtd", deadline: DEADLINE, run: |bed| killed(bed, Which::Libvirtd) },
    Case { name: "restart::controld_at_each_step_of_a_sandbox", deadline: DEADLINE, run: steps },
    Case { name: "restart::no_console_line_is_lost_or_doubled", deadline: DEADLINE, run: console },
    Case { name: "restart::what_ended_unseen_is_found_ended", deadline: DEADLINE, run: unseen },
    Case { name: "restart::a_dead_virtlogd_costs_console_only", deadline: DEADLINE, run: virtlogd },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Controld,
    Tapmanager,
    Libvirtd,
}

/// Killed and started again while the guest is pinged: no ping is lost beyond one interval, ids and states are the
/// same, the lease is renewed, a stop works, nothing is left.
fn killed(bed: &Bed, which: Which) -> Result<()> {
    let mut node = Node::start(bed)?;
    node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let vm = node.boot_vm(bed, "restart", "")?;
    let qemu = only_qemu()?;
    let known = (node.cri.container(&vm.container)?, node.cri.sandbox(&vm.sandbox)?);
    let pings = Pings::start(&bed.dir, vm.ip)?;
    pings.wait_answers(5)?;

    for _twice in 0..2 {
        match which {
            Which::Controld => node.controld.kill9()?,
            Which::Tapmanager => node.net.tapmanager.kill9()?,
            Which::Libvirtd => node.libvirt.libvirtd.kill9()?,
        }
        pings.wait_answers(5)?;
        match which {
            Which::Controld => node.controld.start_again()?,
            Which::Tapmanager => node.net.tapmanager.start_again()?,
            Which::Libvirtd => {
                node.libvirt.libvirtd.start_again()?;
                node.libvirt.wait_ready()?;
            }
        }
        node.wait_ready()?;
        pings.wait_answers(5)?;
    }

    pings.stop_and_count_lost()?;
    ensure!(only_qemu()? == qemu, "another QEMU");
    let now = (node.cri.container(&vm.container)?, node.cri.sandbox(&vm.sandbox)?);
    ensure!(now == known, "known before: {known:?}\nknown now: {now:?}");
    renews(&node, &vm)?;
    node.remove_vm(&vm, GRACE)?;
    fs::remove_dir_all(&vm.pod.log_directory)?;
    // The daemon is a new process, and libvirtd writes a status file anew.
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

/// controld is killed while the network is made, and right after each of its answers: what was answered holds, and what
/// was not is gone, at tapmanager too.
fn steps(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    node.cri.remove_sandbox(&node.cri.run_sandbox(&node.pod("first")?)?)?;
    let before = World::settled()?;
    let pod = node.pod("steps")?;
    let Node { cri, net, controld, .. } = &mut node;
    std::thread::scope(|scope| {
        let run = scope.spawn(|| cri.run_sandbox(&pod));
        wait_until("a pod at tapmanager", GRACE, || !at_tapmanager(net).unwrap_or_default().is_empty())?;
        controld.kill9()?;
        // Killed before the answer, as a rule; what it was is of no matter to what is left.
        drop(run.join());
        anyhow::Ok(())
    })?;
    node.controld.start_again()?;
    node.wait_ready()?;
    let ready = |node: &Node| -> Result<Vec<String>> {
        let list = node
            .cri
            .call(|mut client| async move { client.list_pod_sandbox(ListPodSandboxRequest::default()).await })?;
        let ready = list.items.into_iter().filter(|item| item.state() == PodSandboxState::SandboxReady);
        Ok(ready.map(|item| item.id).collect())
    };
    wait_until(
        "books that agree",
        GRACE,
        || matches!((ready(&node), at_tapmanager(&node.net)), (Ok(ours), Ok(theirs)) if ours == theirs),
    )?;
    for left in ready(&node)? {
        node.cri.remove_sandbox(&left)?;
    }

    let sandbox = node.cri.run_sandbox(&pod)?;
    node.restart_controld()?;
    ensure!(ready(&node)? == [sandbox.clone()], "a sandbox that was answered is {:?}", ready(&node)?);
    ensure!(node.cri.run_sandbox(&pod)? == sandbox, "another sandbox for the same pod");
    let id = sandbox.clone();
    node.cri.call(|mut client| async move {
        client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id }).await
    })?;
    node.restart_controld()?;
    ensure!(node.cri.sandbox(&sandbox)?.state() == PodSandboxState::SandboxNotready, "a stopped sandbox is ready");
    ensure!(at_tapmanager(&node.net)?.is_empty(), "a stopped sandbox has a network");
    node.cri.remove_sandbox(&sandbox)?;
    node.restart_controld()?;
    ensure!(node.cri.sandbox(&sandbox).is_err(), "a removed sandbox is there again");
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

fn at_tapmanager(net: &NetNode) -> Result<Vec<String>> {
    Ok(net.client().pods(None)?.into_iter().map(|pod| pod.pod.to_string()).collect())
}

/// A guest counts on its console while controld is killed again and again: each number is in the log, once.
fn console(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.start_vm(bed, "counting", SCRIPT)?;
    vm.wait_log("count 20.", BOOT_DEADLINE)?;
    for _again in 0..5 {
        let seen = last_count(&vm)?;
        node.controld.kill9()?;
        // While it is dead the guest goes on; there is nothing to be seen of it but time.
        let dead = std::time::Instant::now();
        wait_until("a second without controld", GRACE, || dead.elapsed() > Duration::from_secs(1))?;
        node.controld.start_again()?;
        node.wait_ready()?;
        wait_for("new lines in the log", GRACE, || Ok((last_count(&vm)? > seen + 50).then_some(())))?;
    }
    node.cri.stop(&vm.container, SHUTDOWN)?;
    vm.wait_log("tiny: stopping", GRACE)?;
    let lines = complete(&vm.log_text()?)?;
    ensure!(lines > 300, "only {lines} lines");
    node.remove_vm(&vm, GRACE)
}

/// A guest that powers off, and a QEMU that is killed, while controld is not there.
fn unseen(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let off = node.boot_vm(bed, "off", "")?;
    let domain = running_domains()?.concat();
    let dead = node.start_vm(bed, "dead", "")?;
    let other = running_domains()?.into_iter().find(|name| *name != domain).context("no second domain")?;
    node.controld.kill9()?;
    virsh(&format!("shutdown --mode acpi {domain}"))?;
    let pid = fs::read_to_string(format!("/run/libvirt/qemu/{other}.pid"))?;
    kill(Pid::from_raw(pid.trim().parse()?), Signal::SIGKILL)?;
    wait_for("end of both machines", BOOT_DEADLINE, || Ok(running_domains()?.is_empty().then_some(())))?;
    node.controld.start_again()?;
    node.wait_ready()?;
    for vm in [&off, &dead] {
        node.wait_state(vm, ContainerState::ContainerExited, GRACE)?;
        ensure!(node.cri.sandbox(&vm.sandbox)?.state() == PodSandboxState::SandboxReady, "the sandbox is not ready");
    }
    let status = node.cri.container(&dead.container)?;
    ensure!(status.exit_code != 0, "a killed QEMU is {} {}", status.exit_code, status.reason);
    ensure!(off.log_text()?.contains("tiny: stopping"), "the end of the console is missing:\n{}", off.log_text()?);
    node.remove_vm(&off, GRACE)?;
    node.remove_vm(&dead, GRACE)
}

fn virtlogd(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "virtlogd", "")?;
    let pings = Pings::start(&bed.dir, vm.ip)?;
    pings.wait_answers(3)?;
    node.libvirt.virtlogd.kill9()?;
    pings.wait_answers(5)?;
    vm.info().context("the guest without virtlogd")?;
    // controld hears the console itself now; another controld does, too, and whether virtlogd is back or not.
    let heard = |node: &Node, times: usize| {
        let told = "virtlogd does not write this console's log any more";
        wait_until("a scribe", GRACE, || node.controld.log().is_ok_and(|log| log.matches(told).count() == times))
    };
    heard(&node, 1)?;
    renews(&node, &vm).context("heard by controld")?;
    node.restart_controld()?;
    heard(&node, 2)?;
    renews(&node, &vm).context("heard by the next controld")?;
    node.libvirt.virtlogd.start_again()?;
    renews(&node, &vm).context("heard with a virtlogd that knows nothing of the machine")?;
    pings.wait_answers(5)?;
    pings.stop_and_count_lost()?;
    node.cri.stop(&vm.container, SHUTDOWN)?;
    let status = node.cri.container(&vm.container)?;
    ensure!(status.exit_code == 0, "stopped by {}: {}", status.reason, status.message);
    node.remove_vm(&vm, GRACE)
}

/// The guest's DHCP client renews its lease when told, by whoever serves it now.
fn renews(node: &Node, vm: &Vm) -> Result<()> {
    let leases = |log: &str| log.matches(" renew uptime").count();
    let before = leases(&vm.log_text()?);
    let order = ["exec", "--sync", &vm.container, "sh", "-c", "kill -USR1 $(cat /run/net/eth0.pid)"];
    wait_until("the client for addresses", BOOT_DEADLINE, || {
        node.crictl(&order).is_ok_and(|ended| ended.code == Some(0))
    })?;
    wait_until("renewed lease", GRACE, || vm.log_text().is_ok_and(|log| leases(&log) > before))
}

fn last_count(vm: &Vm) -> Result<usize> {
    counts(&vm.log_text()?).last().copied().context("no count yet")
}
