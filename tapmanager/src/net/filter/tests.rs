use super::layout::*;
use super::*;
use crate::sys::bpf::interpreter::{Input, run};

pub(in crate::net) mod frames;
pub(in crate::net) mod identity;
mod model;

pub(in crate::net) use frames::*;

/// Frames, and whether each crosses: from a guest that may be anybody and is served by its pod in both families, and to it.
/// The real kernel is asked about them as well.
pub(in crate::net) fn table() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    let udp4 = |port| ethernet(OTHER, IPV4, &ipv4(17, &[], 0, &udp(port)));
    let udp6 = |port| ethernet(OTHER, IPV6, &ipv6(17, &udp(port)));
    let icmp6 = |kind| ethernet(OTHER, IPV6, &ipv6(58, &[kind, 0, 0, 0, 0, 0, 0, 0]));
    let fragment4 = |flags_offset, port| ethernet(OTHER, IPV4, &ipv4(17, &[], flags_offset, &udp(port)));
    let behind = |extensions: &[u8], last, payload: &[u8]| ethernet(OTHER, IPV6, &chain(extensions, 0, last, payload));
    let ra: &[u8] = &[134, 0, 0, 0];
    let patched = |mut frame: Vec<u8>, at: usize, byte: u8| {
        frame[at] = byte;
        frame
    };
    let cut = |frame: Vec<u8>, len: usize| frame.into_iter().take(len).collect::<Vec<u8>>();
    vec![
        ("ARP", ethernet(OTHER, 0x0806, &[0; 28]), true, true),
        ("TCP over IPv4", ethernet(OTHER, IPV4, &ipv4(6, &[], 0, &udp(67))), true, true),
        ("TCP over IPv6", ethernet(OTHER, IPV6, &ipv6(6, &udp(547))), true, true),
        ("DNS", udp4(53), true, true),
        ("DHCPv4 request", udp4(67), false, true),
        ("DHCPv4 reply", udp4(68), false, false),
        ("DHCPv6 request", udp6(547), false, true),
        ("DHCPv6 reply", udp6(546), false, false),
        ("from a DHCPv4 server", ethernet(OTHER, IPV4, &ipv4(17, &[], 0, &udp_from(67, 4011))), false, true),
        ("from a DHCPv6 server", ethernet(OTHER, IPV6, &ipv6(17, &udp_from(547, 4011))), false, true),
        (
            "from a DHCPv4 client to something else",
            ethernet(OTHER, IPV4, &ipv4(17, &[], 0, &udp_from(68, 53))),
            true,
            true,
        ),
        ("from the port of the other family", ethernet(OTHER, IPV6, &ipv6(17, &udp_from(67, 53))), true, true),
        ("port of the other family over IPv4", udp4(547), true, true),
        ("port of the other family over IPv6", udp6(67), true, true),
        ("router advertisement", icmp6(134), false, false),
        ("router solicitation", icmp6(133), false, true),
        ("neighbour solicitation", icmp6(135), true, true),
        ("DHCPv4 request behind options", ethernet(OTHER, IPV4, &ipv4(17, &[1; 40], 0, &udp(67))), false, true),
        ("DHCPv4 reply behind options", ethernet(OTHER, IPV4, &ipv4(17, &[1; 4], 0, &udp(68))), false, false),
        ("port 67 in the options only", ethernet(OTHER, IPV4, &ipv4(17, &[0, 0, 0, 67], 0, &udp(53))), true, true),
        ("first fragment of a DHCPv4 request", fragment4(0x2000, 67), false, true),
        ("first fragment of a DHCPv4 reply", fragment4(0x2000, 68), false, false),
        ("later fragment that looks like both", fragment4(1, 67), true, true),
        ("cut off in the IPv4 header", cut(udp4(53), 14 + 19), false, false),
        ("cut off in the UDP header", cut(udp4(53), 14 + 20 + 7), false, false),
        (
            "cut off inside the options",
            cut(ethernet(OTHER, IPV4, &ipv4(17, &[1; 40], 0, &udp(53))), 14 + 24),
            false,
            false,
        ),
        ("IPv4 header alone, other protocol", cut(ethernet(OTHER, IPV4, &ipv4(6, &[], 0, &[])), 34), true, true),
        ("nothing behind the Ethernet header", ethernet(OTHER, 0x88cc, &[]), true, true),
        ("IPv4 type and nothing", ethernet(OTHER, IPV4, &[]), false, false),
        ("IPv6 type and nothing", ethernet(OTHER, IPV6, &[]), false, false),
        ("cut off in the Ethernet header", cut(udp4(53), 13), false, false),
        ("router advertisement behind hop-by-hop", behind(&[0], 58, ra), false, false),
        ("router advertisement behind destination options", behind(&[60], 58, ra), false, false),
        ("router advertisement in an atomic fragment", behind(&[44], 58, ra), false, false),
        ("router advertisement behind all", behind(&[0, 60, 43, 44, 60], 58, ra), false, false),
        ("DHCPv6 request behind all", behind(&[0, 60, 43, 44, 60], 17, &udp(547)), false, true),
        ("DHCPv6 reply behind all", behind(&[0, 60, 43, 44, 60], 17, &udp(546)), false, false),
        ("DNS behind all", behind(&[0, 60, 43, 44, 60], 17, &udp(53)), true, true),
        ("TCP behind all", behind(&[0, 60, 43, 44, 60], 6, &udp(546)), true, true),
        ("one extension header too many", behind(&[0, 60, 43, 60, 60, 60], 6, &udp(1)), false, false),
        (
            "fragment header whose reserved byte is a length in disguise",
            ethernet(OTHER, IPV6, &ipv6(44, &[58, 1, 0, 0, 0, 0, 0, 0, 134, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0])),
            false,
            false,
        ),
        ("later IPv6 fragment", ethernet(OTHER, IPV6, &chain(&[44], 8, 17, &udp(546))), true, true),
        (
            "first IPv6 fragment with its chain cut off",
            cut(ethernet(OTHER, IPV6, &chain(&[44, 60], 0, 58, ra)), 14 + 40 + 8 + 4),
            false,
            false,
        ),
        (
            "extension longer than the frame",
            ethernet(OTHER, IPV6, &ipv6(60, &[58, 255, 0, 0, 0, 0, 0, 0, 134, 0, 0, 0])),
            false,
            false,
        ),
        ("nothing behind the IPv6 header but its promise", ethernet(OTHER, IPV6, &ipv6(17, &[])), false, false),
        ("ESP", ethernet(OTHER, IPV6, &ipv6(50, ra)), true, true),
        ("second VLAN tag", ethernet(OTHER, 0x8100, &[0, 5, 8, 0]), false, false),
        ("second service VLAN tag", ethernet(OTHER, 0x88a8, &[0, 5, 8, 0]), false, false),
        ("redirect", icmp6(137), false, true),
        ("IPv4 of another version", patched(udp4(53), 14, 0x65), false, false),
        ("IPv4 with too short a header", patched(udp4(53), 14, 0x44), false, false),
        ("IPv6 of another version", patched(udp6(53), 14, 0x40), false, false),
        ("to the guest alone", ethernet_to(GUEST, OTHER, 0x0806, &[0; 28]), true, true),
        ("to another station", ethernet_to([0x8e, 1, 2, 3, 4, 7], OTHER, 0x0806, &[0; 28]), true, true),
        ("to a station with another vendor", ethernet_to([0x8c, 1, 2, 3, 4, 5], OTHER, 0x0806, &[0; 28]), true, true),
        ("to a group", ethernet_to([0x33, 0x33, 0, 0, 0, 1], OTHER, 0x0806, &[0; 28]), true, true),
        ("reflection of the guest's own ARP", ethernet(GUEST, 0x0806, &[0; 28]), true, false),
    ]
}

