mod generated;

use std::fmt::Write as _;

use proto::tap::Route;
use sriov::VirtualFunction;

use super::*;
use crate::net::tap_name;
use crate::sys::link::{KernelRoute, MAIN_TABLE, NextHop};

#[test]
fn bridge_keeps_its_prefix_and_the_default_route() {
    let observed = Observed {
        links: vec![lo(), veth(2, "eth0")],
        addresses: vec![
            address(1, "127.0.0.1/8"),
            address(2, "10.77.0.2/24"),
            address(2, "fd00:77::2/64"),
            link_local(2),
        ],
        routes: vec![
            route(2, "0.0.0.0/0", "10.77.0.1"),
            on_link(2, "10.77.0.0/24"),
            on_link(2, "fd00:77::/64"),
            on_link(2, "fe80::/64"),
            on_link(2, "ff00::/8"),
            route(2, "::/0", "fd00:77::1"),
        ],
        ..Observed::default()
    };
    insta::assert_snapshot!(shown(&observed, &["eth0"], &["10.77.0.2/24", "fd00:77::2/64"]));
}

#[test]
fn ptp_gives_a_host_address_and_the_way_to_its_neighbours() {
    // As the plugin leaves it: the address says /24, but its route is gone.
    let observed = Observed {
        links: vec![lo(), veth(3, "eth0")],
        addresses: vec![address(3, "10.77.0.2/24")],
        routes: vec![
            route(3, "0.0.0.0/0", "10.77.0.1"),
            route(3, "10.77.0.0/24", "10.77.0.1"),
            on_link(3, "10.77.0.1/32"),
        ],
        ..Observed::default()
    };
    insta::assert_snapshot!(shown(&observed, &["eth0"], &["10.77.0.2/24"]));
}

#[test]
fn several_links_keep_their_own_routes_and_the_order_of_the_result() {
    let observed = Observed {
        links: vec![lo(), Link { mtu: 9000, ..veth(2, "net1") }, veth(5, "eth0")],
        addresses: vec![address(2, "192.168.9.7/24"), address(5, "10.77.0.2/24"), address(5, "10.77.0.3/24")],
        routes: vec![
            on_link(2, "192.168.9.0/24"),
            route(2, "172.16.0.0/12", "192.168.9.1"),
            on_link(5, "10.77.0.0/24"),
            route(5, "0.0.0.0/0", "10.77.0.1"),
        ],
        ..Observed::default()
    };
    let addresses = ["127.0.0.1/8", "10.77.0.3/24", "10.77.0.2/24", "192.168.9.7/24"];
    insta::assert_snapshot!(shown(&observed, &["lo", "eth0", "net1", "eth0"], &addresses));
}

#[test]
fn a_gateway_that_no_route_reaches_gets_one() {
    let observed = with(
        &["10.1.2.3/32", "fd00::3/128"],
        vec![route(2, "0.0.0.0/0", "169.254.1.1"), on_link(2, "fd00::3/128"), route(2, "::/0", "fe80::1")],
    );
    let nic = plan(&observed, &reported(&["eth0"], &["10.1.2.3/32"]), choices()).expect("joins").nics.remove(0);
    assert_eq!(lines(&nic.routes), ["169.254.1.1/32 on link", "0.0.0.0/0 via 169.254.1.1", "::/0 via fe80::1"]);
}

#[test]
fn of_two_routes_to_one_place_the_lower_metric_counts() {
    let slow = KernelRoute { metric: 200, ..route(2, "0.0.0.0/0", "10.77.0.9") };
    let fast = KernelRoute { metric: 100, ..route(2, "0.0.0.0/0", "10.77.0.1") };
    let second_hop = KernelRoute { metric: 100, ..route(2, "0.0.0.0/0", "10.77.0.8") };
    let observed = with(&["10.77.0.2/24"], vec![slow, on_link(2, "10.77.0.0/24"), fast, second_hop]);
    let nic = plan(&observed, &reported(&["eth0"], &[]), choices()).expect("joins").nics.remove(0);
    assert_eq!(lines(&nic.routes), ["0.0.0.0/0 via 10.77.0.1"]);
}

