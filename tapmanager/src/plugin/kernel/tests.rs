use std::path::PathBuf;

use super::*;
use crate::sys::testbed::{apart, ip};

const CONTAINER: &str = "/run/netns/pod";

#[test]
fn a_link_is_addressed_in_its_container_and_comes_back_as_it_was() {
    apart(async || {
        let mut net = node();
        ip("link add ens1v0 type veth peer name far");
        ip("link set far up");
        let index = index_of(net.host(), "ens1v0");
        let name: IfName = "net1".parse().expect("a name");
        let pod = container(CONTAINER).expect("there");
        within(net.host(), |netlink| Ok(netdev::move_into(netlink, index, &pod, &name)?)).expect("moved");
        let index = index_of(&pod, "net1");
        net.bring_up(CONTAINER, index).expect("up");
        let addressing = addressing();
        assert_eq!(net.lacks(CONTAINER, index, &addressing).expect("listed").len(), 6, "nothing is there yet");
        net.address(CONTAINER, index, &addressing).expect("set");
        net.address(CONTAINER, index, &addressing).expect("set again");
        assert_eq!(net.lacks(CONTAINER, index, &addressing).expect("listed"), Vec::<String>::new());
        ip("-n pod route del 10.9.0.0/16");
        ip("-n pod address del fd00:20::7/64 dev net1");
        let lacking = net.lacks(CONTAINER, index, &addressing).expect("listed");
        assert_eq!(lacking[..2], ["the address `fd00:20::7/64`", "the route to `10.9.0.0/16`"]);
        net.take_out(CONTAINER, index, "ens1v0").expect("taken out");
        let index = index_of(net.host(), "ens1v0");
        net.settle(index, "ens1v0", true).expect("settled");
        net.settle(index, "other", false).expect("renamed");
        let links = within(net.host(), |netlink| Ok(link::links(netlink)?)).expect("listed");
        let found = links.into_iter().find(|link| link.index == index).expect("there");
        assert_eq!((found.name.as_str(), found.up), ("other", false));
    });
}

#[test]
fn a_route_of_another_link_is_not_replaced_and_a_name_that_is_taken_is_refused() {
    apart(async || {
        let mut net = node();
        ip("-n pod link add net1 type veth peer name far");
        ip("-n pod link add net2 type veth peer name away");
        for link in ["net1", "net2", "far", "away"] {
            ip(&format!("-n pod link set {link} up"));
        }
        ip("-n pod route add default dev net2");
        let index = index_of(&container(CONTAINER).expect("there"), "net1");
        let refused = net.address(CONTAINER, index, &addressing()).expect_err("there is one");
        assert_eq!(refused.to_string(), "failed to set the route to `0.0.0.0/0`");
        ip("link add ens1v0 type veth peer name there");
        net.take_out(CONTAINER, index, "ens1v0").expect_err("the name is taken");
        // The kernel moves it first, and then does not name it.
        let index = index_of(net.host(), "net1");
        net.settle(index, "ens1v0", false).expect_err("still taken");
        ip("link del ens1v0");
        net.settle(index, "ens1v0", false).expect("free");
        assert!(container("/run/netns/none").is_err());
    });
}

fn node() -> HostNet {
    ip("netns add pod");
    let host = Netns::open(&PathBuf::from("/proc/thread-self/ns/net")).expect("opened").expect("there");
    let none = Path::new("/nowhere");
    HostNet::in_netns(host, Sysfs::new(none, none)).expect("opened")
}

fn index_of(netns: &Netns, name: &str) -> u32 {
    let links = within(netns, |netlink| Ok(link::links(netlink)?)).expect("listed");
    links.into_iter().find(|link| link.name.as_str() == name).expect("there").index
}

fn addressing() -> Addressing {
    let plain = |dst: &str, gateway: Option<&str>| Route {
        dst: dst.parse().expect("a network"),
        gateway: gateway.map(|gateway| gateway.parse().expect("an address")),
        metric: None,
        table: None,
        mtu: None,
    };
    Addressing {
        addresses: vec!["10.20.0.7/24".parse().expect("an address"), "fd00:20::7/64".parse().expect("an address")],
        routes: vec![
            plain("0.0.0.0/0", Some("10.20.0.1")),
            plain("::/0", Some("fd00:20::1")),
            Route { metric: Some(50), mtu: Some(1400), ..plain("10.9.0.0/16", Some("10.20.0.2")) },
            Route { table: Some(1000), ..plain("10.8.0.0/16", None) },
        ],
    }
}
