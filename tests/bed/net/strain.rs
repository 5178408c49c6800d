//! A daemon under strain: strangers at the hand-off socket, pods that wait for a plugin, a spawner that is gone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use proto::tap::{Client, List, PodPhase, Reply, Request};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::command;
use tests::guest::Guest;
use tests::net_node::{NetNode, QEMU, Taps, pod_id};
use tests::pace::at_worst;
use tests::wait::{wait_for, wait_until};
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
/// For what needs no plugin, on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// What kubelet gives the whole of its question about the node, of which this is a part.
const QUICK: Duration = Duration::from_secs(10);
/// What the plugin is given: a question that waited for it would take longer than [`QUICK`] however busy the machine is.
const PLUGIN: u64 = 12 * at_worst(QUICK).as_secs();
/// Refusals after which a storm is one.
const STORM: u64 = 5_000;
/// Pods that are asked for at once: more than the daemon once had connections.
const PODS: u32 = 80;

pub(super) const CASES: &[Case] = &[
    Case { name: "net::a_storm_on_the_hand_off_socket_stops_no_machine", deadline: DEADLINE, run: storm },
    Case { name: "net::pods_that_wait_for_a_plugin_leave_the_node_ready", deadline: DEADLINE, run: waiting },
    Case { name: "net::a_dead_spawner_ends_the_daemon_and_costs_no_pod", deadline: DEADLINE, run: dead_spawner },
    Case {
        name: "net::plugins_are_killed_before_the_daemon_when_memory_runs_out",
        deadline: DEADLINE,
        run: out_of_memory,
    },
];

/// A QEMU that is taken over connects as often as it can, and keeps what it gets.
struct Storm(Child);

