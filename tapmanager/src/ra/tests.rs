//! The server as bytes: what it says of which router, and how it finds one. With any bytes at all: [`hostile`]. With the
//! kernel and real clients, those of DHCPv6 too: [`clients`], on [`bed`].

mod bed;
mod clients;
mod hostile;

use std::net::IpAddr;

use super::*;
use crate::served_nic::{VM, nic, routes};
use crate::sys::bpf::interpreter;

const GATEWAY_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];
const NEW_GATEWAY_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfd];
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const GUEST: &str = "fe80::ff:fe00:1";
const NONE: &str = "::";
/// `fd00:77::1` as the guest sees it.
const STAND_IN: &str = "fe80::fd00:77:0:1";

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// As the bridge plugin makes them.
fn bridged() -> Nic {
    nic(&["10.77.0.2/24", "fd00:77::2/64"], &[("0.0.0.0/0", "10.77.0.1"), ("::/0", "fd00:77::1")])
}

/// As ptp makes them.
fn alone() -> Nic {
    nic(&["fd00:77::2/128"], &[("fd00:77::1/128", ""), ("fd00:77::/64", "fd00:77::1"), ("::/0", "fd00:77::1")])
}

/// As Calico makes them.
fn calico() -> Nic {
    nic(&["fd00:77::2/128"], &[("::/0", "fe80::ecee:eeff:feee:eeee")])
}

fn dns(servers: &[&str], searches: &[&str]) -> Dns {
    let servers = servers.iter().map(|server| server.parse::<IpAddr>().unwrap()).collect();
    Dns { servers, searches: searches.iter().map(|&domain| domain.to_owned()).collect(), options: Vec::new() }
}

fn server(nic: &Nic) -> Server {
    Server::new(nic, &dns(&["10.96.0.10", "fd00:96::a"], &["svc.cluster.local", "cluster.local"])).unwrap()
}

/// A message of ICMPv6 in its frame, with its checksum undone.
fn frame(from_mac: [u8; 6], from: &str, to_mac: [u8; 6], to: &str, hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap().to_be_bytes();
    let ip = [&[0x60, 0, 0, 0], &len[..], &[58, hop_limit], &ip(from).octets(), &ip(to).octets()].concat();
    [&to_mac[..], &from_mac, &[0x86, 0xdd], &ip, message].concat()
}

fn solicit_routers(from: &str) -> Vec<u8> {
    let mut message = vec![133, 0, 0, 0, 0, 0, 0, 0];
    if from != NONE {
        message.extend([&[1, 1][..], &VM].concat());
    }
    frame(VM, from, [0x33, 0x33, 0, 0, 0, 2], "ff02::2", 255, &message)
}

/// The guest asks for the neighbour `target`.
fn solicit(from: &str, target: &str) -> Vec<u8> {
    let mut message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &ip(target).octets()].concat();
    if from != NONE {
        message.extend([&[1, 1][..], &VM].concat());
    }
    frame(VM, from, [0x33, 0x33, 0xff, 0, 0, 1], "ff02::1:ff00:1", 255, &message)
}

/// The network says where the gateway is.
fn advertise(to: &str, flags: u8, mac: [u8; 6]) -> Vec<u8> {
    let target = ip("fd00:77::1").octets();
    let message = [&[136, 0, 0, 0, flags, 0, 0, 0][..], &target, &[2, 1], &mac].concat();
    let to_mac = if to == "ff02::1" { ALL_NODES_MAC } else { VM };
    frame(mac, "fd00:77::1", to_mac, to, 255, &message)
}

