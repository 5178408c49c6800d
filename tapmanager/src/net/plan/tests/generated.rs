//! Any namespace that plugins may leave either is refused, or gives a guest that reaches what a process in it would, by
//! steps that hold together.
//!
//! What a process reaches is the kernel's choice: the longest prefix, then the lowest metric, then the first. What a
//! guest reaches is the same on the addresses and routes that it is told, set one by one in their order.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proto::tap::DataPath;

use super::*;

/// A link and what is on it.
#[derive(Debug, Clone)]
struct Made {
    kind: Option<&'static str>,
    mtu: u32,
    addresses: Vec<(IpNetwork, Connected)>,
    routes: Vec<(IpNetwork, Option<IpAddr>, u32)>,
}

/// What became of the route that the kernel makes for an address.
#[derive(Debug, Clone, Copy)]
enum Connected {
    Kept,
    /// As the plugin `ptp` does it: the neighbours are behind the first of them.
    ByGateway,
    /// As on a link without a subnet.
    Gone,
}

/// Where a destination is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    Nowhere,
    OnLink,
    By(IpAddr),
}

fn ip() -> impl Strategy<Value = IpAddr> {
    // Few addresses, so that subnets and routes meet.
    prop_oneof![
        (0_u8..4, 0_u8..4, 1_u8..6).prop_map(|(b, c, d)| IpAddr::from(Ipv4Addr::new(10, b, c, d))),
        Just(IpAddr::from(Ipv4Addr::new(169, 254, 1, 1))),
        (0_u16..4, 1_u16..6).prop_map(|(g, h)| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, g, 0, 0, 0, h))),
        Just(IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1))),
    ]
}

fn subnet(ip: IpAddr, choice: usize) -> IpNetwork {
    let lengths: [u8; 5] = if ip.is_ipv4() { [8, 16, 24, 31, 32] } else { [0, 48, 64, 127, 128] };
    IpNetwork::new(ip, lengths[choice % 5]).expect("a length of the family")
}

/// The subnet itself, as destinations are written.
fn destination(ip: IpAddr, choice: usize) -> IpNetwork {
    let net = if choice == 5 { IpNetwork::new(ip, 0).expect("a length of the family") } else { subnet(ip, choice) };
    IpNetwork::new(net.network(), net.prefix()).expect("a length of the family")
}

fn made() -> impl Strategy<Value = Made> {
    let kind = prop_oneof![
        8 => Just(Some("veth")), 2 => Just(Some("macvlan")), 2 => Just(None), 1 => Just(Some("vlan")),
        1 => Just(Some("ipvlan")),
    ];
    let connected =
        prop_oneof![3 => Just(Connected::Kept), 1 => Just(Connected::ByGateway), 1 => Just(Connected::Gone)];
    let station = ip().prop_filter(
        "a link-local address of the kernel's own",
        |ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()),
    );
    let address = (station, 0_usize..5, connected)
        .prop_filter("no subnet of everything", |(ip, choice, _)| subnet(*ip, *choice).prefix() > 0)
        .prop_map(|(ip, choice, connected)| (subnet(ip, choice), connected));
    let route = (ip(), 0_usize..6, prop::option::of(ip()), 0_u32..3).prop_map(|(dst, choice, gateway, metric)| {
        let gateway = gateway.filter(|gateway| gateway.is_ipv4() == dst.is_ipv4());
        (destination(dst, choice), gateway, metric)
    });
    (kind, 576_u32..65_536, prop::collection::vec(address, 0..4), prop::collection::vec(route, 0..6))
        .prop_map(|(kind, mtu, addresses, routes)| Made { kind, mtu, addresses, routes })
}

