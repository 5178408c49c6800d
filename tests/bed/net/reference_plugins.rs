//! What the reference plugins leave to a runtime: links that they cannot give back, sizes of packets that they report and do not
//! set, and failures of which their STATUS knows nothing.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni;
use tests::command::sh;
use tests::guest::Guest;
use tests::net_node::{NetNode, pod_id};

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    case("net::host_device_goes_back_though_its_name_is_taken_debian", |bed| taken(bed, cni::debian_plugins())),
    case("net::host_device_goes_back_though_its_name_is_taken_new", |bed| taken(bed, new_plugins(bed)?)),
    case("net::host_device_goes_back_though_its_plugin_is_gone", plugin_is_gone),
    case("net::the_mtu_of_a_route_in_a_result_is_the_guests", route_mtu),
    case("net::adds_that_fail_are_told_where_status_is_well", failed_adds),
];

const fn case(name: &'static str, run: fn(&Bed) -> Result<()>) -> Case {
    Case { name, deadline: DEADLINE, run }
}

fn new_plugins(bed: &Bed) -> Result<PathBuf> {
    bed.config.peer("cni")
}

fn list(version: &str, plugin: &Value) -> String {
    json!({"cniVersion": version, "name": "pods", "plugins": [plugin]}).to_string()
}

fn host_device() -> String {
    let ranges = json!([[{"subnet": "10.77.0.0/24"}]]);
    let ipam = json!({"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]});
    list("1.0.0", &json!({"type": "host-device", "device": "up0", "ipam": ipam}))
}

/// The link that is lent, and one more that can take its name.
fn lay() -> Result<String> {
    sh("ip link add up0 type veth peer name up1")?;
    sh("ip link set up0 up")?;
    mac("up0")
}

fn mac(link: &str) -> Result<String> {
    let shown = sh(&format!("ip -o link show dev {link}"))?;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).map(str::to_owned).with_context(|| format!("no address: {shown}"))
}

fn taken(bed: &Bed, plugins: PathBuf) -> Result<()> {
    let lent = lay()?;
    let node = NetNode::start(bed, &host_device(), &plugins)?;
    let pod = pod_id(1)?;
    node.attach(&pod)?;
    ensure!(sh("ip -o link show dev up0").is_err(), "the link is not in the pod");
    sh("ip link add up0 type veth peer name up2")?;
    node.detach(&pod).context("the pod's end is held up")?;
    ensure!(node.pods()?.is_empty(), "on record: {:?}", node.pods()?);
    ensure!(mac("up0-1")? == lent && mac("up0")? != lent, "the link is not back: {}", sh("ip -o link")?);
    let log = node.tapmanager.log()?;
    let is_told = |line: &str| line.contains("goes back to it under another name") && line.contains("up0-1");
    ensure!(log.lines().any(is_told), "nothing is told of it");
    // The next pod is lent the link that has the name now, and its end finds that free.
    sh("ip link del up0")?;
    sh("ip link set up0-1 name up0")?;
    node.attach(&pod)?;
    node.detach(&pod)?;
    ensure!(mac("up0")? == lent, "not as before: {}", sh("ip -o link")?);
    Ok(())
}

/// What is forgotten although its networks cannot be given back takes no link of the node with it.
fn plugin_is_gone(bed: &Bed) -> Result<()> {
    let lent = lay()?;
    let plugins = cni::own_dir(bed, &new_plugins(bed)?)?;
    let node = NetNode::start(bed, &host_device(), &plugins)?;
    let pod = pod_id(1)?;
    node.attach(&pod)?;
    std::fs::remove_file(plugins.join("host-device"))?;
    ensure!(node.detach(&pod).is_err(), "detached without its plugin");
    sh(&format!("{} forget {pod}", bed.program("tapmanager").display()))?;
    ensure!(mac("up0")? == lent, "the link is not back: {}", sh("ip -o link")?);
    Ok(())
}

fn route_mtu(bed: &Bed) -> Result<()> {
    let routes = json!([{"dst": "0.0.0.0/0", "mtu": 1380}, {"dst": "10.9.0.0/16", "mtu": 1300, "advmss": 1200}]);
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": routes});
    let plugin = json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1450, "ipam": ipam});
    let node = NetNode::start(bed, &list("1.1.0", &plugin), &new_plugins(bed)?)?;
    let pod = pod_id(1)?;
    let net = node.attach(&pod)?;
    let nic = net.nics.first().context("no NIC")?;
    ensure!(nic.mtu == 1300, "{nic:?}");
    let guest = Guest::start(bed, &node, &pod, nic, "one")?;
    let lease = guest.udhcpc()?;
    ensure!(lease.contains("mtu='1300'"), "{lease}");
    let tool = bed.program("tapmanager").display().to_string();
    let explained = sh(&format!("{tool} explain {pod} --output text"))?;
    for told in [
        "mtu 1300 is the least of its routes; the link has 1450",
        "route 0.0.0.0/0 via the gateway mtu 1380",
        "route 10.9.0.0/16 has the advmss 1200, which its guest cannot be told",
    ] {
        ensure!(explained.contains(told), "no `{told}`:\n{explained}");
    }
    let checked = sh(&format!("{tool} check {pod} --output text"))?;
    ensure!(!checked.contains("MTU"), "a difference that is none:\n{checked}");
    guest.kill()?;
    node.detach(&pod)
}

fn failed_adds(bed: &Bed) -> Result<()> {
    let plugin = json!({"type": "bridge", "bridge": "cni0", "ipam": {"type": "dhcp"}});
    let node = NetNode::start(bed, &list("1.1.0", &plugin), &new_plugins(bed)?)?;
    let before = node.status()?;
    ensure!(before.ready && before.reason.is_empty(), "{before:?}");
    for pod in 1..=2 {
        ensure!(node.attach(&pod_id(pod)?).is_err(), "added without the daemon of `dhcp`");
    }
    let after = node.status()?;
    ensure!(after.ready, "STATUS knows of it by now: docs/doctor.md says otherwise: {after:?}");
    ensure!(after.reason.starts_with("the last 2 ADDs of network `pods` failed: "), "{after:?}");
    Ok(())
}