#[test]
fn an_address_with_a_peer_is_a_host_address_with_a_route_to_the_peer() {
    let observed = with(&["10.9.0.2/32"], vec![on_link(2, "10.9.0.1/32"), route(2, "0.0.0.0/0", "10.9.0.1")]);
    let nic = plan(&observed, &reported(&["eth0"], &["10.9.0.2/32"]), choices()).expect("joins").nics.remove(0);
    assert_eq!(nic.addresses, [net("10.9.0.2/32")]);
    assert_eq!(lines(&nic.routes), ["10.9.0.1/32 on link", "0.0.0.0/0 via 10.9.0.1"]);
}

#[test]
fn addresses_that_lapse_are_the_kernels_own_unless_a_plugin_reported_them() {
    let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    observed.addresses.push(Address { lasting: false, ..address(2, "fd00::aa/64") });
    observed.addresses.push(Address { lasting: false, ..address(2, "fd00::bb/64") });
    let nic = plan(&observed, &reported(&["eth0"], &["fd00::bb/64", "10.77.0.2/24"]), choices())
        .expect("joins")
        .nics
        .remove(0);
    assert_eq!(nic.addresses, [net("fd00::bb/128"), net("10.77.0.2/24")]);
}

#[test]
fn without_reported_links_the_addresses_tell_them() {
    let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    observed.links.push(Link { kind: Some("erspan".into()), ..veth(3, "erspan0") });
    let plan = plan(&observed, &reported(&[], &["10.77.0.2/16"]), choices()).expect("joins");
    assert_eq!(plan.nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(), ["eth0"]);
}

#[test]
fn a_second_nic_needs_no_address() {
    let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    observed.links.push(Link { up: false, ..veth(3, "net1") });
    let plan = plan(&observed, &reported(&["eth0", "net1"], &["10.77.0.2/24"]), choices()).expect("joins");
    assert_eq!(plan.nics[1].addresses, []);
    assert!(plan.steps.contains(&Step::SetUp { link: name("net1") }), "nobody else may have brought it up");
}

#[test]
fn a_tap_takes_no_more_than_it_can() {
    let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    observed.links[1].mtu = 65_535;
    let plan = plan(&observed, &reported(&["eth0"], &[]), choices()).expect("joins");
    assert!(plan.steps.contains(&Step::ShapeTap { tap: tap_name(0), mtu: 65_521 }));
    assert_eq!(plan.nics[0].mtu, 65_535);
}

#[test]
fn a_port_of_a_bridge_takes_frames_that_are_longer_than_the_links_own() {
    let observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    let choices = Choices { data_path: DataPath::Bridge, ..choices() };
    let plan = plan(&observed, &reported(&["eth0"], &[]), choices).expect("joins");
    assert!(plan.steps.contains(&Step::ShapeTap { tap: tap_name(0), mtu: 65_521 }));
    assert_eq!(plan.nics[0].mtu, 1450, "what the guest may send");
}

#[test]
fn a_virtual_function_is_passed_through_with_all_that_its_link_has() {
    let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    observed.links.push(veth(3, "net1"));
    observed.vfs.insert(name("eth0"), vf());
    let [mut reported] = reported(&["eth0", "net1"], &["10.77.0.2/24"]);
    reported.asked.trust = Some(true);
    let plan = plan(&observed, &[reported.clone()], choices()).expect("joins");
    let [vf_nic, tap_nic] = &plan.nics[..] else { panic!("two NICs: {plan:?}") };
    assert_eq!(vf_nic.vfio().map(|vfio| vfio.device.to_string()).as_deref(), Some("0000:3b:02.1"));
    assert_eq!((vf_nic.mac.to_string().as_str(), vf_nic.mtu), ("8e:00:00:00:00:02", 1450));
    assert_eq!(vf_nic.addresses, [net("10.77.0.2/24")]);
    assert!(tap_nic.tap().is_some() && plan.steps.iter().all(|step| step.subject() != &name("eth0")), "{plan:?}");
    assert!(plan.steps.iter().any(|step| matches!(step, Step::CreateTap { tap, .. } if *tap == tap_name(1))));
    let asked = reported.asked.clone();
    let link = Some(name("eth0"));
    let passed = PassedThrough { vf: vf().addr, network: "pods".to_owned(), link, mac: plan.nics[0].mac, asked };
    assert_eq!(plan.passed_through, [passed]);

    // Named by the result as it is, and as another one.
    reported.devices.insert(name("eth0"), device("0000:3b:02.1"));
    super::plan(&observed, &[reported.clone()], choices()).expect("the same");
    reported.devices.insert(name("eth0"), device("0000:3b:02.3"));
    let error = super::plan(&observed, &[reported], choices()).expect_err("another").to_string();
    assert_eq!(
        error,
        "link `eth0` is the virtual function `0000:3b:02.1`, and the result names `0000:3b:02.3`; have the device plugin \
         and the network agree"
    );
}

