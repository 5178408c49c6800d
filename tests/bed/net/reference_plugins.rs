//! What the reference plugins leave to a runtime: sizes of packets that they report and do not set.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::guest::Guest;
use tests::net_node::{NetNode, pod_id};

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[case("net::the_mtu_of_a_route_in_a_result_is_the_guests", route_mtu)];

const fn case(name: &'static str, run: fn(&Bed) -> Result<()>) -> Case {
    Case { name, deadline: DEADLINE, run }
}

fn new_plugins(bed: &Bed) -> Result<PathBuf> {
    bed.config.peer("cni")
}

fn list(version: &str, plugin: &Value) -> String {
    json!({"cniVersion": version, "name": "pods", "plugins": [plugin]}).to_string()
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