/// What a frame is, in a line. Everything in it has to be in order.
fn told(frame: &[u8]) -> String {
    assert!(frame.len() <= 14 + 1280, "{}", frame.len());
    let packet = parse(frame).unwrap();
    let Packet { from, to, payload, .. } = packet;
    assert_eq!((packet.next_header, packet.hop_limit), (58, 255));
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let pseudo = [&from.octets()[..], &to.octets(), &len, &[0, 0, 0, 58]].concat();
    assert_eq!(crate::checksum::checksum(&[&pseudo, payload]), 0);
    if to.is_multicast() {
        assert_eq!(packet.to_mac, group_mac(to));
    }
    let (what, options) = match payload[0] {
        134 => {
            assert!(from.is_unicast_link_local());
            assert_eq!((payload[1], payload[4], payload[5], &payload[8..16]), (0, 0, 0xc0, &[0; 8][..]));
            (format!("router {from} for {}", u16::from_be_bytes([payload[6], payload[7]])), &payload[16..])
        }
        kind @ (135 | 136) => {
            let target: [u8; 16] = payload[8..24].try_into().unwrap();
            let kind = if kind == 135 { "where is".to_owned() } else { format!("{:#x}", payload[4]) };
            (format!("{from} {kind} {}", Ipv6Addr::from(target)), &payload[24..])
        }
        kind => panic!("{kind}"),
    };
    format!("to {to}: {what}{}", told_options(options))
}

fn told_options(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while !bytes.is_empty() {
        let (option, rest) = bytes.split_at(usize::from(bytes[1]) * 8);
        let address = |at: usize| {
            let mut octets = [0; 16];
            let have = option.get(at..).unwrap_or_default();
            octets[..have.len().min(16)].copy_from_slice(&have[..have.len().min(16)]);
            Ipv6Addr::from(octets)
        };
        let for_ever = |at: usize| assert_eq!(option[at..at + 4], [0xff; 4]);
        text += &match option[0] {
            1 | 2 => format!("; at {}", MacAddr::new(option[2..8].try_into().unwrap()).unwrap()),
            3 => {
                assert_eq!(option[3], 0x80, "on the link, and nothing to make addresses of");
                for_ever(4);
                for_ever(8);
                format!("; prefix {}/{}", address(16), option[2])
            }
            5 => format!("; mtu {}", u32::from_be_bytes(option[4..8].try_into().unwrap())),
            24 => {
                for_ever(4);
                format!("; route {}/{}", address(8), option[2])
            }
            25 => {
                for_ever(4);
                let servers: Vec<_> = (8..option.len()).step_by(16).map(address).collect();
                format!("; dns {servers:?}")
            }
            31 => {
                for_ever(4);
                format!("; search {:?}", String::from_utf8_lossy(&option[8..]))
            }
            other => panic!("option {other}"),
        };
        bytes = rest;
    }
    text
}

fn all_told(frames: &[Vec<u8>]) -> Vec<String> {
    frames.iter().map(|frame| told(frame)).collect()
}

#[test]
fn a_nic_without_global_addresses_advertises_nothing() {
    for addresses in [&[][..], &["10.77.0.2/24"], &["fe80::2/64"]] {
        assert!(Server::new(&nic(addresses, &[("::/0", "fe80::1")]), &dns(&[], &[])).is_none(), "{addresses:?}");
    }
}

