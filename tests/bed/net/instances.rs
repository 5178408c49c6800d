//! Two daemons on one node: on the same state the second is refused; on its own it takes nothing from the first.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::daemon::Daemon;
use tests::guest::Guest;
use tests::net_node::{NetNode, Taps, config, pod_id};

pub(super) const CASES: &[Case] =
    &[Case { name: "net::a_second_daemon_takes_nothing_from_the_first", deadline: Duration::from_secs(480), run }];

fn run(bed: &Bed) -> Result<()> {
    let plugins = cni::debian_plugins();
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &plugins)?;
    let pod = pod_id(1)?;
    let net = node.attach(&pod)?;

    let same = bed.dir.join("same.toml");
    fs::write(&same, config(bed, &plugins, ""))?;
    let refused = finish(command(bed.program("tapmanager"), ["run", "--config"]).arg(&same), TOOL_DEADLINE)?;
    let told = refused.stderr.contains("another tapmanager runs on `/var/lib/virtlet/net`");
    ensure!(refused.code != Some(0) && told, "{refused:?}");

    let (state, run_dir, own) = (bed.dir.join("state"), bed.dir.join("run"), bed.dir.join("own.toml"));
    let dirs = format!("state_dir = '{}'\nrun_dir = '{}'", state.display(), run_dir.display());
    fs::write(&own, config(bed, &plugins, &dirs))?;
    let words = ["run".as_ref(), "--config".as_ref(), own.as_os_str()];
    let mut second = Daemon::start("second", bed.program("tapmanager"), words, bed.logs().join("second.log"))?;
    let others = Taps::of(&run_dir);
    others.hello(|| second.still_runs())?;
    let report = others.collect()?;
    ensure!(report.removed.is_empty(), "removed: {:?}", report.removed);
    let kept = [format!("namespace `{}`: its owner is unknown", net.netns.display())];
    ensure!(report.kept == kept, "kept: {:?}", report.kept);
    second.terminate()?;

    Guest::start(bed, &node, &pod, net.nics.first().context("no NIC")?, "one")?.udhcpc()?;
    node.detach(&pod)
}