#[test]
fn frames_cross_or_not_as_the_table_says() {
    for (name, frame, from_guest, to_guest) in table() {
        for vlan_tagged in [false, true] {
            let input = Input { frame: &frame, vlan_tagged };
            let (from, to) = (Guard::FromGuest(Served::ALL), Guard::ToGuest(guest(), Served::ALL));
            assert_eq!(run(&from.program(), input), verdict(from_guest), "{name}, from the guest");
            assert_eq!(run(&to.program(), input), verdict(to_guest), "{name}, to the guest");
            let to_held = to_guest && !["to another station", "to a station with another vendor"].contains(&name);
            assert_eq!(
                run(&Guard::ToGuestAntiSpoof(guest()).program(), input),
                verdict(to_held),
                "{name}, to a guest that is held"
            );
        }
    }
}

#[test]
fn a_free_guest_is_told_by_the_network_what_its_pod_does_not_tell_it() {
    let more = |served: Served| {
        let guards = [Guard::FromGuest(served), Guard::ToGuest(guest(), served)].map(|guard| guard.program());
        let crosses = |program: &Program, frame: &[u8]| run(program, Input { frame, vlan_tagged: false }) == tc::GO_ON;
        let told = table().into_iter().flat_map(|(name, frame, from_guest, to_guest)| {
            let out = (crosses(&guards[0], &frame) != from_guest).then(|| format!("{name} out"));
            out.into_iter().chain((crosses(&guards[1], &frame) != to_guest).then(|| format!("{name} in")))
        });
        told.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(more(Served::ALL), "");
    let v4 = "DHCPv4 request out, DHCPv4 reply in, DHCPv4 request behind options out, DHCPv4 reply behind options in, \
              first fragment of a DHCPv4 request out, first fragment of a DHCPv4 reply in";
    assert_eq!(more(Served { v4: false, v6: true }), v4);
    let v6 = "DHCPv6 request out, DHCPv6 reply in, router advertisement in, router solicitation out, \
              router advertisement behind hop-by-hop in, router advertisement behind destination options in, \
              router advertisement in an atomic fragment in, router advertisement behind all in, \
              DHCPv6 request behind all out, DHCPv6 reply behind all in";
    assert_eq!(more(Served { v4: true, v6: false }), v6);
}

#[test]
fn a_neighbour_whose_mac_differs_in_one_byte_is_heard() {
    for at in 0..6 {
        let mut source = GUEST;
        source[at] ^= 0x10;
        let frame = ethernet(source, 0x0806, &[0; 28]);
        let input = Input { frame: &frame, vlan_tagged: false };
        assert_eq!(run(&Guard::ToGuestAntiSpoof(guest()).program(), input), tc::GO_ON, "byte {at}");
    }
}

#[test]
fn the_pods_servers_hear_whole_untagged_requests_only() {
    let hears = |frame: &[u8], vlan_tagged| run(&guest_requests(&[]), Input { frame, vlan_tagged }) != 0;
    let frame = |flags_offset, port| ethernet(GUEST, IPV4, &ipv4(17, &[], flags_offset, &udp(port)));
    assert!(hears(&frame(0, 67), false));
    assert!(hears(&frame(0x4000, 67), false), "do not fragment");
    assert!(hears(&ethernet(GUEST, IPV4, &ipv4(17, &[1; 8], 0, &udp(67))), false));
    assert!(!hears(&frame(0, 67), true), "tagged");
    assert!(!hears(&frame(0, 68), false));
    assert!(!hears(&frame(0x2000, 67), false), "first fragment");
    assert!(!hears(&frame(3, 67), false), "later fragment");
    assert!(!hears(&ethernet(GUEST, IPV4, &ipv4(6, &[], 0, &udp(67))), false), "TCP");
    assert!(!hears(&ethernet(GUEST, IPV6, &ipv6(17, &udp(67))), false), "IPv6");
    assert!(!hears(&frame(0, 67)[..35], false), "cut off");
    let v6 = |next, payload: &[u8]| ethernet(GUEST, IPV6, &ipv6(next, payload));
    assert!(hears(&v6(17, &udp(547)), false));
    assert!(!hears(&v6(17, &udp(547)), true), "tagged");
    assert!(!hears(&v6(17, &udp(546)), false));
    assert!(!hears(&v6(6, &udp(547)), false), "TCP");
    assert!(!hears(&v6(17, &udp(547))[..57], false), "cut off");
    for (kind, heard) in [(132, false), (133, true), (134, false), (135, true), (136, false)] {
        assert_eq!(hears(&v6(58, &[kind, 0, 0, 0]), false), heard, "ICMPv6 {kind}");
    }
    assert!(!hears(&ethernet(GUEST, IPV6, &chain(&[44], 0, 58, &[133, 0, 0, 0])), false), "in a fragment");
    assert!(!hears(&arp_frame(GUEST, &arp(1, GUEST, [10, 77, 0, 2], [10, 77, 0, 1])), false), "ARP");
}

#[test]
fn of_arp_the_pods_servers_hear_requests_for_permanent_neighbours_alone() {
    let many: Vec<Ipv4Addr> = (1..=64).map(|last| Ipv4Addr::new(169, 254, 1, last)).collect();
    let program = guest_requests(&many);
    let hears = |frame: &[u8], vlan_tagged| run(&program, Input { frame, vlan_tagged }) != 0;
    let asks = |operation, target| arp_frame(GUEST, &arp(operation, GUEST, [10, 77, 0, 2], target));
    assert!(hears(&asks(1, [169, 254, 1, 1]), false) && hears(&asks(1, [169, 254, 1, 64]), false));
    assert!(!hears(&asks(1, [169, 254, 1, 1]), true), "tagged");
    assert!(!hears(&asks(1, [169, 254, 1, 65]), false), "another");
    assert!(!hears(&asks(2, [169, 254, 1, 1]), false), "a reply");
    assert!(!hears(&asks(1, [169, 254, 1, 1])[..41], false), "cut off");
    assert!(hears(&ethernet(GUEST, IPV4, &ipv4(17, &[], 0, &udp(67))), false), "DHCP");
    assert!(hears(&ethernet(GUEST, IPV6, &ipv6(58, &[135, 0, 0, 0])), false), "a neighbour solicitation");
}

fn guest() -> MacAddr {
    MacAddr::new(GUEST).expect("a station's address")
}

fn verdict(crosses: bool) -> u32 {
    if crosses { tc::GO_ON } else { tc::DROP }
}