#[test]
fn each_gateway_is_a_router_for_its_own_routes() {
    let cases = [
        ("bridge", bridged(), &["router fe80::fd00:77:0:1 for 65535; mtu 1450; prefix fd00:77::/64"][..]),
        ("ptp", alone(), &["router fe80::fd00:77:0:1 for 65535; mtu 1450; prefix fd00:77::1/128; route fd00:77::/64"]),
        ("calico", calico(), &["router fe80::ecee:eeff:feee:eeee for 65535; mtu 1450"]),
        (
            "no gateway",
            nic(&["fd00:77::2/64", "fd00:78::2/128"], &[("fd00:79::/48", "")]),
            &["router fe80::7669:7274:1 for 0; mtu 1450; prefix fd00:77::/64; prefix fd00:79::/48"],
        ),
        (
            "the subnet by a gateway",
            nic(&["fd00:77::2/64"], &[("fd00:77::/64", "fe80::1")]),
            &["router fe80::1 for 0; mtu 1450; route fd00:77::/64"],
        ),
        (
            "all on the link",
            nic(&["fd00:77::2/128"], &[("::/0", "")]),
            &["router fe80::7669:7274:1 for 0; mtu 1450; prefix ::/0"],
        ),
        (
            "several gateways",
            nic(
                &["fd00:77::2/64"],
                &[
                    ("fd00:a::/32", "fd00:77::9"),
                    ("fd00:b::/65", "fe80::1"),
                    ("fd00:c::/64", "fd00:77::9"),
                    ("::/0", "fe80::1"),
                ],
            ),
            &[
                "router fe80::fd00:77:0:9 for 0; mtu 1450; prefix fd00:77::/64; route fd00:a::/32; route fd00:c::/64",
                "router fe80::1 for 65535; mtu 1450; route fd00:b::/65",
            ],
        ),
        (
            "stand-ins that would be the same",
            nic(
                &["fd00:77::2/64"],
                &[("fd00:a::/64", "fd00:77::1"), ("fd00:b::/64", "fd00:1:0:0:0:76:0:1"), ("::/0", STAND_IN)],
            ),
            &[
                "router fe80::fd00:77:0:2 for 0; mtu 1450; prefix fd00:77::/64; route fd00:a::/64",
                "router fe80::fd00:77:0:3 for 0; mtu 1450; route fd00:b::/64",
                "router fe80::fd00:77:0:1 for 65535; mtu 1450",
            ],
        ),
        (
            "next hops that are none",
            nic(&["fd00:77::2/64"], &[("::/0", "10.0.0.1"), ("fd00:a::/64", "ff02::1"), ("fd00:b::/64", "::")]),
            &["router fe80::7669:7274:1 for 0; mtu 1450; prefix fd00:77::/64"],
        ),
        ("a link too small for IPv6", Nic { mtu: 1279, ..calico() }, &["router fe80::ecee:eeff:feee:eeee for 65535"]),
    ];
    for (what, nic, expected) in cases {
        let server = Server::new(&nic, &dns(&["10.96.0.10"], &[])).unwrap();
        let expected: Vec<_> = expected.iter().map(|told| format!("to ff02::1: {told}")).collect();
        assert_eq!(all_told(&server.unsolicited()), expected, "{what}");
    }
}

#[test]
fn resolvers_and_search_domains_are_told_if_there_are_any() {
    let routed = nic(&["fd00:77::2/128"], &[("::/0", "fe80::1"), ("fd00:a::/64", "fe80::2")]);
    let resolvers = dns(&["10.96.0.10", "fd00:96::a", "fd00:96::b"], &["a.b.", "not a domain", "c"]);
    let server = Server::new(&routed, &resolvers).unwrap();
    let expected = [
        "to ff02::1: router fe80::1 for 65535; mtu 1450; dns [fd00:96::a, fd00:96::b]; \
         search \"\\u{1}a\\u{1}b\\0\\u{1}c\\0\"",
        "to ff02::1: router fe80::2 for 0; mtu 1450; route fd00:a::/64",
    ];
    assert_eq!(all_told(&server.unsolicited()), expected);
}

#[test]
fn what_does_not_fit_into_one_packet_goes_into_several() {
    let many: Vec<String> = (0..200).map(|net| format!("fd00:{net:x}::/64")).collect();
    let routes: Vec<(&str, &str)> =
        many.iter().map(|dst| (dst.as_str(), "fe80::1")).chain([("::/0", "fe80::1")]).collect();
    let nic = nic(&["fd00:77::2/128"], &routes);
    let searches: Vec<String> = (0..40).map(|n| format!("{}.cluster{n}.local", "x".repeat(50))).collect();
    let long = Dns { servers: vec![ip("fd00:96::a").into(); 60], searches, options: Vec::new() };
    let told = all_told(&Server::new(&nic, &long).unwrap().unsolicited());
    assert!(told.len() > 3, "{told:?}");
    assert!(told.iter().all(|told| told.starts_with("to ff02::1: router fe80::1 for 65535")), "{told:?}");
    let count = |what: &str| told.iter().map(|told| told.matches(what).count()).sum::<usize>();
    assert_eq!((count("; route "), count("fd00:96::a"), count(".local"), count("local")), (200, 60, 0, 40));
}