/// The namespace, and what the plugins say of it: a network for each two links.
fn world(made: &[Made]) -> (Observed, Vec<Reported>) {
    let mut observed =
        Observed { links: vec![lo()], addresses: vec![address(1, "127.0.0.1/8")], ..Observed::default() };
    let mut networks: Vec<Reported> = Vec::new();
    let is_own = |ip: IpAddr| made.iter().any(|made| made.addresses.iter().any(|(net, _)| net.ip() == ip));
    for (place, made) in made.iter().enumerate() {
        let index = u32::try_from(place).expect("few") + 2;
        let link_name = if place == 0 { "eth0".to_owned() } else { format!("net{place}") };
        let mac = format!("8e:00:00:00:00:{index:02x}").parse().ok();
        let kind = made.kind.map(str::to_owned);
        observed.links.push(Link { kind, mac, mtu: made.mtu, ..veth(index, &link_name) });
        let mut seen = BTreeSet::new();
        let own: Vec<_> = made.addresses.iter().filter(|(net, _)| seen.insert(net.ip())).collect();
        for (net, connected) in &own {
            observed.addresses.push(Address { link: index, net: *net, lasting: true });
            let dst = IpNetwork::new(net.network(), net.prefix()).expect("its own length");
            let first = net.iter().find(|ip| !is_own(*ip));
            let next_hop = match (connected, first) {
                (Connected::Kept, _) => NextHop::OnLink,
                (Connected::ByGateway, Some(first)) => NextHop::Gateway(first),
                (Connected::ByGateway, None) | (Connected::Gone, _) => continue,
            };
            observed.routes.push(KernelRoute {
                link: index,
                table: MAIN_TABLE,
                dst,
                next_hop,
                metric: 0,
                mtu: None,
                advmss: None,
                hops: 1,
            });
        }
        // The kernel takes no gateway that is an address of its own.
        for (dst, gateway, metric) in made.routes.iter().filter(|(_, gateway, _)| !gateway.is_some_and(is_own)) {
            let next_hop = gateway.map_or(NextHop::OnLink, NextHop::Gateway);
            observed.routes.push(KernelRoute {
                link: index,
                table: MAIN_TABLE,
                dst: *dst,
                next_hop,
                metric: *metric,
                mtu: None,
                advmss: None,
                hops: 1,
            });
        }
        if place % 2 == 0 {
            networks.push(Reported { network: format!("n{place}"), ..Reported::default() });
        }
        let network = networks.last_mut().expect("just made");
        network.links.push(name(&link_name));
        network.addresses.extend(own.iter().map(|(net, _)| *net));
    }
    (observed, networks)
}

/// The way of the longest prefix; of several, that with the lowest metric; of several, the first.
fn lookup(routes: impl Iterator<Item = (IpNetwork, u32, Lookup)>, dst: IpAddr) -> Lookup {
    let mut best: Option<(u8, u32, Lookup)> = None;
    for (net, metric, way) in routes.filter(|(net, ..)| net.contains(dst)) {
        if best.is_none_or(|(prefix, lowest, _)| (net.prefix(), lowest) > (prefix, metric)) {
            best = Some((net.prefix(), metric, way));
        }
    }
    best.map_or(Lookup::Nowhere, |(_, _, way)| way)
}

fn lookup_of_process(observed: &Observed, link: u32, dst: IpAddr) -> Lookup {
    let routes = observed.routes.iter().filter(|route| route.link == link).map(|route| {
        let way = match route.next_hop {
            NextHop::Gateway(gateway) => Lookup::By(gateway),
            NextHop::OnLink | NextHop::Unsupported | NextHop::Unreachable => Lookup::OnLink,
        };
        (route.dst, route.metric, way)
    });
    lookup(routes, dst)
}

fn lookup_of_guest(nic: &Nic, dst: IpAddr) -> Lookup {
    let connected = nic.addresses.iter().map(|net| (*net, 0, Lookup::OnLink));
    let routes = nic.routes.iter().map(|route| (route.dst, 0, route.gateway.map_or(Lookup::OnLink, Lookup::By)));
    lookup(connected.chain(routes), dst)
}

/// Every place that a route or an address speaks of, and its neighbours within.
fn places(observed: &Observed) -> BTreeSet<IpAddr> {
    let nets = observed.routes.iter().map(|route| route.dst).chain(observed.addresses.iter().map(|own| own.net));
    nets.flat_map(|net| net.iter().take(4).chain([net.ip(), net.broadcast()]).collect::<Vec<_>>()).collect()
}

/// What each host does by itself, whatever it is told.
fn is_its_own_affair(nic: &Nic, dst: IpAddr) -> bool {
    let of_every_host = match dst {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast() || ip.is_loopback(),
    };
    // A gateway that an `onlink` route names is on the link for a guest, whatever else leads there.
    of_every_host
        || nic.addresses.iter().any(|net| net.ip() == dst)
        || nic.routes.iter().any(|route| route.gateway == Some(dst))
}

