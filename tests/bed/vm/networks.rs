//! Networks as clouds make them, with a machine that boots: what the matrix shows of namespaces behind a tap holds for
//! QEMU's NIC, controld's seed and a guest's own clients, too.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni;
use tests::command::{TOOL_DEADLINE, command, finish, sh};
use tests::http;
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tests::wait::wait_for;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_gateway_that_is_a_permanent_neighbour", deadline: DEADLINE, run: neighbour },
    Case { name: "vm::a_default_route_of_two_hops_and_less_mtu", deadline: DEADLINE, run: hops },
];

/// As AWS VPC CNI: addresses of one, and gateways of both families that answer nobody.
fn neighbour(bed: &Bed) -> Result<()> {
    let plugin = json!({
        "type": "routed",
        "addresses": ["10.77.0.50/32", "fd00:77::50/128"],
        "gateways": ["169.254.1.1", "fe80::1"],
        "onward": ["default via 169.254.1.1 dev LINK", "default via fe80::1 dev LINK"],
    });
    let node = start(bed, plugin)?;
    let before = World::look()?;
    // The guest has no client of DHCPv6; its router it hears of by itself.
    let script = "#!/bin/sh\nip -6 addr add fd00:77::50/128 dev eth0\n";
    let vm = node.boot_vm(bed, "neighbour", script)?;
    let info = vm.info()?;
    ensure!(info.contains("route default via 169.254.1.1"), "not by the gateway:\n{info}");
    let six: IpAddr = "fd00:77::50".parse()?;
    wait_for("HTTP answer by IPv6", BOOT_DEADLINE, || Ok(http::get(six, "/cgi-bin/info").ok()))
        .with_context(|| vm.log_text().unwrap_or_default())?;
    let told = explain(bed, &vm)?;
    for gateway in ["169.254.1.1", "fe80::1"] {
        ensure!(told.contains(&format!("{gateway} is at ")), "`explain` does not tell of {gateway}:\n{told}");
    }
    leave(&node, &vm, &before)
}

/// As Azure's in transparent mode, in a subnet whose route is taken away; by a tunnel, and with a second way out.
fn hops(bed: &Bed) -> Result<()> {
    let plugin = json!({
        "type": "routed",
        "addresses": ["10.77.0.50/32"],
        "gateways": ["169.254.1.1", "169.254.1.2"],
        "onward": ["default mtu 1423 nexthop via 169.254.1.1 dev LINK nexthop via 169.254.1.2 dev LINK"],
    });
    let node = start(bed, plugin)?;
    let before = World::look()?;
    let vm = node.boot_vm(bed, "hops", "")?;
    let info = vm.info()?;
    for line in ["mtu 1423", "route default via 169.254.1.1"] {
        ensure!(info.contains(line), "no `{line}` in what the guest says:\n{info}");
    }
    let told = explain(bed, &vm)?;
    for line in ["mtu 1423 is the least of its routes; the link has 1500", "2 next hops; its guest goes by 169.254.1.1"]
    {
        ensure!(told.contains(line), "`explain` does not tell `{line}`:\n{told}");
    }
    leave(&node, &vm, &before)
}

/// A node on a network of this plugin, with an address to answer its pods from.
fn start(bed: &Bed, plugin: Value) -> Result<Node> {
    for own in ["10.77.0.1", "fd00:77::1"] {
        sh(&format!("ip addr add {own} dev lo"))?;
    }
    let list = json!({"cniVersion": "1.0.0", "name": cni::NETWORK, "plugins": [plugin]});
    let plugins = cni::with_plugin(bed, &cni::debian_plugins(), cni::ROUTED)?;
    let node = Node::on(bed, &list, &plugins, "")?;
    node.pull(bed, "tiny.qcow2")?;
    Ok(node)
}

fn explain(bed: &Bed, vm: &Vm) -> Result<String> {
    let ended = finish(&mut command(bed.program("tapmanager"), ["explain", &vm.sandbox]), TOOL_DEADLINE)?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(ended.stdout)
}

fn leave(node: &Node, vm: &Vm, before: &World) -> Result<()> {
    node.remove_vm(vm, GRACE)?;
    std::fs::remove_dir_all(&vm.pod.log_directory)?;
    before.assert_same()
}
