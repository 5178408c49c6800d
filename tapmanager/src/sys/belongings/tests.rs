use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressProtocol};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteNextHop, RouteProtocol, RouteType};

use super::*;

#[test]
fn addresses_of_the_kernels_making_and_those_that_lapse_are_not_kept() {
    let address = |attributes: Vec<AddressAttribute>| {
        let mut message = AddressMessage::default();
        message.attributes = vec![AddressAttribute::Address("fd00::2".parse().expect("an address"))];
        message.attributes.extend(attributes);
        address::held(&message)
    };
    let lasting = AddressAttribute::Flags(AddressFlags::Permanent);
    assert!(address(vec![lasting.clone()]).is_some());
    assert!(address(vec![lasting.clone(), AddressAttribute::Protocol(AddressProtocol::Other(0))]).is_some());
    assert_eq!(address(vec![]), None);
    for protocol in [AddressProtocol::LinkLocal, AddressProtocol::RouterAnnouncement] {
        assert_eq!(address(vec![lasting.clone(), AddressAttribute::Protocol(protocol)]), None);
    }
}

#[test]
fn routes_that_were_learned_or_go_over_other_links_are_not_kept() {
    let kept = route(vec![RouteAttribute::Oif(2)]);
    assert!(route::held(&kept, 2).is_some());
    assert_eq!(route::held(&kept, 3), None);
    let mut learned = kept.clone();
    learned.header.protocol = RouteProtocol::Ra;
    let mut subnet = kept.clone();
    subnet.header.protocol = RouteProtocol::Kernel;
    let mut local = kept.clone();
    local.header.table = 255;
    let mut nowhere = kept.clone();
    nowhere.header.kind = RouteType::BlackHole;
    let mut cloned = kept.clone();
    cloned.header.flags = RouteFlags::Cloned;
    let shared = route(vec![RouteAttribute::MultiPath(vec![hop(2), hop(3)])]);
    let none = route(vec![]);
    for message in [learned, subnet, local, nowhere, cloned, shared, none] {
        assert_eq!(route::held(&message, 2), None, "{message:?}");
    }
    assert!(route::held(&route(vec![RouteAttribute::MultiPath(vec![hop(2), hop(2)])]), 2).is_some());
}

#[test]
fn a_route_that_is_made_again_is_the_same() {
    let mut message = route(vec![
        RouteAttribute::Oif(2),
        RouteAttribute::Gateway("10.0.0.1".parse::<std::net::IpAddr>().expect("an address").into()),
        RouteAttribute::Table(1000),
        RouteAttribute::Priority(7),
        RouteAttribute::PrefSource("10.0.0.2".parse::<std::net::IpAddr>().expect("an address").into()),
    ]);
    message.header.flags = RouteFlags::Onlink | RouteFlags::Linkdown;
    let held = route::held(&message, 2).expect("kept");
    let json = serde_json::to_string(&held).expect("JSON");
    let again: HeldRoute = serde_json::from_str(&json).expect("the same");
    assert_eq!(route::held(&again.message(9), 9), Some(held));
}

fn route(attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = netlink_packet_route::AddressFamily::Inet;
    message.header.kind = RouteType::Unicast;
    message.header.table = 254;
    message.header.protocol = RouteProtocol::Static;
    message.attributes = attributes;
    message
}

fn hop(index: u32) -> RouteNextHop {
    let mut hop = RouteNextHop::default();
    hop.interface_index = index;
    hop
}
