//! A pod's network from Attach to Detach, on every kind of network that a node is likely to have.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ipnetwork::IpNetwork;
use proto::tap::{Nic, PodId, PodNet};
use tests::case::{Bed, Case};
use tests::cni::{self, Kind, Network};
use tests::command::sh;
use tests::guest::{Guest, ping};
use tests::net_node::{NetNode, latest_record, pod_id};
use tests::netns::run_in;
use tests::pace::stretched_seconds;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    case("net::bridge_debian", |bed| life(bed, network(Kind::Bridge, false, false), cni::debian_plugins())),
    case("net::bridge_new", |bed| life(bed, network(Kind::Bridge, false, false), new_plugins(bed)?)),
    case("net::bridge_hairpin_debian", |bed| life(bed, network(Kind::Bridge, false, true), cni::debian_plugins())),
    case("net::bridge_hairpin_new", |bed| life(bed, network(Kind::Bridge, false, true), new_plugins(bed)?)),
    case("net::bridge_masquerade_debian", |bed| life(bed, network(Kind::Bridge, true, false), cni::debian_plugins())),
    case("net::bridge_masquerade_new", |bed| life(bed, network(Kind::Bridge, true, false), new_plugins(bed)?)),
    case("net::bridge_masquerade_hairpin_new", |bed| life(bed, network(Kind::Bridge, true, true), new_plugins(bed)?)),
    case("net::ptp_debian", |bed| life(bed, network(Kind::Ptp, false, false), cni::debian_plugins())),
    case("net::ptp_new", |bed| life(bed, network(Kind::Ptp, false, false), new_plugins(bed)?)),
    case("net::ptp_masquerade_debian", |bed| life(bed, network(Kind::Ptp, true, false), cni::debian_plugins())),
    case("net::ptp_masquerade_new", |bed| life(bed, network(Kind::Ptp, true, false), new_plugins(bed)?)),
    case("net::fifty_pods_eight_at_a_time_leave_counts_as_before", many),
];

const fn case(name: &'static str, run: fn(&Bed) -> Result<()>) -> Case {
    Case { name, deadline: DEADLINE, run }
}

const fn network(kind: Kind, masquerade: bool, hairpin: bool) -> Network {
    Network { kind, masquerade, hairpin }
}

fn new_plugins(bed: &Bed) -> Result<PathBuf> {
    bed.config.peer("cni")
}

/// Two pods: attached, leased by two real clients, reached from everywhere, checked by their plugin, detached.
fn life(bed: &Bed, network: Network, plugins: PathBuf) -> Result<()> {
    let node = NetNode::start(bed, &network.conflist().to_string(), &plugins)?;
    let before = World::look()?;
    let (one, two) = (pod_id(1)?, pod_id(2)?);
    let (first, second) = (node.attach(&one)?, node.attach(&two)?);
    ensure!(node.attach(&one)? == first, "a second attach of the same pod says something else");
    for net in [&first, &second] {
        as_in_the_kernel(net, network.kind)?;
    }

    let guests =
        [Guest::start(bed, &node, &one, nic(&first)?, "one")?, Guest::start(bed, &node, &two, nic(&second)?, "two")?];
    let [a, b] = &guests;
    leased_by_udhcpc(&a.udhcpc()?, nic(&first)?, &one)?;
    leased_by_dhclient(&b.dhclient()?, nic(&second)?, &two)?;
    reachable(a, address(&first)?, b, address(&second)?)?;
    healthy_ipv6(a)?;

    for (pod, net) in [(&one, &first), (&two, &second)] {
        cni::check(&plugins, &network, pod.as_str(), &net.netns, &cached_result(pod)?)?;
    }
    let rules = sh("iptables-save")?;
    ensure!(rules.contains("MASQUERADE") == network.masquerade, "masquerading is not as configured:\n{rules}");

    for guest in guests {
        guest.kill()?;
    }
    for pod in [&one, &two, &one] {
        node.detach(pod)?;
    }
    logged(&node, &one)?;
    before.assert_same()
}

