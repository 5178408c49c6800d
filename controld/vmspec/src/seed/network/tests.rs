//! The files for networks as plugins make them. What cloud-init's renderers make of such files is the bed's tier `seed`.

use proto::tap::{Dns, NicKind, Route, Tap};

use super::*;
use crate::seed::json;

const BRIDGE: &[(&str, &str)] = &[("10.77.0.0/24", ""), ("0.0.0.0/0", "10.77.0.1")];
const BRIDGE6: &[(&str, &str)] = &[("fd00::/64", ""), ("::/0", "fd00::1")];

fn nic(name: &str, data_path: DataPath, addresses: &[&str], routes: &[(&str, &str)]) -> Nic {
    Nic {
        name: name.parse().expect("name"),
        network: "pods".into(),
        kind: NicKind::Tap(Tap { data_path, queues: 1 }),
        mac: "02:00:00:ab:00:01".parse().expect("mac"),
        mtu: 1450,
        addresses: addresses.iter().map(|net| net.parse().expect("net")).collect(),
        routes: routes
            .iter()
            .map(|(dst, gateway)| Route { dst: dst.parse().expect("net"), gateway: gateway.parse().ok() })
            .collect(),
    }
}

fn file(nics: Vec<Nic>, wish: NetworkConfig) -> String {
    let dns = Dns {
        servers: vec!["10.96.0.10".parse().expect("address")],
        searches: vec!["a.local".into(), "local".into()],
        options: vec![],
    };
    let net = PodNet { netns: "/run/netns/x".into(), nics, dns };
    let config = config(&net, wish).expect("a file is wanted");
    String::from_utf8(json::encode(&config).expect("JSON")).expect("text")
}

fn told(addresses: &[&str], routes: &[(&str, &str)]) -> String {
    file(vec![nic("eth0", DataPath::Tc, addresses, routes)], NetworkConfig::Static)
}

