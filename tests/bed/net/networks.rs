//! Several networks in one pod: asked for by its annotation, and made by a meta plugin in one ADD.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::tap::{NetworkAsk, Nic, PodNet, Reply, Request};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni::{self, NETWORK, Network};
use tests::command::{TOOL_DEADLINE, finish};
use tests::guest::{Guest, ping};
use tests::net_node::{NetNode, attach, pod_id};
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "net::two_networks_by_annotation", deadline: DEADLINE, run: by_annotation },
    Case { name: "net::two_networks_by_a_meta_plugin", deadline: DEADLINE, run: by_meta_plugin },
    Case { name: "net::a_meta_plugin_tried_out_shows_all_its_networks", deadline: DEADLINE, run: tried_out },
    Case { name: "net::a_network_that_is_not_there_is_refused_by_name", deadline: DEADLINE, run: unknown },
];

/// The second network: a bridge of its own, without a default route.
const SECOND: &str = "blue";
const FIRST_GATEWAY: &str = "10.77.0.1";
const SECOND_GATEWAY: &str = "10.88.0.1";
/// Stands for Multus, which is to be had neither as a Go module nor as a Debian package: it does what Multus does as far
/// as a runtime sees it. The forms of what it leaves are Multus' own (4.2), as `tapmanager`'s tests of them are.
const META_PLUGIN: &str = include_str!("multus.sh");

fn by_annotation(bed: &Bed) -> Result<()> {
    let plugins = cni::debian_plugins();
    fs::write("/etc/cni/net.d/20-blue.conflist", second().to_string())?;
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &plugins)?;
    let mut ask = attach(&pod_id(1)?);
    ask.networks = vec![network(None), network(Some(SECOND))];
    whole(bed, node, &ask)
}

fn by_meta_plugin(bed: &Bed) -> Result<()> {
    let plugins = plugins_with_meta(bed)?;
    let node = NetNode::start(bed, &meta_list().to_string(), &plugins)?;
    whole(bed, node, &attach(&pod_id(1)?))
}

/// `attach --conf`: the private daemon reads what the meta plugin leaves on the node.
fn tried_out(bed: &Bed) -> Result<()> {
    let (config, conf) = (bed.dir.join("node.toml"), bed.dir.join("10-meta.conflist"));
    fs::write(&config, format!("cni_plugin_dirs = [{:?}]\n", plugins_with_meta(bed)?))?;
    fs::write(&conf, meta_list().to_string())?;
    let mut tool = Command::new(bed.program("tapmanager"));
    tool.args(["attach", "--output", "json", "--config"]).arg(&config).arg("--conf").arg(&conf);
    let shown = finish(&mut tool, TOOL_DEADLINE)?;
    ensure!(shown.code == Some(0), "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    let names: Vec<_> = shown["nics"].as_array().into_iter().flatten().filter_map(|nic| nic["name"].as_str()).collect();
    ensure!(names == ["eth0", "net1"], "not both: {shown:#}");
    Ok(())
}

fn meta_list() -> Value {
    let delegate = |list: Value| {
        let mut plugin = list["plugins"][0].clone();
        plugin["name"] = list["name"].clone();
        plugin
    };
    json!({
        "cniVersion": "1.0.0", "name": NETWORK,
        "plugins": [{
            "type": "multus", "cniDir": "/var/lib/cni/multus",
            "delegates": [delegate(Network::BRIDGE.conflist()), delegate(second())],
        }],
    })
}

/// Attach, a guest with a NIC on each network, a restart of the daemon, Detach.
fn whole(bed: &Bed, mut node: NetNode, ask: &proto::tap::Attach) -> Result<()> {
    let before = World::look()?;
    let net = node.attach_as(ask.clone())?;
    let [first, second] = net.nics.as_slice() else { bail!("not two NICs: {net:?}") };
    ensure!((first.name.as_str(), second.name.as_str()) == ("eth0", "net1"), "named otherwise: {net:?}");
    ensure!(second.network == SECOND, "of another network: {second:?}");
    let has_default = |nic: &Nic| nic.routes.iter().any(|route| route.dst.prefix() == 0);
    ensure!(has_default(first) && !has_default(second), "the default route is the first network's alone: {net:?}");

    let guest = Guest::with_all(bed, &node, &ask.pod, &net.nics, "guest")?;
    for (link, nic, gateway) in [("eth0", first, FIRST_GATEWAY), ("eth1", second, SECOND_GATEWAY)] {
        guest.udhcpc_on(link)?;
        let gateway: IpAddr = gateway.parse()?;
        guest.ping(gateway)?;
        let route = guest.run(&format!("ip route get {gateway}"))?;
        ensure!(route.contains(&format!("dev {link} ")), "by the other NIC: {route}");
        let own = nic.addresses.iter().find(|own| own.is_ipv4()).context("no IPv4 address")?.ip();
        ensure!(
            guest.run(&format!("ip -o -4 addr show dev {link}"))?.contains(&format!(" {own}/")),
            "not {own} on {link}"
        );
        ping(None, own)?;
    }
    ensure!(guest.run("ip route show default")?.lines().count() == 1, "not one default route");

    node.tapmanager.kill9()?;
    node.tapmanager.start_again()?;
    node.wait_ready()?;
    ensure!(known(&node, ask)? == net.nics, "names, order and addresses changed with a restart");
    guest.udhcpc_on("eth1").context("from the daemon's second life")?;

    guest.kill()?;
    node.detach(&ask.pod)?;
    let daemon = |thing: &str| {
        thing.starts_with("process") && (thing.ends_with(" tapmanager") || thing.ends_with(" tap-spawner"))
    };
    before.assert_same_but(|thing| thing == "link cni0" || thing == "link cni1" || daemon(thing) || kept(thing))
}

/// The directories and files that `host-local` keeps of the second network, and that of the meta plugin.
fn kept(thing: &str) -> bool {
    let addresses = format!("file /var/lib/cni/networks/{SECOND}");
    ["", "/lock", "/last_reserved_ip.0"].iter().any(|end| thing == format!("{addresses}{end}"))
        || thing.starts_with("file /var/lib/cni/multus") && Path::new(thing.trim_start_matches("file ")).is_dir()
}

fn unknown(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let before = World::look()?;
    let mut ask = attach(&pod_id(1)?);
    ask.networks = vec![network(None), network(Some("nowhere"))];
    let refused = node.attach_as(ask).err().context("a pod got a network that is not there")?;
    ensure!(format!("{refused:#}").contains("`nowhere`"), "not by name: {refused:#}");
    before.assert_same()
}

fn known(node: &NetNode, ask: &proto::tap::Attach) -> Result<Vec<Nic>> {
    let Reply::Attached(PodNet { nics, .. }) = node.client().call(&Request::Attach(ask.clone()))? else {
        bail!("not an answer to attach")
    };
    Ok(nics)
}

fn network(name: Option<&str>) -> NetworkAsk {
    NetworkAsk { network: name.map(str::to_owned), ..NetworkAsk::default() }
}

fn second() -> Value {
    let ipam =
        json!({"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "10.98.0.0/16"}]});
    let bridge = json!({"type": "bridge", "bridge": "cni1", "isGateway": true, "ipam": ipam});
    json!({"cniVersion": "1.0.0", "name": SECOND, "plugins": [bridge]})
}

fn plugins_with_meta(bed: &Bed) -> Result<PathBuf> {
    cni::with_plugin(bed, &cni::debian_plugins(), ("multus", META_PLUGIN))
}