#[test]
fn a_virtual_function_without_a_link_is_as_its_network_reports() {
    let observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    let [pods] = reported(&["eth0"], &["10.77.0.2/24"]);
    let [mut fast] = reported(&["net1"], &["10.78.0.9/24"]);
    fast.network = "fast".to_owned();
    fast.routes = vec![Route { dst: net("10.79.0.0/16"), gateway: "10.78.0.1".parse().ok() }];
    fast.devices.insert(name("net1"), device("0000:3b:02.1"));
    let plan = plan(&observed, &[pods.clone(), fast.clone()], choices()).expect("joins");
    let nic = &plan.nics[1];
    assert_eq!((nic.name.as_str(), nic.network.as_str(), nic.mtu), ("net1", "fast", 1500));
    assert_eq!((&nic.addresses[..], &nic.routes), (&[net("10.78.0.9/24")][..], &fast.routes));
    assert_eq!(nic.vfio().map(|vfio| vfio.device.to_string()).as_deref(), Some("0000:3b:02.1"));
    assert!(plan.passed_through.iter().all(|passed| passed.link.is_none()));

    fast.devices.insert(name("net1"), Device { mac: None, ..device("0000:3b:02.1") });
    let error = super::plan(&observed, &[pods, fast], choices()).expect_err("no address").to_string();
    assert!(error.contains("set `mac` in the network's configuration"), "{error}");
}

fn device(addr: &str) -> Device {
    Device {
        addr: addr.parse().expect("an address"),
        mac: "8e:00:00:00:00:09".parse().ok(),
        mtu: None,
        by: "the result".to_owned(),
    }
}