#[test]
fn who_asks_and_who_is_told() {
    for (data_path, wish, asks) in [
        (DataPath::Tc, NetworkConfig::Auto, true),
        (DataPath::Tc, NetworkConfig::Dhcp, true),
        (DataPath::Bridge, NetworkConfig::Auto, true),
        (DataPath::Bridge, NetworkConfig::Static, false),
        (DataPath::Macvtap, NetworkConfig::Auto, false),
        (DataPath::Macvtap, NetworkConfig::Dhcp, false),
        (DataPath::Macvtap, NetworkConfig::Static, false),
    ] {
        let text = file(vec![nic("eth0", data_path, &["10.77.0.2/24"], BRIDGE)], wish);
        assert_eq!(text.contains(r#""dhcp4":true"#), asks, "{data_path:?}, {wish:?}: {text}");
        assert_eq!(text.contains("10.77.0.2/24"), !asks, "{data_path:?}, {wish:?}: {text}");
    }
    let none = PodNet {
        netns: "/run/netns/x".into(),
        nics: vec![nic("eth0", DataPath::Macvtap, &[], &[])],
        dns: Dns::default(),
    };
    assert!(config(&none, NetworkConfig::None).is_none());
}

#[test]
fn a_nic_of_several_addresses_of_ipv4_is_told_unless_the_pod_says_otherwise() {
    let nics = || vec![nic("eth0", DataPath::Tc, &["10.77.0.2/24", "10.77.0.3/24", "fd00::2/64"], BRIDGE)];
    let text = file(nics(), NetworkConfig::Auto);
    assert!(text.contains("10.77.0.2/24") && text.contains("10.77.0.3/24"), "DHCP has one of them: {text}");
    assert!(file(nics(), NetworkConfig::Dhcp).contains(r#""dhcp4":true"#));
}

#[test]
fn asking_for_both_families() {
    let text = file(vec![nic("eth0", DataPath::Tc, &["10.77.0.2/24", "fd00::2/64"], BRIDGE)], NetworkConfig::Auto);
    insta::assert_snapshot!(text, @r#"{"version":2,"ethernets":{"eth0":{"match":{"macaddress":"02:00:00:ab:00:01"},"set-name":"eth0","mtu":1450,"dhcp4":true,"dhcp6":true,"accept-ra":true,"nameservers":{"addresses":["10.96.0.10"],"search":["a.local","local"]}}}}"#);
}

#[test]
fn told_as_the_bridge_plugin_makes_it() {
    let routes = [BRIDGE, &[("10.1.0.0/16", "10.77.0.9")], BRIDGE6].concat();
    insta::assert_snapshot!(told(&["10.77.0.2/24", "fd00::2/64"], &routes), @r#"{"version":1,"config":[{"type":"physical","name":"eth0","mac_address":"02:00:00:ab:00:01","mtu":1450,"accept-ra":false,"subnets":[{"type":"static","address":"10.77.0.2/24","gateway":"10.77.0.1","routes":[{"destination":"10.1.0.0/16","gateway":"10.77.0.9"}],"dns_nameservers":["10.96.0.10"],"dns_search":["a.local","local"]},{"type":"static6","address":"fd00::2/64","gateway":"fd00::1"}]}]}"#);
}

#[test]
fn told_a_router_that_is_link_local() {
    insta::assert_snapshot!(told(&["fd00::2/64"], &[("fd00::/64", ""), ("::/0", "fe80::1")]), @r#"{"version":1,"config":[{"type":"physical","name":"eth0","mac_address":"02:00:00:ab:00:01","mtu":1450,"accept-ra":false,"subnets":[{"type":"static6","address":"fd00::2/64","gateway":"fe80::1","dns_nameservers":["10.96.0.10"],"dns_search":["a.local","local"]}]}]}"#);
}

#[test]
fn told_several_addresses_of_one_family() {
    let routes = [("0.0.0.0/0", "10.77.0.1"), ("10.9.0.0/16", "10.88.0.1"), ("10.8.0.0/16", "10.77.0.5")];
    insta::assert_snapshot!(told(&["10.88.0.2/24", "10.77.0.2/24"], &routes), @r#"{"version":1,"config":[{"type":"physical","name":"eth0","mac_address":"02:00:00:ab:00:01","mtu":1450,"accept-ra":false,"subnets":[{"type":"static","address":"10.88.0.2/24","routes":[{"destination":"10.9.0.0/16","gateway":"10.88.0.1"}],"dns_nameservers":["10.96.0.10"],"dns_search":["a.local","local"]},{"type":"static","address":"10.77.0.2/24","gateway":"10.77.0.1","routes":[{"destination":"10.8.0.0/16","gateway":"10.77.0.5"}]}]}]}"#);
}

#[test]
fn told_as_ptp_makes_it() {
    let routes = [("10.77.0.1/32", ""), ("10.77.0.0/24", "10.77.0.1"), ("0.0.0.0/0", "10.77.0.1")];
    insta::assert_snapshot!(told(&["10.77.0.2/32"], &routes), @r#"{"version":2,"ethernets":{"eth0":{"match":{"macaddress":"02:00:00:ab:00:01"},"set-name":"eth0","mtu":1450,"dhcp4":false,"accept-ra":false,"addresses":["10.77.0.2/32"],"routes":[{"to":"10.77.0.0/24","via":"10.77.0.1","on-link":true},{"to":"0.0.0.0/0","via":"10.77.0.1","on-link":true}],"nameservers":{"addresses":["10.96.0.10"],"search":["a.local","local"]}}}}"#);
}

#[test]
fn told_as_calico_makes_it() {
    let routes = [("169.254.1.1/32", ""), ("0.0.0.0/0", "169.254.1.1"), ("::/0", "fe80::ecee:eeff:feee:eeee")];
    insta::assert_snapshot!(told(&["192.168.7.3/32", "fd00::3/128"], &routes), @r#"{"version":2,"ethernets":{"eth0":{"match":{"macaddress":"02:00:00:ab:00:01"},"set-name":"eth0","mtu":1450,"dhcp4":false,"accept-ra":false,"addresses":["192.168.7.3/32","fd00::3/128"],"routes":[{"to":"0.0.0.0/0","via":"169.254.1.1","on-link":true},{"to":"::/0","via":"fe80::ecee:eeff:feee:eeee"}],"nameservers":{"addresses":["10.96.0.10"],"search":["a.local","local"]}}}}"#);
}

#[test]
fn told_routes_on_the_link() {
    let routes = [("169.254.0.0/16", ""), ("fd01::/64", ""), ("0.0.0.0/0", "")];
    insta::assert_snapshot!(told(&["10.77.0.2/32", "fd00::2/128"], &routes), @r#"{"version":2,"ethernets":{"eth0":{"match":{"macaddress":"02:00:00:ab:00:01"},"set-name":"eth0","mtu":1450,"dhcp4":false,"accept-ra":false,"addresses":["10.77.0.2/32","fd00::2/128"],"routes":[{"to":"169.254.0.0/16","scope":"link"},{"to":"fd01::/64","scope":"link"},{"to":"0.0.0.0/0","scope":"link"}],"nameservers":{"addresses":["10.96.0.10"],"search":["a.local","local"]}}}}"#);
}

#[test]
fn a_default_route_whose_gateway_is_on_the_link_takes_what_is_on_the_link() {
    let beside = |routes: &[(&str, &str)], rival: &[(&str, &str)]| {
        let nic = nic("eth0", DataPath::Macvtap, &["10.77.0.2/24", "fd00::2/64"], routes);
        let rival = self::nic("eth1", DataPath::Tc, &["10.78.0.2/24"], rival);
        let net = PodNet { netns: "/run/netns/x".into(), nics: vec![nic.clone(), rival], dns: Dns::default() };
        let Way::Told(told) = Way::of(&nic, &net, NetworkConfig::Auto) else { panic!("it is told") };
        let names = (on_link(&net, NetworkConfig::Auto), on_link(&net, NetworkConfig::None));
        assert_eq!(names.1, [""; 0]);
        (told.iter().map(|route| route.dst.to_string()).collect::<Vec<_>>(), !names.0.is_empty())
    };
    let told = |routes: &[(&str, &str)]| beside(routes, &[]);
    let links = [("169.254.0.0/16", ""), ("10.5.0.0/16", ""), ("fd01::/64", "")];
    let with = |others: &[(&'static str, &'static str)]| told(&[&links, others].concat());
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let outside = [("0.0.0.0/0", "169.254.1.1"), ("10.6.0.0/16", "169.254.1.2")];
    assert_eq!(with(&outside), (words(&["fd01::/64", "0.0.0.0/0", "10.6.0.0/16"]), true), "of its own family");
    assert_eq!(with(&[outside[0], ("::/0", "fe80::1")]), (words(&["0.0.0.0/0", "::/0"]), false));
    let (routes, all) = (
        [&links[..], &outside].concat(),
        words(&["169.254.0.0/16", "10.5.0.0/16", "fd01::/64", "0.0.0.0/0", "10.6.0.0/16"]),
    );
    assert_eq!(beside(&routes, &[("0.0.0.0/0", "10.78.0.1")]), (all, true), "the guest may prefer the other NIC's");
    let inside = [("0.0.0.0/0", "10.77.0.1"), ("::/0", "fd00::1")];
    let all = words(&["169.254.0.0/16", "10.5.0.0/16", "fd01::/64", "0.0.0.0/0", "::/0"]);
    assert_eq!(with(&inside), (all, true), "a gateway of the subnet may know nothing of them");
    assert!(with(&[("10.6.0.0/16", "169.254.1.2")]).1, "nor does one of a part");
}

#[test]
fn one_nic_asks_and_one_is_told() {
    let nics = || {
        vec![
            nic("eth0", DataPath::Tc, &["10.77.0.2/24", "fd00::2/64"], BRIDGE),
            nic("net1", DataPath::Macvtap, &["10.88.0.2/24"], &[]),
            nic("net2", DataPath::Macvtap, &[], &[]),
        ]
    };
    insta::assert_snapshot!(file(nics(), NetworkConfig::Auto), @r#"{"version":1,"config":[{"type":"physical","name":"eth0","mac_address":"02:00:00:ab:00:01","mtu":1450,"accept-ra":true,"subnets":[{"type":"dhcp4","dns_nameservers":["10.96.0.10"],"dns_search":["a.local","local"]},{"type":"dhcp6"}]},{"type":"physical","name":"net1","mac_address":"02:00:00:ab:00:01","mtu":1450,"accept-ra":false,"subnets":[{"type":"static","address":"10.88.0.2/24"}]},{"type":"physical","name":"net2","mac_address":"02:00:00:ab:00:01","mtu":1450,"accept-ra":false,"subnets":[{"type":"manual"}]}]}"#);
    // The resolver settings stand where there is an address to reach the resolver from.
    let mut nics = nics();
    nics.rotate_right(1);
    let text = file(nics, NetworkConfig::Auto);
    let (bare, others) = text.split_once(r#""name":"eth0""#).expect("two NICs");
    assert!(!bare.contains("dns_") && others.contains("dns_"), "{text}");
}

#[test]
fn the_resolver_stands_at_a_nic_of_its_family() {
    let nics = vec![
        nic("eth0", DataPath::Tc, &["fd00::2/64"], BRIDGE6),
        nic("net1", DataPath::Tc, &["10.77.0.2/24"], BRIDGE),
        nic("net2", DataPath::Tc, &["10.88.0.2/24"], &[]),
    ];
    for (wish, key) in [(NetworkConfig::Static, "dns_nameservers"), (NetworkConfig::Dhcp, "nameservers")] {
        let text = file(nics.clone(), wish);
        let parts = text.split_once("net1").and_then(|(one, rest)| Some((one, rest.split_once("net2")?)));
        let (one, (two, three)) = parts.expect("three NICs");
        assert_eq!([one, two, three].map(|part| part.contains(key)), [false, true, false], "{text}");
    }
}

#[test]
fn a_resolver_of_a_family_that_no_nic_has_stands_at_the_first_with_an_address() {
    let nics = vec![
        nic("eth0", DataPath::Tc, &[], &[]),
        nic("net1", DataPath::Tc, &["fd00::2/64"], BRIDGE6),
        nic("net2", DataPath::Tc, &["fd00:1::2/64"], &[]),
    ];
    let text = file(nics, NetworkConfig::Static);
    let (_, after) = text.split_once("net1").expect("a second NIC");
    let (second, third) = after.split_once("net2").expect("a third NIC");
    assert!(second.contains("dns_nameservers") && !third.contains("dns_"), "{text}");
}

#[test]
fn told_by_no_resolver() {
    let net = PodNet {
        netns: "/run/netns/x".into(),
        nics: vec![nic("eth0", DataPath::Macvtap, &["10.77.0.2/24"], BRIDGE)],
        dns: Dns::default(),
    };
    let config = config(&net, NetworkConfig::Auto).expect("a file is wanted");
    let text = String::from_utf8(json::encode(&config).expect("JSON")).expect("text");
    assert!(!text.contains("dns"), "{text}");
}

#[test]
fn a_gateway_outside_of_the_subnet_is_one_that_not_every_guest_can_be_told() {
    let calico = [("169.254.1.1/32", ""), ("0.0.0.0/0", "169.254.1.1")];
    let off = |addresses: &[&str], routes: &[(&str, &str)], data_path, wish| {
        let nics = vec![nic("eth0", DataPath::Tc, &["10.1.0.2/24"], &[]), nic("net1", data_path, addresses, routes)];
        off_subnet(&PodNet { netns: "/run/netns/x".into(), nics, dns: Dns::default() }, wish)
    };
    use DataPath::{Macvtap, Tc};
    use NetworkConfig::{Auto, Dhcp, None, Static};
    assert_eq!(off(&["10.2.0.3/32"], &calico, Tc, Static), ["net1"]);
    assert_eq!(off(&["10.2.0.3/32"], &calico, Macvtap, Dhcp), ["net1"]);
    assert_eq!(off(&["10.2.0.3/32", "10.2.0.4/32"], &calico, Tc, Auto), ["net1"]);
    assert_eq!(off(&["10.77.0.2/24"], &[("169.254.0.0/16", "")], Macvtap, Auto), ["net1"], "a route on the link");
    let nobody: [&str; 0] = [];
    assert_eq!(off(&["10.2.0.3/32"], &calico, Tc, Auto), nobody, "it asks");
    assert_eq!(off(&["10.2.0.3/32"], &calico, Macvtap, None), nobody, "it is told nothing");
    assert_eq!(off(&["10.77.0.2/24"], BRIDGE, Macvtap, Static), nobody);
    assert_eq!(off(&["fd00::2/128"], &[("::/0", "fe80::1")], Macvtap, Auto), nobody, "a router of IPv6");
}
