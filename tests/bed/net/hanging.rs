//! CNI plugins that hang, or still run when their daemon dies: they hold up their own pods, and neither the daemon's start
//! nor any other pod.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::tap::{Attach, NetworkAsk, PodId};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::sh;
use tests::net_node::{NetNode, attach, pod_id};
use tests::wait::wait_for;
use tests::world::World;

/// More than turns to take pods away after a restart.
const HANGING: u32 = 9;
const GRACE: Duration = Duration::from_secs(60);
/// While this directory is there the plugin's DEL notes its pod in it, and does not end.
const STUCK: &str = "/run/stuck";
const FREED: &str = "/run/freed";
/// The case ends what hangs, and not the daemon.
const LONG: &str = "cni_deadline_s = 3600";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "net::a_plugin_that_hangs_at_a_restart_holds_up_its_own_pods_alone",
        deadline: Duration::from_secs(480),
        run: at_a_restart,
    },
    Case { name: "net::plugins_that_hang_take_no_turn_from_others", deadline: Duration::from_secs(480), run: one_turn },
    Case {
        name: "net::a_del_under_way_when_the_daemon_dies_takes_all_away",
        deadline: Duration::from_secs(480),
        run: half_a_del,
    },
];

/// A node with one more network, `sticky`, whose plugin's DEL hangs while [`STUCK`] is there; and what there is on it.
fn with_sticky(bed: &Bed, more: &str) -> Result<(NetNode, World)> {
    let plugins = bed.dir.join("plugins");
    fs::create_dir(&plugins)?;
    for plugin in ["bridge", "host-local", "loopback"] {
        symlink(cni::debian_plugins().join(plugin), plugins.join(plugin))?;
    }
    let sticky = format!(
        "#!/bin/sh\nwhile [ $CNI_COMMAND = DEL ] && [ -d {STUCK} ]; do touch {STUCK}/$CNI_CONTAINERID; sleep 0.1; done\nexec {}/bridge\n",
        plugins.display()
    );
    fs::write(plugins.join("sticky"), sticky)?;
    fs::set_permissions(plugins.join("sticky"), fs::Permissions::from_mode(0o755))?;
    let mut conflist = Network::BRIDGE.conflist();
    let node = NetNode::configured(bed, &conflist.to_string(), &plugins, more)?;
    (conflist["name"], conflist["plugins"][0]["type"]) = ("sticky".into(), "sticky".into());
    fs::write("/etc/cni/net.d/20-sticky.conflist", conflist.to_string())?;
    // What plugins make once and for all is there before anything is counted.
    let warm = pod_id(0)?;
    for ask in [attach(&warm), on_sticky(&warm)] {
        node.attach_as(ask)?;
        node.detach(&warm)?;
    }
    Ok((node, World::settled()?))
}

/// Pods on `sticky`.
fn on_record(node: &NetNode) -> Result<Vec<PodId>> {
    let pods: Vec<PodId> = (1..=HANGING).map(pod_id).collect::<Result<_>>()?;
    for pod in &pods {
        node.attach_as(on_sticky(pod))?;
    }
    Ok(pods)
}

/// Detaches them, and waits until the plugin of each hangs. Each answer is whether that went well.
fn hang(node: &NetNode, pods: &[PodId]) -> Result<Vec<JoinHandle<bool>>> {
    fs::create_dir(STUCK)?;
    let detaches = pods.iter().map(|pod| {
        let (taps, pod) = ((**node).clone(), pod.clone());
        std::thread::spawn(move || taps.detach(&pod).is_ok())
    });
    let detaches = detaches.collect();
    // From then on it is on record that they are on their way out.
    let all_hang = || Ok((fs::read_dir(STUCK)?.count() == pods.len()).then_some(()));
    wait_for("all of them to hang", GRACE, all_hang)?;
    Ok(detaches)
}

/// With one turn for all plugins of the node.
fn one_turn(bed: &Bed) -> Result<()> {
    let (node, before) = with_sticky(bed, &format!("{LONG}\nplugins_at_once = 1"))?;
    let stuck = on_record(&node)?;
    let detaches = hang(&node, &stuck)?;
    let other = pod_id(100)?;
    node.attach(&other).context("another pod meanwhile")?;
    node.detach(&other).context("another pod meanwhile")?;
    ensure!(!detaches.iter().any(JoinHandle::is_finished), "some do not hang any more");
    // At once, whoever is about to write into it.
    fs::rename(STUCK, FREED)?;
    for detach in detaches {
        ensure!(detach.join().unwrap_or(false), "a Detach failed whose plugin only took long");
    }
    ensure!(node.pods()?.is_empty(), "pods are left");
    fs::remove_dir_all(FREED)?;
    before.assert_same_but(|thing| thing.starts_with("process "))
}