#[test]
fn what_does_not_suit_a_machine_is_refused() {
    let mut refusals = String::new();
    let mut refuse = |case: &str, change: fn(&mut Observed), links: &[&str], addresses: &[&str]| {
        let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
        change(&mut observed);
        let error = plan(&observed, &reported(links, addresses), choices()).expect_err(case);
        writeln!(refusals, "{case}: {error}").expect("a String takes all");
    };
    let none: fn(&mut Observed) = |_| ();
    refuse("missing link", none, &["eth1"], &[]);
    refuse("no links", none, &[], &[]);
    refuse("no links, unknown address", none, &[], &["10.77.0.9/24"]);
    refuse("loopback only", none, &["lo"], &[]);
    refuse("loopback only, by address", none, &[], &["127.0.0.1/8"]);
    refuse("no MAC", |seen| seen.links[1].mac = None, &["eth0"], &[]);
    refuse("no Ethernet", |seen| seen.links[1].ethernet = false, &["eth0"], &[]);
    refuse("ipvlan", |seen| seen.links[1].kind = Some("ipvlan".into()), &["eth0"], &[]);
    refuse("tap", |seen| seen.links[1].kind = Some("tun".into()), &["eth0"], &[]);
    refuse("down", |seen| seen.links[1].up = false, &["eth0"], &[]);
    refuse("taken name", |seen| seen.links.push(veth(9, "tap0")), &["eth0"], &[]);
    refuse("reported link named as a tap", |seen| seen.links[1].name = name("tap0"), &["tap0"], &[]);
    refuse("address elsewhere", none, &["eth0"], &["10.77.0.2/24", "10.77.0.3/24"]);
    refuse("no address", |seen| seen.addresses.clear(), &["eth0"], &[]);
    refuse("route by IPv6", |seen| seen.routes.push(unspeakable(2, "10.8.0.0/16")), &["eth0"], &[]);
    let many: Vec<String> = (0..16).map(|place| format!("net{place}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let add: fn(&mut Observed) =
        |seen| seen.links.extend((0..16).map(|place| veth(20 + place, &format!("net{place}"))));
    refuse("too many", add, &many, &[]);
    insta::assert_snapshot!(refusals);
}

#[test]
fn a_route_of_another_link_that_cannot_be_said_hinders_nobody() {
    let mut observed = with(&["10.77.0.2/24"], vec![on_link(2, "10.77.0.0/24")]);
    observed.routes.push(unspeakable(1, "10.8.0.0/16"));
    assert!(plan(&observed, &reported(&["eth0"], &[]), choices()).is_ok());
}

fn shown(observed: &Observed, links: &[&str], addresses: &[&str]) -> String {
    let plan = plan(observed, &reported(links, addresses), choices()).expect("joins");
    let mut text = String::new();
    for step in &plan.steps {
        writeln!(text, "{step}").expect("a String takes all");
    }
    for nic in &plan.nics {
        let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
        writeln!(text, "nic {} {} mtu {}: {}", nic.name, nic.mac, nic.mtu, addresses.join(" "))
            .expect("a String takes all");
        for line in lines(&nic.routes) {
            writeln!(text, "    {line}").expect("a String takes all");
        }
    }
    text
}

fn lines(routes: &[Route]) -> Vec<String> {
    let line = |route: &Route| match route.gateway {
        Some(gateway) => format!("{} via {gateway}", route.dst),
        None => format!("{} on link", route.dst),
    };
    routes.iter().map(line).collect()
}

/// Loopback and `eth0` with these addresses and routes.
fn with(addresses: &[&str], routes: Vec<KernelRoute>) -> Observed {
    let mut all = vec![address(1, "127.0.0.1/8")];
    all.extend(addresses.iter().map(|text| address(2, text)));
    Observed { links: vec![lo(), veth(2, "eth0")], addresses: all, routes, ..Observed::default() }
}

fn choices() -> Choices {
    Choices { data_path: proto::tap::DataPath::Tc, queues: 1, anti_spoof: true }
}

fn reported(links: &[&str], addresses: &[&str]) -> [Reported; 1] {
    [Reported {
        network: "pods".to_owned(),
        links: links.iter().map(|text| name(text)).collect(),
        addresses: addresses.iter().map(|text| net(text)).collect(),
        ..Reported::default()
    }]
}

fn lo() -> Link {
    Link { kind: None, ethernet: false, loopback: true, mac: None, mtu: 65_536, ..veth(1, "lo") }
}

pub(super) fn veth(index: u32, text: &str) -> Link {
    Link {
        index,
        name: name(text),
        kind: Some("veth".to_owned()),
        ethernet: true,
        loopback: false,
        up: true,
        carrier: true,
        controller: None,
        lower: None,
        vrf_table: None,
        mac: "8e:00:00:00:00:02".parse().ok(),
        mtu: 1450,
        pci: None,
    }
}

fn vf() -> VirtualFunction {
    let (addr, pf) = ("0000:3b:02.1".parse().expect("an address"), "0000:3b:00.0".parse().expect("an address"));
    VirtualFunction { addr, pf, number: 9, driver: Some("iavf".to_owned()) }
}

fn address(link: u32, text: &str) -> Address {
    Address { link, net: net(text), lasting: true }
}

fn link_local(link: u32) -> Address {
    Address { lasting: false, ..address(link, "fe80::8c00:ff:fe00:2/64") }
}

fn on_link(link: u32, dst: &str) -> KernelRoute {
    KernelRoute {
        link,
        table: MAIN_TABLE,
        dst: net(dst),
        next_hop: NextHop::OnLink,
        metric: 0,
        mtu: None,
        advmss: None,
        hops: 1,
    }
}

fn route(link: u32, dst: &str, gateway: &str) -> KernelRoute {
    KernelRoute { next_hop: NextHop::Gateway(gateway.parse().expect("an address")), ..on_link(link, dst) }
}

fn unspeakable(link: u32, dst: &str) -> KernelRoute {
    KernelRoute { next_hop: NextHop::Unsupported, ..on_link(link, dst) }
}

pub(super) fn net(text: &str) -> IpNetwork {
    text.parse().expect("a network")
}

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}
