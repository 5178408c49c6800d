//! What must not cross between a pod and the rest: DHCP of the guest outwards, foreign DHCP and router advertisements
//! inwards. Shown by capture, beside traffic that does cross.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::capture::{Capture, send};
use tests::case::{Bed, Case};
use tests::cni::{self, Kind, Network};
use tests::command::sh;
use tests::frames::{Kind as Frame, contains, is_rogue_advertisement, kind, rogue_advertisement, rogue_offer};
use tests::guest::Guest;
use tests::net_node::{NetNode, pod_id};
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "net::dhcp_stays_inside_the_pod", deadline: DEADLINE, run: dhcp_stays_inside },
    Case { name: "net::rogue_servers_are_not_heard", deadline: DEADLINE, run: rogues_are_not_heard },
    Case { name: "net::a_stranger_behind_the_tap_gets_no_lease", deadline: DEADLINE, run: strangers_get_no_lease },
];

fn dhcp_stays_inside(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let before = World::look()?;
    let (one, two) = (pod_id(1)?, pod_id(2)?);
    let (first, second) = (node.attach(&one)?, node.attach(&two)?);
    let a = Guest::start(bed, &node, &one, first.nics.first().context("no NIC")?, "one")?;
    let b = Guest::start(bed, &node, &two, second.nics.first().context("no NIC")?, "two")?;
    let outside: Vec<Capture> = host_links()?.iter().map(|link| Capture::start(None, link)).collect::<Result<_>>()?;
    let inside = Capture::start(Some(&first.netns), "tap0")?;
    let neighbour = Capture::start(Some(b.netns()), "eth0")?;

    a.udhcpc()?;
    b.udhcpc()?;
    a.ping(second.nics.first().and_then(|nic| nic.addresses.first()).context("no address")?.ip())?;

    let seen_inside = inside.stop()?;
    ensure!(seen_inside.iter().any(|frame| kind(frame) == Frame::DhcpRequest), "the capture misses what there is");
    let ours = mac_of(&first)?;
    let at_neighbour = neighbour.stop()?;
    ensure!(!at_neighbour.iter().any(|frame| is_dhcp(frame) && contains(frame, &ours)), "a pod saw the other's DHCP");
    let outside: Vec<_> = outside.into_iter().map(Capture::stop).collect::<Result<Vec<_>>>()?.concat();
    ensure!(outside.iter().any(|frame| contains(frame, &ours)), "the capture misses the pings");
    ensure!(!outside.iter().any(|frame| is_dhcp(frame)), "DHCP on the node's side of the veth");

    a.kill()?;
    b.kill()?;
    node.detach(&one)?;
    node.detach(&two)?;
    before.assert_same()
}

fn rogues_are_not_heard(bed: &Bed) -> Result<()> {
    for kind_of_network in [Kind::Bridge, Kind::Ptp] {
        let network = Network { kind: kind_of_network, masquerade: false, hairpin: true };
        let mut node = NetNode::start(bed, &network.conflist().to_string(), &cni::debian_plugins())?;
        let (one, two) = (pod_id(1)?, pod_id(2)?);
        let (first, second) = (node.attach(&one)?, node.attach(&two)?);
        let victim = Guest::start(bed, &node, &one, first.nics.first().context("no NIC")?, "victim")?;
        let rogue = Guest::start(bed, &node, &two, second.nics.first().context("no NIC")?, "rogue")?;
        victim.udhcpc()?;
        rogue.udhcpc()?;
        let heard = Capture::start(Some(victim.netns()), "eth0")?;

        let client = mac_of(&first)?;
        for transaction in 0..5 {
            send(rogue.netns(), "eth0", &rogue_offer(client, [0, 0, 0, transaction], [10, 66, 6, 7].into()))?;
            send(rogue.netns(), "eth0", &rogue_advertisement())?;
        }
        // What is sent after them arrives, so they would have, too.
        rogue.ping(first.nics.first().and_then(|nic| nic.addresses.first()).context("no address")?.ip())?;

        let heard = heard.stop()?;
        ensure!(heard.iter().any(|frame| contains(frame, &client)), "the capture misses the pings");
        ensure!(!heard.iter().any(|frame| kind(frame) == Frame::DhcpReply), "a foreign DHCP offer reached the guest");
        // Not ours: the guest's kernel asks for that when it likes.
        ensure!(!heard.iter().any(|frame| is_rogue_advertisement(frame)), "a foreign router reached the guest");
        let addresses = victim.run("ip -6 -o addr show dev eth0")?;
        ensure!(!addresses.contains("fd66:"), "the guest believes a foreign router: {addresses}");

        victim.kill()?;
        rogue.kill()?;
        node.detach(&one)?;
        node.detach(&two)?;
        node.tapmanager.terminate()?;
    }
    Ok(())
}

/// The lease is the machine's alone: another MAC behind the same tap is not served.
fn strangers_get_no_lease(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let pod = pod_id(1)?;
    let net = node.attach(&pod)?;
    let mut nic = net.nics.first().context("no NIC")?.clone();
    nic.mac = "02:00:00:00:00:99".parse()?;
    let stranger = Guest::start(bed, &node, &pod, &nic, "stranger")?;
    ensure!(stranger.udhcpc().is_err(), "a foreign MAC was given a lease");
    let own = net.nics.first().context("no NIC")?.mac;
    stranger.run(&format!("ip link set eth0 address {own}"))?;
    stranger.udhcpc().context("the machine's own MAC gets its lease")?;
    Ok(())
}

fn is_dhcp(frame: &[u8]) -> bool {
    matches!(kind(frame), Frame::DhcpRequest | Frame::DhcpReply)
}

fn mac_of(net: &proto::tap::PodNet) -> Result<[u8; 6]> {
    Ok(net.nics.first().context("no NIC")?.mac.octets())
}

/// The bridge and the node's ends of all veth pairs.
fn host_links() -> Result<Vec<String>> {
    let links = sh("ip -o link")?;
    let names = links.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    Ok(names.filter(|name| *name != "lo").map(str::to_owned).collect())
}