fn at_a_restart(bed: &Bed) -> Result<()> {
    let (mut node, before) = with_sticky(bed, LONG)?;
    let stuck = on_record(&node)?;
    let running = pod_id(100)?;
    let net = node.attach(&running)?;
    let detaches = hang(&node, &stuck)?;

    node.tapmanager.kill9()?;
    for detach in detaches {
        ensure!(!detach.join().unwrap_or(true), "a Detach was answered by a daemon that was killed in it");
    }
    node.tapmanager.start_again()?;
    // Not one of them has ended yet.
    node.wait_ready()?;
    let pods = node.pods()?;
    ensure!(pods.len() == stuck.len() + 1, "{} pods are listed", pods.len());
    let recovering = pods.iter().filter(|pod| pod.recovering).map(|pod| &pod.pod);
    ensure!(stuck.iter().all(|pod| recovering.clone().any(|other| other == pod)), "not all that hang are shown so");
    ensure!(node.status()?.ready, "pods can be added");
    node.arm(&running).context("start of a machine")?;
    ensure!(node.attach(&running)? == net, "another network");
    let new = pod_id(101)?;
    node.attach(&new)?;
    node.detach(&new)?;
    node.detach(&running)?;
    ensure!(node.pods()?.iter().filter(|pod| pod.recovering).count() == stuck.len(), "some do not hang any more");

    // At once, whoever is about to write into it.
    fs::rename(STUCK, FREED)?;
    for pod in &stuck {
        node.detach(pod)?;
    }
    ensure!(node.pods()?.is_empty(), "pods are left");
    fs::remove_dir_all(FREED)?;
    before.assert_same_but(|thing| thing.starts_with("process "))
}

/// Bridge with `ipMasq` deletes the pod's link first and its rules afterwards, which it knows by the link's addresses: whoever
/// kills it in between has rules that no later DEL finds.
fn half_a_del(bed: &Bed) -> Result<()> {
    let (real, wrapper) = (bed.dir.join("xtables"), bed.dir.join("wrapper"));
    let tables = fs::canonicalize("/usr/sbin/iptables")?;
    fs::copy(&tables, &real)?;
    let waits = format!(
        "#!/bin/bash\ncase \" $* \" in *\" -D \"*) while [ -d {STUCK} ]; do touch {STUCK}/$$; sleep 0.1; done;; esac\n\
         exec -a \"${{0##*/}}\" {} \"$@\"\n",
        real.display()
    );
    fs::write(&wrapper, waits)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    sh(&format!("mount --bind {} {}", wrapper.display(), tables.display()))?;
    let conflist = Network { masquerade: true, ..Network::BRIDGE }.conflist();
    let mut node = NetNode::configured(bed, &conflist.to_string(), &cni::debian_plugins(), LONG)?;
    let before = {
        let warm = pod_id(0)?;
        node.attach(&warm)?;
        node.detach(&warm)?;
        World::settled()?
    };
    let pod = pod_id(1)?;
    node.attach(&pod)?;
    let rules = || sh("iptables-save -t nat");
    ensure!(rules()?.contains(pod.as_str()), "no rules that could stay: {}", rules()?);
    fs::create_dir(STUCK)?;
    let detach = {
        let (taps, pod) = ((*node).clone(), pod.clone());
        std::thread::spawn(move || taps.detach(&pod).is_ok())
    };
    wait_for("DEL to begin with the rules", GRACE, || Ok(fs::read_dir(STUCK)?.next().map(|_| ())))?;
    ensure!(!sh("ip -o link")?.contains("veth"), "the link is still there, so a repeated DEL would find all");

    node.tapmanager.kill9()?;
    ensure!(!detach.join().unwrap_or(true), "a Detach was answered by a daemon that was killed in it");
    node.tapmanager.start_again()?;
    node.wait_ready()?;
    let other = pod_id(2)?;
    node.attach(&other).context("another pod meanwhile")?;
    ensure!(rules()?.contains(pod.as_str()), "the rules went though their DEL hangs");

    fs::rename(STUCK, FREED)?;
    node.detach(&pod)?;
    node.detach(&other)?;
    ensure!(!rules()?.contains(pod.as_str()), "rules are left: {}", rules()?);
    fs::remove_dir_all(FREED)?;
    before.assert_same_but(|thing| thing.starts_with("process "))?;
    sh(&format!("umount {}", tables.display()))?;
    Ok(())
}

fn on_sticky(pod: &PodId) -> Attach {
    let ask = NetworkAsk { network: Some("sticky".to_owned()), ..NetworkAsk::default() };
    Attach { networks: vec![ask], ..attach(pod) }
}