fn assert_reaches_the_same(observed: &Observed, nic: &Nic) {
    let link = observed.links.iter().find(|link| link.name == nic.name).expect("joined");
    for dst in places(observed).into_iter().filter(|dst| !is_its_own_affair(nic, *dst)) {
        assert_eq!(lookup_of_guest(nic, dst), lookup_of_process(observed, link.index, dst), "to {dst} on {nic:?}");
    }
    // One by one, as a DHCP client's script sets them.
    for (place, route) in nic.routes.iter().enumerate() {
        let Some(gateway) = route.gateway else { continue };
        let own = nic.addresses.iter().any(|net| net.contains(gateway) && net.ip() != gateway);
        let before = nic.routes[..place].iter().any(|other| other.gateway.is_none() && other.dst.contains(gateway));
        let by_itself = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
        assert!(own || before || by_itself, "{gateway} of {route:?} is not reachable yet: {nic:?}");
    }
}

/// Each step finds what it works on, and nothing is raised before it is guarded.
fn assert_steps_hold_together(observed: &Observed, plan: &Plan) {
    let mut links: BTreeSet<IfName> = observed.links.iter().map(|link| link.name.clone()).collect();
    let (mut clsact, mut guarded) = (BTreeSet::new(), BTreeSet::new());
    for step in &plan.steps {
        match step {
            Step::CreateTap { tap, .. } => assert!(links.insert(tap.clone()), "{step}"),
            Step::CreateMacvtap { tap, link } => assert!(links.contains(link) && links.insert(tap.clone()), "{step}"),
            Step::CreateBridge { bridge, .. } => assert!(links.insert(bridge.clone()), "{step}"),
            Step::AddClsact { link } => assert!(links.contains(link) && clsact.insert(link.clone()), "{step}"),
            Step::AddGuard { link, .. } => assert!(clsact.contains(link) && guarded.insert(link.clone()), "{step}"),
            Step::AddRedirect { from, to, .. } => assert!(guarded.contains(from) && links.contains(to), "{step}"),
            Step::DropIngress { link } => assert!(clsact.contains(link), "{step}"),
            Step::SetMaster { link, bridge } => assert!(guarded.contains(link) && links.contains(bridge), "{step}"),
            Step::SetUp { link } => {
                assert!(links.contains(link), "{step}");
                let of_guest = link.as_str().starts_with("tap");
                assert!(!of_guest || guarded.contains(link), "{step}: unjudged frames");
            }
            Step::SetNoqueue { tap } | Step::ShapeTap { tap, .. } | Step::Listen { tap, .. } => {
                assert!(links.contains(tap), "{step}");
            }
            Step::ReplaceFdbEntry { port, .. } => assert!(links.contains(port), "{step}"),
        }
    }
    for nic in &plan.nics {
        assert!(guarded.contains(&nic.name), "{}: unjudged frames to the guest", nic.name);
    }
}

fn data_path() -> impl Strategy<Value = DataPath> {
    prop::sample::select(DataPath::ALL.to_vec())
}

proptest! {
    #[test]
    fn a_guest_reaches_what_a_process_would_or_the_refusal_says_why(
        made in prop::collection::vec(made(), 1..4),
        data_path in data_path(),
        queues in 1_u16..20,
        anti_spoof: bool,
    ) {
        let (observed, networks) = world(&made);
        match plan(&observed, &networks, Choices { data_path, queues, anti_spoof }) {
            Ok(plan) => {
                prop_assert_eq!(plan.nics.len(), made.len());
                for (nic, made) in plan.nics.iter().zip(&made) {
                    prop_assert_eq!(nic.mtu, made.mtu);
                    let told: BTreeSet<IpAddr> = nic.addresses.iter().map(IpNetwork::ip).collect();
                    let promised: BTreeSet<IpAddr> = made.addresses.iter().map(|(net, _)| net.ip()).collect();
                    prop_assert_eq!(told, promised);
                    assert_reaches_the_same(&observed, nic);
                }
                assert_steps_hold_together(&observed, &plan);
            }
            Err(PlanError::Kind { kind, .. }) => prop_assert_eq!(kind, "ipvlan"),
            Err(PlanError::DataPath { .. }) => {
                prop_assert!(data_path == DataPath::Macvtap && made.iter().any(|made| made.kind == Some("macvlan")));
            }
            Err(PlanError::NoAddress) => prop_assert!(made.iter().all(|made| made.addresses.is_empty())),
            Err(PlanError::Identity { .. }) => prop_assert!(anti_spoof),
            Err(other) => prop_assert!(false, "no reason for: {other}"),
        }
    }
}
