//! Who gets a pod's descriptors: QEMU's user through vmwrapper with a fresh token, once, and nobody else.

use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proto::tap::Token;
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::guest::{Guest, vmwrapper};
use tests::net_node::{NetNode, QEMU, pod_id};
use tests::wait::wait_until;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "net::a_token_works_once_and_not_for_others", deadline: DEADLINE, run: tokens },
    Case { name: "net::only_vmwrapper_as_qemus_user_may_get", deadline: DEADLINE, run: peers },
    Case { name: "net::a_dead_emulator_makes_room_for_the_next", deadline: DEADLINE, run: next_start },
    Case { name: "net::the_daemon_may_die_while_a_guest_runs", deadline: DEADLINE, run: killed_daemon },
];

fn tokens(bed: &Bed) -> Result<()> {
    let plugins = cni::debian_plugins();
    let mut node = NetNode::configured(bed, &Network::BRIDGE.conflist().to_string(), &plugins, "arm_ttl_s = 1")?;
    let (one, two) = (pod_id(1)?, pod_id(2)?);
    let net = node.attach(&one)?;
    node.attach(&two)?;
    let lapsed = node.arm(&one)?;
    let armed = Instant::now();
    wait_until("end of the token's life", DEADLINE, || armed.elapsed() > Duration::from_millis(1200))?;
    refused(&wrapped(bed, &node, &lapsed)?, "lapsed token")?;
    // The others live for longer than a hand-off takes.
    node.reconfigure(bed, &plugins, "")?;

    let unknown: Token = "0123456789abcdef0123456789abcdef".parse()?;
    refused(&wrapped(bed, &node, &unknown)?, "unknown token")?;

    let used = node.arm(&one)?;
    accepted(&wrapped(bed, &node, &used)?)?;
    refused(&wrapped(bed, &node, &used)?, "used token")?;

    let voided = node.arm(&one)?;
    let fresh = node.arm(&one)?;
    refused(&wrapped(bed, &node, &voided)?, "token that a later one voided")?;
    accepted(&wrapped(bed, &node, &fresh)?)?;

    let orphan = node.arm(&two)?;
    node.detach(&two)?;
    refused(&wrapped(bed, &node, &orphan)?, "token of a pod that is gone")?;

    ensure!(node.arm(&two).is_err(), "a pod that is gone was armed");
    ensure!(node.status()?.tokens_refused == 4, "refused: {}", node.status()?.tokens_refused);
    // The pod itself is none the worse for all that.
    Guest::start(bed, &node, &one, net.nics.first().context("no NIC")?, "one")?.udhcpc()?;
    Ok(())
}

fn peers(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let pod = pod_id(1)?;
    node.attach(&pod)?;

    // Not vmwrapper, but QEMU's user.
    let token = node.arm(&pod)?;
    let other = finish(get(bed, &node, &token).uid(QEMU.uid).gid(QEMU.gid), TOOL_DEADLINE)?;
    refused(&other, "foreign executable")?;

    // vmwrapper, but root: who may open the socket is not yet who may get.
    let mut as_root = vmwrapper(bed, &node, &token);
    refused(&finish(as_root.uid(0).gid(0), TOOL_DEADLINE)?, "root")?;

    // Neither user nor group: the socket itself is shut.
    let nobody = finish(get(bed, &node, &token).uid(65534).gid(65534), TOOL_DEADLINE)?;
    ensure!(nobody.code != Some(0) && nobody.stderr.contains("connect"), "nobody got in: {}", nobody.stderr);
    // None of them spent the token.
    accepted(&wrapped(bed, &node, &token)?)?;

    // The control socket is root's.
    let control = node.client().path().to_owned();
    let asked = finish(
        command(bed.itself(), ["get"]).arg(&control).arg(token.as_str()).uid(QEMU.uid).gid(QEMU.gid),
        TOOL_DEADLINE,
    )?;
    ensure!(
        asked.code != Some(0) && asked.stderr.contains("connect"),
        "QEMU's user reached the control socket: {}",
        asked.stderr
    );
    Ok(())
}

fn next_start(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let pod = pod_id(1)?;
    let net = node.attach(&pod)?;
    let nic = net.nics.first().context("no NIC")?;
    let guest = Guest::start(bed, &node, &pod, nic, "one")?;
    guest.udhcpc()?;

    // While it runs, nobody else gets its tap.
    let token = node.arm(&pod)?;
    refused(&wrapped(bed, &node, &token)?, "second emulator")?;

    guest.kill()?;
    let again = Guest::start(bed, &node, &pod, nic, "one")?;
    again.udhcpc()?;
    again.ping("10.77.0.1".parse()?)
}

/// A guest does not notice that the daemon is killed; its lease is renewed by the next one, and detach leaves nothing.
fn killed_daemon(bed: &Bed) -> Result<()> {
    let network = Network { masquerade: true, ..Network::BRIDGE };
    let mut node = NetNode::start(bed, &network.conflist().to_string(), &cni::debian_plugins())?;
    let pod = pod_id(1)?;
    let net = node.attach(&pod)?;
    let nic = net.nics.first().context("no NIC")?;
    let guest = Guest::start(bed, &node, &pod, nic, "one")?;
    let lease = guest.udhcpc()?;
    let gateway = "10.77.0.1".parse()?;

    node.tapmanager.kill9()?;
    guest.ping(gateway).context("without the daemon")?;
    node.tapmanager.start_again()?;
    node.wait_ready()?;
    guest.ping(gateway).context("after its restart")?;
    ensure!(node.attach(&pod)? == net, "the restarted daemon says something else of the pod");
    ensure!(guest.udhcpc()? == lease, "the restarted daemon gave another lease");

    guest.kill()?;
    let again = Guest::start(bed, &node, &pod, nic, "one")?;
    again.udhcpc().context("a start after the restart")?;
    again.kill()?;
    node.detach(&pod)?;
    let rules = tests::command::sh("iptables-save")?;
    ensure!(!rules.contains("MASQUERADE"), "rules are left:\n{rules}");
    Ok(())
}

/// Runs vmwrapper to its end: with no tap on standard input the fake emulator ends at once, after the hand-off.
fn wrapped(bed: &Bed, node: &NetNode, token: &Token) -> Result<Ended> {
    finish(&mut vmwrapper(bed, node, token), TOOL_DEADLINE)
}

fn get(bed: &Bed, node: &NetNode, token: &Token) -> std::process::Command {
    command(bed.itself(), ["get".as_ref(), node.handoff_socket().as_os_str(), token.as_str().as_ref()])
}

fn accepted(ended: &Ended) -> Result<()> {
    ensure!(ended.stdout.contains("relaying"), "refused a good token: {}", ended.stderr);
    Ok(())
}

fn refused(ended: &Ended, whose: &str) -> Result<()> {
    ensure!(ended.code != Some(0) && !ended.stdout.contains("relaying"), "{whose} was accepted");
    ensure!(ended.stderr.lines().count() == 1, "{whose}: not one line: {}", ended.stderr);
    Ok(())
}