#[test]
fn a_solicitation_of_the_guest_is_answered_at_once() {
    let mut server = server(&calico());
    let told = |server: &mut Server, frame: &[u8]| {
        let Answers { to_guest, to_link } = server.handle_frame(frame);
        assert_eq!(to_link, Vec::<Vec<u8>>::new());
        to_guest.iter().map(|frame| (parse(frame).unwrap().to_mac, parse(frame).unwrap().to)).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut server, &solicit_routers(GUEST)), [(VM, ip(GUEST))]);
    assert_eq!(told(&mut server, &solicit_routers(NONE)), [(ALL_NODES_MAC, ALL_NODES)]);
}

#[test]
fn what_the_rfc_discards_gets_no_answer() {
    let solicitation = |change: fn(&mut Vec<u8>)| {
        let mut frame = solicit_routers(GUEST);
        change(&mut frame);
        frame
    };
    let neighbour = |change: fn(&mut Vec<u8>)| {
        let mut frame = solicit(GUEST, STAND_IN);
        change(&mut frame);
        frame
    };
    let from_nobody = |mut frame: Vec<u8>| {
        frame[22..38].fill(0);
        frame
    };
    let cases = [
        ("another machine's", solicitation(|frame| frame[11] = 2)),
        ("from another link", solicitation(|frame| frame[21] = 254)),
        ("another code", solicitation(|frame| frame[55] = 1)),
        ("another protocol", solicitation(|frame| frame[20] = 17)),
        ("another version", solicitation(|frame| frame[14] = 0x40)),
        ("an option of no length", solicitation(|frame| frame[63] = 0)),
        ("an option longer than the message", solicitation(|frame| frame[63] = 2)),
        ("a packet longer than the frame", solicitation(|frame| frame.truncate(65))),
        ("from nobody, with an address", from_nobody(solicit_routers(GUEST))),
        ("neighbour from another link", neighbour(|frame| frame[21] = 1)),
        ("a group as neighbour", solicit(GUEST, "ff02::1")),
        ("neighbour from nobody, with an address", from_nobody(solicit(GUEST, STAND_IN))),
        ("neighbour from nobody to one station", {
            let mut frame = solicit(NONE, STAND_IN);
            frame[38..54].copy_from_slice(&ip(STAND_IN).octets());
            frame
        }),
        ("a neighbour that answers for itself", solicit(GUEST, "fd00:77::1")),
        ("an advertisement", advertise(GUEST, 0x60, VM)),
    ];
    for (what, frame) in cases {
        assert_eq!(server(&bridged()).handle_frame(&frame), Answers::default(), "{what}");
    }
}

#[test]
fn a_global_gateway_is_asked_where_it_is_each_time_that_the_guest_asks() {
    let mut server = server(&bridged());
    assert!(server.needs_link());
    // Whoever the guest says it is, the network is asked by the pod.
    for from in [GUEST, "fe80::abcd", "2001:db8::1"] {
        let Answers { to_guest, to_link } = server.handle_frame(&solicit(from, STAND_IN));
        assert_eq!(to_guest, Vec::<Vec<u8>>::new());
        let asked = parse(&to_link[0]).unwrap();
        assert_eq!((asked.from_mac, to_link.len()), (VM, 1));
        let question = "to ff02::1:ff00:1: fd00:77::2 where is fd00:77::1; at 02:00:00:00:00:01";
        assert_eq!(told(&to_link[0]), question);
        // What the gateway says to the pod is said to the guest of the stand-in: a router, solicited, override.
        let heard = server.handle_link_frame(&advertise("fd00:77::2", 0x60, GATEWAY_MAC));
        let answer = format!("to {}: {STAND_IN} 0xe0 {STAND_IN}; at 02:00:00:00:00:fe", ip(from));
        assert_eq!(all_told(&heard), [answer]);
        assert_eq!(parse(&heard[0]).unwrap().to_mac, VM);
    }
}

#[test]
fn a_gateway_that_moves_is_followed() {
    let mut server = server(&bridged());
    for (flags, expected) in [(0x20, "0xa0"), (0, "0x80")] {
        let heard = server.handle_link_frame(&advertise("ff02::1", flags, NEW_GATEWAY_MAC));
        let answer = format!("to ff02::1: {STAND_IN} {expected} {STAND_IN}; at 02:00:00:00:00:fd");
        assert_eq!(all_told(&heard), [answer]);
    }
}

