//! A CNI plugin that hangs: it holds up its own pods, and neither the daemon's start nor any other pod.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::tap::{Attach, List, NetworkAsk, PodId, PodSummary, Reply, Request};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::net_node::{NetNode, attach, pod_id};
use tests::wait::wait_for;
use tests::world::World;

/// More than turns to take pods away after a restart.
const HANGING: u32 = 9;
const GRACE: Duration = Duration::from_secs(60);
/// While this directory is there the plugin's DEL notes its pod in it, and does not end.
const STUCK: &str = "/run/stuck";
const FREED: &str = "/run/freed";

pub(super) const CASES: &[Case] = &[Case {
    name: "net::a_plugin_that_hangs_at_a_restart_holds_up_its_own_pods_alone",
    deadline: Duration::from_secs(300),
    run: at_a_restart,
}];

fn at_a_restart(bed: &Bed) -> Result<()> {
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
    let mut node = NetNode::start(bed, &conflist.to_string(), &plugins)?;
    (conflist["name"], conflist["plugins"][0]["type"]) = ("sticky".into(), "sticky".into());
    fs::write("/etc/cni/net.d/20-sticky.conflist", conflist.to_string())?;
    // What plugins make once and for all is there before anything is counted.
    let before = {
        let warm = pod_id(0)?;
        for ask in [attach(&warm), on_sticky(&warm)] {
            node.attach_as(ask)?;
            node.detach(&warm)?;
        }
        World::look()?
    };
    let stuck: Vec<PodId> = (1..=HANGING).map(pod_id).collect::<Result<_>>()?;
    for pod in &stuck {
        node.attach_as(on_sticky(pod))?;
    }
    let running = pod_id(100)?;
    let net = node.attach(&running)?;
    fs::create_dir(STUCK)?;
    let detaches: Vec<_> = stuck
        .iter()
        .map(|pod| {
            let (taps, pod) = ((*node).clone(), pod.clone());
            std::thread::spawn(move || taps.detach(&pod).is_ok())
        })
        .collect();
    // From then on it is on record that they are on their way out.
    let all_hang = || Ok((fs::read_dir(STUCK)?.count() == stuck.len()).then_some(()));
    wait_for("all of them to hang", GRACE, all_hang)?;

    node.tapmanager.kill9()?;
    for detach in detaches {
        ensure!(!detach.join().unwrap_or(true), "a Detach was answered by a daemon that was killed in it");
    }
    node.tapmanager.start_again()?;
    // Not one of them has ended yet.
    node.wait_ready()?;
    let pods = list(&node)?;
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
    ensure!(list(&node)?.iter().filter(|pod| pod.recovering).count() == stuck.len(), "some do not hang any more");

    // At once, whoever is about to write into it.
    fs::rename(STUCK, FREED)?;
    for pod in &stuck {
        node.detach(pod)?;
    }
    ensure!(list(&node)?.is_empty(), "pods are left");
    fs::remove_dir_all(FREED)?;
    before.assert_same_but(|thing| thing.starts_with("process "))
}

fn on_sticky(pod: &PodId) -> Attach {
    let ask = NetworkAsk { network: Some("sticky".to_owned()), ..NetworkAsk::default() };
    Attach { networks: vec![ask], ..attach(pod) }
}

fn list(node: &NetNode) -> Result<Vec<PodSummary>> {
    match node.client().call(&Request::List(List::default()))? {
        Reply::Pods(page) => Ok(page.pods),
        other => bail!("not an answer to list: {other:?}"),
    }
}