impl Storm {
    fn start(bed: &Bed, node: &NetNode) -> Result<Self> {
        let mut storm = command(bed.itself(), ["storm"]);
        storm.arg(node.handoff_socket()).uid(QEMU.uid).gid(QEMU.gid).stdin(Stdio::null());
        Ok(Self(storm.spawn()?))
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn storm(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let nets = (1..=3).map(|n| Ok((pod_id(n)?, node.attach(&pod_id(n)?)?))).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let storms = [Storm::start(bed, &node)?, Storm::start(bed, &node)?];
    wait_until("storm", SOON, || node.status().is_ok_and(|status| status.tokens_refused > STORM))?;
    for (n, (pod, net)) in nets.iter().enumerate() {
        let nic = net.nics.first().context("no NIC")?;
        Guest::start(bed, &node, pod, nic, &format!("guest{n}")).context("in the storm")?.udhcpc()?;
    }
    let refused = node.status()?.tokens_refused;
    wait_until("more of the storm", SOON, || node.status().is_ok_and(|status| status.tokens_refused > refused))?;
    drop(storms);
    let lines = node.tapmanager.log()?.matches("peers refused at the hand-off").count();
    // Once in ten seconds.
    let most = begun.elapsed().as_secs() / 10 + 1;
    ensure!((1..=most).contains(&lines.try_into()?), "the storm is told of {lines} times, of {most}");
    wait_until("end of the storm's connections", SOON, || node.tapmanager.descriptors().is_ok_and(|open| open < 100))
}

/// A plugin whose ADD waits until somebody opens `gate`.
fn gated(dir: &Path, gate: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    mkfifo(gate, Mode::S_IRWXU)?;
    let bridge = cni::debian_plugins().join("bridge");
    let wait = format!("[ \"$CNI_COMMAND\" = ADD ] && : < {}", gate.display());
    let path = dir.join("gated");
    fs::write(&path, format!("#!/bin/sh\n{wait}\nexec {}\n", bridge.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    // The bridge plugin starts its IPAM plugin from the same directories.
    std::os::unix::fs::symlink(cni::debian_plugins().join("host-local"), dir.join("host-local"))?;
    Ok(())
}

fn waiting(bed: &Bed) -> Result<()> {
    let (dir, gate) = (bed.dir.join("plugins"), bed.dir.join("gate"));
    gated(&dir, &gate)?;
    let conflist = json!({"cniVersion": "1.0.0", "name": "vtnet", "plugins": [{
        "type": "gated", "bridge": "cni0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }]});
    let node = NetNode::configured(bed, &conflist.to_string(), &dir, &format!("cni_deadline_s = {PLUGIN}"))?;
    let before = World::look()?;
    let taps: &Taps = &node;
    let quick = Client::new(taps.client().path(), at_worst(QUICK));
    thread::scope(|scope| {
        let attaches: Vec<_> = (0..PODS).map(|n| scope.spawn(move || taps.attach(&pod_id(n)?))).collect();
        let asked = || -> Result<usize> {
            match quick.call(&Request::List(List::default()))? {
                Reply::Pods(page) => Ok(page.pods.iter().filter(|pod| pod.phase == PodPhase::Attaching).count()),
                other => Err(anyhow!("not a list: {other:?}")),
            }
        };
        wait_for("pods that wait for their plugin", SOON, || Ok((asked()? == PODS as usize).then_some(())))?;
        let Reply::Status(status) = quick.call(&Request::Status)? else { return Err(anyhow!("not a state")) };
        ensure!(status.ready && status.pods == u64::from(PODS), "while they wait: {status:?}");
        // Open for all of them, those that have not come to it yet included.
        let open = OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&gate)?;
        let attached = attaches.into_iter().map(|attach| attach.join().map_err(|_| anyhow!("a client panicked"))?);
        let attached = attached.collect::<Result<Vec<_>>>()?;
        drop(open);
        ensure!(attached.len() == PODS as usize, "{} pods were attached", attached.len());
        let detaches: Vec<_> = (0..PODS).map(|n| scope.spawn(move || taps.detach(&pod_id(n)?))).collect();
        detaches.into_iter().try_for_each(|detach| detach.join().map_err(|_| anyhow!("a client panicked"))?)
    })?;
    before.assert_same()
}

fn dead_spawner(bed: &Bed) -> Result<()> {
    let mut node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let (one, two) = (pod_id(1)?, pod_id(2)?);
    let net = node.attach(&one)?;
    let guest = Guest::start(bed, &node, &one, net.nics.first().context("no NIC")?, "one")?;
    guest.udhcpc()?;
    kill(spawner(&node)?, Signal::SIGKILL)?;
    let code = node.tapmanager.ended(SOON)?;
    ensure!(code == Some(70), "ended with {code:?}");
    let log = node.tapmanager.log()?;
    ensure!(log.contains("the process that starts CNI plugins has ended"), "the log does not say why");
    guest.ping("10.77.0.1".parse()?).context("without the daemon")?;
    node.tapmanager.start_again()?;
    node.wait_ready()?;
    ensure!(node.attach(&one)? == net, "the restarted daemon says something else of the pod");
    node.attach(&two).context("with a new spawner")?;
    Ok(())
}

/// The other process of tapmanager.
fn spawner(node: &NetNode) -> Result<Pid> {
    let daemon = node.tapmanager.pid()?;
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children"))?;
    let spawner = children.trim().parse().with_context(|| format!("not one child: `{children}`"))?;
    Ok(Pid::from_raw(spawner))
}

fn out_of_memory(bed: &Bed) -> Result<()> {
    // Inherited, as from systemd with `OOMScoreAdjust=`: any other number than 0 shows it.
    fs::write("/proc/self/oom_score_adj", "300")?;
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let score = |pid: Pid| -> Result<String> { Ok(fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?) };
    ensure!(score(Pid::from_raw(node.tapmanager.pid()?.try_into()?))?.trim() == "300", "not the daemon's any more");
    ensure!(score(spawner(&node)?)?.trim() == "0", "plugins inherit what the daemon is given");
    Ok(())
}