#[test]
fn of_others_than_the_gateways_nothing_is_said() {
    let edit = |change: fn(&mut Vec<u8>)| {
        let mut frame = advertise("fd00:77::2", 0x60, GATEWAY_MAC);
        change(&mut frame);
        frame
    };
    let cases = [
        ("another's", edit(|frame| frame[77] = 9)),
        ("for another machine", edit(|frame| frame[5] = 9)),
        ("from the guest itself", edit(|frame| frame[11] = 1)),
        ("at the guest itself", advertise("fd00:77::2", 0x60, VM)),
        ("at a group", advertise("fd00:77::2", 0x60, ALL_NODES_MAC)),
        ("nowhere", edit(|frame| frame[78] = 1)),
        ("to all, solicited", advertise("ff02::1", 0x60, GATEWAY_MAC)),
        ("from another link", edit(|frame| frame[21] = 64)),
        ("cut off", edit(|frame| frame.truncate(70))),
        ("a question", solicit(GUEST, "fd00:77::1")),
    ];
    for (what, frame) in cases {
        assert_eq!(server(&bridged()).handle_link_frame(&frame), Vec::<Vec<u8>>::new(), "{what}");
    }
}

#[test]
fn a_link_local_gateway_answers_for_itself() {
    let mut server = server(&calico());
    assert!(!server.needs_link());
    assert_eq!(server.handle_frame(&solicit(GUEST, "fe80::ecee:eeff:feee:eeee")), Answers::default());
    assert_eq!(server.handle_link_frame(&advertise("ff02::1", 0x20, GATEWAY_MAC)), Vec::<Vec<u8>>::new());
}

#[test]
fn a_permanent_neighbour_is_answered_for_and_the_network_is_not_asked() {
    let known = |ip: &str| Neighbour { link: 2, ip: ip.parse().unwrap(), mac: MacAddr::new(GATEWAY_MAC).unwrap() };
    let asked = |nic: &Nic, ip: &str, target: &str| {
        let mut server = server(nic).knowing(&[known(ip), known("169.254.1.1")]);
        let Answers { to_guest, to_link } = server.handle_frame(&solicit(GUEST, target));
        assert_eq!(to_link, Vec::<Vec<u8>>::new());
        assert_eq!(server.handle_link_frame(&advertise("ff02::1", 0x20, NEW_GATEWAY_MAC)), Vec::<Vec<u8>>::new());
        (server.needs_link(), all_told(&to_guest).concat())
    };
    let answer = |target: &str, flags| format!("to {GUEST}: {target} {flags} {target}; at 02:00:00:00:00:fe");
    let link_local = "fe80::ecee:eeff:feee:eeee";
    assert_eq!(asked(&calico(), link_local, link_local), (false, answer(link_local, "0xe0")), "a router");
    assert_eq!(asked(&bridged(), "fd00:77::1", STAND_IN), (false, answer(STAND_IN, "0xe0")), "a stand-in");
    assert_eq!(asked(&bridged(), "fd00:77::1", "fd00:77::1"), (false, answer("fd00:77::1", "0xe0")), "by its own name");
    assert_eq!(asked(&calico(), "fd00:77::9", "fd00:77::9"), (false, answer("fd00:77::9", "0x60")), "no router");
}

#[test]
fn no_guest_takes_the_stand_in_for_itself() {
    let Answers { to_guest, to_link } = server(&bridged()).handle_frame(&solicit(NONE, STAND_IN));
    assert_eq!(all_told(&to_guest), [format!("to ff02::1: {STAND_IN} 0xa0 {STAND_IN}")]);
    assert_eq!(to_link, Vec::<Vec<u8>>::new());
}

#[test]
fn the_links_socket_hears_neighbour_advertisements_alone() {
    let hears =
        |frame: &[u8], vlan_tagged| interpreter::run(&link_filter(), interpreter::Input { frame, vlan_tagged }) != 0;
    let said = advertise("ff02::1", 0x20, GATEWAY_MAC);
    assert!(hears(&said, false));
    assert!(!hears(&said, true));
    assert!(!hears(&solicit(GUEST, "fd00:77::1"), false));
    for len in 0..55 {
        assert!(!hears(&said[..len], false), "{len}");
    }
}