/// What was done about a pod is found in the log by the pod's namespace, name and id.
fn logged(node: &NetNode, pod: &PodId) -> Result<()> {
    let log = node.tapmanager.log()?;
    let span = format!(r#"pod{{namespace="default" name="pod-{pod}" pod="{pod}"}}: "#);
    for message in ["pod attached", "pod detached"] {
        let found = log.lines().any(|line| line.contains(&span) && line.contains(message));
        ensure!(found, "no line of the log has `{span}` and `{message}`");
    }
    Ok(())
}

/// What the daemon says of the pod is what the kernel has in the pod's namespace.
fn as_in_the_kernel(net: &PodNet, kind: Kind) -> Result<()> {
    let nic = nic(net)?;
    let link = run_in(&net.netns, "ip -o link show dev eth0")?;
    ensure!(link.contains(&format!("mtu {}", nic.mtu)) && nic.mtu == 1450, "MTU {}: {link}", nic.mtu);
    ensure!(link.contains(&nic.mac.to_string()), "MAC {}: {link}", nic.mac);
    let addresses = run_in(&net.netns, "ip -o addr show dev eth0 scope global")?;
    for address in &nic.addresses {
        // ptp's link has the subnet's mask and no route to the subnet but by the gateway, which for a guest is a /32.
        let whole = if address.is_ipv4() { 24 } else { 64 };
        let prefix = match kind {
            Kind::Bridge => whole,
            Kind::Ptp if address.is_ipv4() => 32,
            Kind::Ptp => 128,
        };
        ensure!(address.prefix() == prefix, "{address} has another prefix than /{prefix}");
        let wanted = format!("{}/{whole} ", address.ip());
        ensure!(addresses.contains(&wanted), "{wanted} is not in the kernel: {addresses}");
    }
    ensure!(nic.addresses.len() == 2, "not one address of each family: {:?}", nic.addresses);
    Ok(())
}

fn leased_by_udhcpc(lease: &str, nic: &Nic, pod: &PodId) -> Result<()> {
    let wanted = [
        format!("ip='{}'", v4(nic)?.ip()),
        "mtu='1450'".to_owned(),
        "dns='10.96.0.10'".to_owned(),
        "search='default.svc.cluster.test svc.cluster.test'".to_owned(),
        format!("hostname='vm-{pod}'"),
        "lease='86400'".to_owned(),
    ];
    for line in wanted {
        ensure!(lease.contains(&line), "no {line} in the lease:\n{lease}");
    }
    Ok(())
}

fn leased_by_dhclient(leases: &str, nic: &Nic, pod: &PodId) -> Result<()> {
    let wanted = [
        format!("fixed-address {};", v4(nic)?.ip()),
        "option interface-mtu 1450;".to_owned(),
        "option domain-name-servers 10.96.0.10;".to_owned(),
        format!("option host-name \"vm-{pod}\";"),
        "option dhcp-lease-time 86400;".to_owned(),
    ];
    for line in wanted {
        ensure!(leases.contains(&line), "no {line} in the lease:\n{leases}");
    }
    Ok(())
}

/// Guest to guest, guest to node, node to guest; with full frames too.
fn reachable(a: &Guest, address_a: IpAddr, b: &Guest, address_b: IpAddr) -> Result<()> {
    a.ping(address_b).context("guest to guest")?;
    b.ping(address_a).context("guest to guest, the other way")?;
    ping(None, address_a).context("node to guest")?;
    ping(None, address_b).context("node to the second guest")?;
    let gateway: IpAddr = "10.77.0.1".parse()?;
    a.ping(gateway).context("guest to its gateway")?;
    // 1450 less the IP and ICMP headers
    let seconds = stretched_seconds(3);
    a.run(&format!("busybox ping -c 1 -W {seconds} -s 1422 {address_b}")).context("full frames between guests")?;
    Ok(())
}

/// Duplicate address detection did not hear its own probes back.
fn healthy_ipv6(guest: &Guest) -> Result<()> {
    let addresses = guest.run("ip -6 -o addr show dev eth0")?;
    ensure!(!addresses.contains("dadfailed"), "the guest took itself for another: {addresses}");
    Ok(())
}

fn many(bed: &Bed) -> Result<()> {
    let mut node = NetNode::start(bed, &network(Kind::Bridge, true, false).conflist().to_string(), &new_plugins(bed)?)?;
    // The first pod makes what its network keeps: the bridge, and what the daemon keeps open.
    node.attach(&pod_id(99)?)?;
    node.detach(&pod_id(99)?)?;
    let before = World::settled()?;
    let descriptors = node.tapmanager.descriptors()?;
    std::thread::scope(|scope| {
        let lane = |lane: u32| {
            let node = &node;
            scope.spawn(move || -> Result<()> {
                for pod in (0..50).filter(|pod| pod % 8 == lane) {
                    let pod = pod_id(pod)?;
                    node.attach(&pod)?;
                    node.arm(&pod)?;
                    node.detach(&pod)?;
                }
                Ok(())
            })
        };
        let lanes: Vec<_> = (0..8).map(lane).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    node.tapmanager.still_runs()?;
    before.assert_same()?;
    let now = tests::wait::wait_for("descriptors as before", Duration::from_secs(10), || {
        let now = node.tapmanager.descriptors()?;
        Ok((now <= descriptors).then_some(now))
    })
    .with_context(|| format!("{descriptors} descriptors before"))?;
    ensure!(node.status()?.pods == 0, "pods on record, {now} descriptors");
    Ok(())
}

fn nic(net: &PodNet) -> Result<&Nic> {
    ensure!(net.nics.len() == 1, "not one NIC: {:?}", net.nics);
    net.nics.first().context("no NIC")
}

fn v4(nic: &Nic) -> Result<IpNetwork> {
    nic.addresses.iter().copied().find(IpNetwork::is_ipv4).context("no IPv4 address")
}

fn address(net: &PodNet) -> Result<IpAddr> {
    Ok(v4(nic(net)?)?.ip())
}

/// The result of ADD, as the daemon keeps it.
fn cached_result(pod: &PodId) -> Result<serde_json::Value> {
    let record = latest_record(pod.as_str())?;
    let result = record.pointer("/attachments/0/result").filter(|result| result.is_object());
    result.cloned().context("no result on record")
}
