use std::net::Ipv4Addr;

use netlink_packet_route::route::{RouteAddress, RouteScope};

use super::*;

#[test]
fn an_address_with_a_peer_is_the_own_one_alone() {
    let mut message = AddressMessage::default();
    message.header.prefix_len = 24;
    message.attributes = vec![
        AddressAttribute::Address(ip("10.0.0.1")),
        AddressAttribute::Local(ip("10.0.0.2")),
        AddressAttribute::Flags(AddressFlags::Permanent),
    ];
    let address = address_of(&message).expect("an address");
    assert_eq!(address.net.to_string(), "10.0.0.2/32");
    assert!(address.lasting);
}

#[test]
fn an_address_that_lapses_or_stays_on_the_link_does_not_last() {
    for (flags, scope) in
        [(AddressFlags::empty(), AddressScope::Universe), (AddressFlags::Permanent, AddressScope::Link)]
    {
        let mut message = AddressMessage::default();
        message.header.prefix_len = 64;
        message.header.scope = scope;
        message.attributes = vec![AddressAttribute::Address(ip("fd00::2")), AddressAttribute::Flags(flags)];
        assert!(!address_of(&message).expect("an address").lasting);
    }
}

#[test]
fn an_address_without_one_is_left_out() {
    assert_eq!(address_of(&AddressMessage::default()), None);
    let mut message = AddressMessage::default();
    message.header.prefix_len = 33;
    message.attributes = vec![AddressAttribute::Address(ip("10.0.0.1"))];
    assert_eq!(address_of(&message), None);
}

#[test]
fn routes_of_other_kinds_are_left_out_and_of_other_tables_said_so() {
    let main = route(vec![RouteAttribute::Oif(2)]);
    assert_eq!(routes_of(&main).len(), 1);
    let mut local = main.clone();
    local.header.table = 255;
    let mut multicast = main.clone();
    multicast.header.kind = RouteType::Multicast;
    let mut empty = main.clone();
    empty.header.kind = RouteType::Unreachable;
    empty.header.protocol = RouteProtocol::Kernel;
    let other = route(vec![RouteAttribute::Oif(2), RouteAttribute::Table(1000)]);
    let no_link = route(vec![]);
    for message in [local, multicast, empty, no_link] {
        assert_eq!(routes_of(&message), []);
    }
    assert_eq!(routes_of(&other).iter().map(|route| route.table).collect::<Vec<_>>(), [1000]);
}

#[test]
fn each_next_hop_of_a_route_is_one_of_its_link() {
    let hop = |index, gateway: [u8; 4]| {
        let mut hop = RouteNextHop::default();
        hop.interface_index = index;
        hop.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::from(gateway)))];
        hop
    };
    let hops = RouteAttribute::MultiPath(vec![hop(2, [10, 0, 0, 1]), hop(3, [10, 1, 0, 1])]);
    let routes = routes_of(&route(vec![hops]));
    let seen: Vec<_> = routes.iter().map(|route| (route.link, route.next_hop)).collect();
    assert_eq!(seen, [(2, NextHop::Gateway(ip("10.0.0.1"))), (3, NextHop::Gateway(ip("10.1.0.1")))]);
}

#[test]
fn a_route_says_how_many_ways_share_it_what_fits_through_and_whether_it_leads_nowhere() {
    let hops = RouteAttribute::MultiPath(vec![RouteNextHop::default(), RouteNextHop::default()]);
    assert_eq!(routes_of(&route(vec![hops])).iter().map(|route| route.hops).collect::<Vec<_>>(), [2, 2]);
    let metrics = RouteAttribute::Metrics(vec![RouteMetric::Window(9), RouteMetric::Mtu(1423)]);
    let narrow = routes_of(&route(vec![RouteAttribute::Oif(2), metrics]));
    assert_eq!((narrow[0].mtu, narrow[0].hops), (Some(1423), 1));
    for kind in [RouteType::BlackHole, RouteType::Unreachable, RouteType::Prohibit, RouteType::Throw] {
        // Of IPv6 the kernel names the loopback link.
        let mut nowhere = route(vec![RouteAttribute::Oif(1)]);
        nowhere.header.kind = kind;
        let routes = routes_of(&nowhere);
        assert_eq!((routes.len(), routes[0].link, routes[0].next_hop), (1, 0, NextHop::Unreachable), "{kind:?}");
    }
}

#[test]
fn a_next_hop_of_another_family_cannot_be_said() {
    let via = RouteAttribute::Via(RouteVia::Inet6([0xfe80, 0, 0, 0, 0, 0, 0, 1].into()));
    let routes = routes_of(&route(vec![RouteAttribute::Oif(2), via]));
    assert_eq!(routes[0].next_hop, NextHop::Unsupported);
}

#[test]
fn a_link_has_a_pci_address_only_if_it_is_on_that_bus() {
    let link = |bus: &str| {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName("eth0".to_owned()),
            LinkAttribute::ParentDevName("0000:3b:02.1".to_owned()),
            LinkAttribute::ParentDevBusName(bus.to_owned()),
        ];
        link_of(message).expect("a link")
    };
    assert_eq!(link("pci").pci.as_deref(), Some("0000:3b:02.1"));
    assert_eq!(link("virtio").pci, None);
}

#[test]
fn a_link_whose_address_no_station_has_has_none() {
    for bytes in [vec![], vec![0; 6], vec![1, 0, 0, 0, 0, 1], vec![2; 20]] {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName("eth0".to_owned()), LinkAttribute::Address(bytes)];
        assert_eq!(link_of(message).expect("a link").mac, None);
    }
    assert_eq!(link_of(LinkMessage::default()), None, "no name");
}

fn route(attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = u8::try_from(MAIN_TABLE).expect("a short number");
    message.header.kind = RouteType::Unicast;
    message.header.scope = RouteScope::Universe;
    message.attributes = attributes;
    message
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
