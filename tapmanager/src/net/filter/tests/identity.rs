//! A guest that is held to its identity: frame by frame, and any frame beside the model.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::sys::bpf::trial::Trial;

/// The guest's link-local address as EUI-64 makes it.
pub(in crate::net) const EUI: &str = "fe80::8c01:2ff:fe03:405";
pub(in crate::net) const V4: [u8; 4] = [10, 77, 0, 2];
pub(in crate::net) const V6: &str = "fd00:77::2";
/// A link-local address that the guest may have made up.
const RANDOM: &str = "fe80::1234:5678:9abc:def0";
const GATEWAY: [u8; 4] = [10, 77, 0, 1];
const GATEWAY_LINK_LOCAL: &str = "fe80::1";
const NEIGHBOUR: [u8; 4] = [10, 77, 0, 9];
const NOBODY: [u8; 4] = [0; 4];

pub(in crate::net) fn identity() -> Identity {
    let list = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<IpAddr>>();
    let mac = MacAddr::new(GUEST).expect("a station's address");
    Identity::new(mac, &list(&["10.77.0.2", V6]), &list(&["10.77.0.1", GATEWAY_LINK_LOCAL])).expect("few")
}

/// Frames from the guest, and whether each crosses when it is held to its identity.
pub(in crate::net) fn held() -> Vec<(&'static str, Vec<u8>, bool)> {
    let arp = |operation, mac, sender, target| arp_frame(GUEST, &frames::arp(operation, mac, sender, target));
    let v4 = |source, protocol, payload: &[u8]| ipv4_frame(GUEST, &ipv4_from(source, protocol, payload));
    let v6 = |source, next, payload: &[u8]| ipv6_frame(GUEST, &ipv6_from(source, ipv6(next, payload)));
    let nd = |source, kind, target, options: &[&[u8]]| v6(source, 58, &neighbour(kind, target, options));
    let (from, target) = (mac_option(1, GUEST), mac_option(2, GUEST));
    let (foreign_from, foreign_target) = (mac_option(1, OTHER), mac_option(2, OTHER));
    let (from, target, foreign_from, foreign_target) = (&from[..], &target[..], &foreign_from[..], &foreign_target[..]);
    let nonce: &[u8] = &[14, 1, 1, 2, 3, 4, 5, 6];
    let padded = |mut frame: Vec<u8>| {
        frame.push(0);
        frame
    };
    let cut = |mut frame: Vec<u8>, by: usize| {
        frame.truncate(frame.len() - by);
        frame
    };
    let patched = |mut frame: Vec<u8>, at: usize, byte: u8| {
        frame[at] = byte;
        frame
    };
    let behind = |extensions: &[u8], offset, last, payload: &[u8]| {
        ipv6_frame(GUEST, &ipv6_from(V6, chain(extensions, offset, last, payload)))
    };
    let foreign_nd = neighbour(136, "fd00:77::9", &[target]);
    vec![
        // Ethernet
        ("IPv4 with another MAC", ipv4_frame(OTHER, &ipv4_from(V4, 17, &udp(53))), false),
        ("IPv6 with another MAC", ipv6_frame(OTHER, &ipv6_from(V6, ipv6(17, &udp(53)))), false),
        ("spanning tree", ethernet_to([1, 0x80, 0xc2, 0, 0, 0], GUEST, 38, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]), false),
        ("IPv4 over LLC/SNAP", ethernet(GUEST, 46, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]), false),
        ("LLDP", ethernet(GUEST, 0x88cc, &[0; 8]), false),
        ("RARP", ethernet(GUEST, 0x8035, &frames::arp(3, GUEST, NOBODY, NOBODY)), false),
        ("a second VLAN tag", ethernet(GUEST, 0x8100, &[0, 5, 8, 0]), false),
        // ARP
        ("ARP request", arp(1, GUEST, V4, GATEWAY), true),
        ("ARP reply", arp(2, GUEST, V4, NEIGHBOUR), true),
        ("gratuitous ARP", arp(1, GUEST, V4, V4), true),
        ("ARP probe for its address", arp(1, GUEST, NOBODY, V4), true),
        ("ARP probe for another's address", arp(1, GUEST, NOBODY, NEIGHBOUR), false),
        ("ARP reply of nobody", arp(2, GUEST, NOBODY, V4), false),
        ("gratuitous ARP for the gateway", arp(1, GUEST, GATEWAY, GATEWAY), false),
        ("gratuitous ARP reply for the gateway", arp(2, GUEST, GATEWAY, GATEWAY), false),
        ("ARP reply for a neighbour", arp(2, GUEST, NEIGHBOUR, GATEWAY), false),
        ("ARP reply with another MAC in it", arp(2, OTHER, V4, NEIGHBOUR), false),
        ("ARP with another MAC around it", arp_frame(OTHER, &frames::arp(1, GUEST, V4, GATEWAY)), false),
        ("ARP of another operation", arp(3, GUEST, V4, V4), false),
        ("ARP for other hardware", patched(arp(1, GUEST, V4, GATEWAY), 15, 6), false),
        ("ARP for another protocol", patched(arp(1, GUEST, V4, GATEWAY), 17, 1), false),
        ("ARP with other lengths", patched(arp(1, GUEST, V4, GATEWAY), 18, 8), false),
        ("ARP cut off", cut(arp(1, GUEST, V4, GATEWAY), 1), false),
        // IPv4
        ("UDP", v4(V4, 17, &udp(53)), true),
        ("TCP", v4(V4, 6, &[0; 20]), true),
        ("a tunnel from its address", v4(V4, 47, &[0; 20]), true),
        ("IPv4 from the gateway", v4(GATEWAY, 6, &[0; 20]), false),
        ("IPv4 from a neighbour", v4(NEIGHBOUR, 17, &udp(53)), false),
        ("IPv4 from nobody", v4(NOBODY, 2, &[0x16, 0, 0, 0, 0, 0, 0, 0]), false),
        ("DHCPv4 request", v4(NOBODY, 17, &udp(67)), false),
        (
            "DHCPv4 renewal to the gateway alone",
            ethernet_to(OTHER, GUEST, IPV4, &ipv4_from(V4, 17, &udp_from(68, 67))),
            false,
        ),
        ("DHCPv4 answer to an odd port", v4(V4, 17, &udp_from(67, 4011)), false),
        ("DHCPv4 renewal", v4(V4, 17, &udp(67)), false),
        ("DHCPv4 reply", v4(V4, 17, &udp(68)), false),
        ("IPv4 of version 6", patched(v4(V4, 17, &udp(53)), 14, 0x65), false),
        ("IPv4 with too short a header", patched(v4(V4, 17, &udp(53)), 14, 0x44), false),
        ("later fragment of another", patched(v4(NEIGHBOUR, 17, &udp(53)), 21, 1), false),
        ("its own later fragment", patched(v4(V4, 17, &udp(67)), 21, 1), true),
        // IPv6
        ("UDP over IPv6", v6(V6, 17, &udp(53)), true),
        ("UDP from its EUI-64 address", v6(EUI, 17, &udp(5353)), true),
        ("UDP from its own link-local address", v6(RANDOM, 17, &udp(5353)), true),
        ("IPv6 from a neighbour", v6("fd00:77::9", 17, &udp(53)), false),
        ("IPv6 from the gateway's link-local address", v6(GATEWAY_LINK_LOCAL, 17, &udp(53)), false),
        ("IPv6 from another's EUI-64 address", v6("fe80::8c01:2ff:fe03:406", 17, &udp(53)), false),
        ("IPv6 from another's EUI-64 address in the high half", v6("fe80::8c01:3ff:fe03:405", 17, &udp(53)), false),
        ("IPv6 from a site-local address", v6("fec0::1", 17, &udp(53)), false),
        ("IPv6 from a multicast address", v6("ff02::1", 17, &udp(53)), false),
        ("IPv6 from nobody", v6("::", 17, &udp(53)), false),
        ("IPv6 of version 4", patched(v6(V6, 17, &udp(53)), 14, 0x40), false),
        ("DHCPv6 reply", v6(EUI, 17, &udp(546)), false),
        ("DHCPv6 request", v6(EUI, 17, &udp(547)), false),
        ("DHCPv6 answer to an odd port", v6(EUI, 17, &udp_from(547, 4011)), false),
        ("echo request", v6(V6, 58, &[128, 0, 0, 0, 0, 0, 0, 0]), true),
        ("echo request from a neighbour", v6("fd00:77::9", 58, &[128, 0, 0, 0, 0, 0, 0, 0]), false),
        ("router advertisement", v6(EUI, 58, &[134, 0, 0, 0, 0, 0, 0, 0]), false),
        ("redirect", v6(EUI, 58, &[137, 0, 0, 0, 0, 0, 0, 0]), false),
        ("router advertisement behind hop-by-hop", behind(&[0], 0, 58, &[134, 0, 0, 0, 0, 0, 0, 0]), false),
        ("router advertisement in a first fragment", behind(&[44], 1, 58, &[134, 0, 0, 0, 0, 0, 0, 0]), false),
        ("router advertisement from a made-up router", v6(RANDOM, 58, &[134, 0, 0, 0, 0, 0, 0, 0]), false),
        ("router solicitation", v6(EUI, 58, &[133, 0, 0, 0, 0, 0, 0, 0]), false),
        ("router solicitation from nobody", v6("::", 58, &[133, 0, 0, 0, 0, 0, 0, 0]), false),
        ("a giant", v4(V4, 17, &[&udp(53)[..], &[0; 3000]].concat()), true),
        ("a giant from a neighbour", v4(NEIGHBOUR, 17, &[&udp(53)[..], &[0; 3000]].concat()), false),
        ("listener report from nobody", v6("::", 58, &[143, 0, 0, 0, 0, 0, 0, 0]), true),
        ("listener report of the first version from nobody", v6("::", 58, &[131, 0, 0, 0, 0, 0, 0, 0]), true),
        ("listener report from itself", v6(EUI, 58, &[143, 0, 0, 0, 0, 0, 0, 0]), true),
        ("listener report from the gateway", v6(GATEWAY_LINK_LOCAL, 58, &[143, 0, 0, 0, 0, 0, 0, 0]), false),
        ("listener query from nobody", v6("::", 58, &[130, 0, 0, 0, 0, 0, 0, 0]), false),
        // Neighbor Discovery
        ("solicitation", nd(V6, 135, "fd00:77::9", &[from]), true),
        ("solicitation without an address", nd(V6, 135, "fd00:77::9", &[]), true),
        ("solicitation with a nonce", nd(EUI, 135, "fd00:77::9", &[from, nonce]), true),
        ("solicitation with another MAC", nd(V6, 135, "fd00:77::9", &[foreign_from]), false),
        ("solicitation with another MAC behind a nonce", nd(V6, 135, "fd00:77::9", &[nonce, foreign_from]), false),
        ("solicitation from a neighbour", nd("fd00:77::8", 135, "fd00:77::9", &[from]), false),
        ("detection of its address", nd("::", 135, V6, &[nonce]), true),
        ("detection of its link-local address", nd("::", 135, RANDOM, &[]), true),
        ("detection of another's address", nd("::", 135, "fd00:77::9", &[]), false),
        ("detection of the gateway's address", nd("::", 135, GATEWAY_LINK_LOCAL, &[]), false),
        ("detection of another's EUI-64 address", nd("::", 135, "fe80::8c01:2ff:fe03:406", &[]), false),
        ("advertisement", nd(V6, 136, V6, &[target]), true),
        ("advertisement of its link-local address", nd(RANDOM, 136, RANDOM, &[target]), true),
        ("advertisement of one address from another of its own", nd(EUI, 136, V6, &[target]), true),
        ("advertisement of a neighbour's address", nd(V6, 136, "fd00:77::9", &[target]), false),
        ("advertisement of the gateway's address", nd(EUI, 136, "fd00:77::1", &[target]), false),
        ("advertisement of the gateway's link-local address", nd(EUI, 136, GATEWAY_LINK_LOCAL, &[target]), false),
        ("advertisement of another's EUI-64 address", nd(EUI, 136, "fe80::8c01:2ff:fe03:406", &[target]), false),
        ("advertisement from nobody", nd("::", 136, V6, &[target]), false),
        ("advertisement with another MAC", nd(V6, 136, V6, &[foreign_target]), false),
        ("advertisement with another MAC as a source", nd(V6, 136, V6, &[foreign_from]), false),
        ("advertisement with two MACs", nd(V6, 136, V6, &[target, foreign_target]), false),
        ("advertisement with a long MAC", nd(V6, 136, V6, &[&[2, 2, 0, 0, 0, 0, 0, 0], nonce]), false),
        ("advertisement with four options", nd(V6, 136, V6, &[nonce, nonce, nonce, target]), true),
        ("advertisement with five options", nd(V6, 136, V6, &[nonce, nonce, nonce, nonce, target]), false),
        ("advertisement with an endless option", nd(V6, 136, V6, &[&[14, 0, 0, 0, 0, 0, 0, 0]]), false),
        ("advertisement with an option beyond its end", nd(V6, 136, V6, &[&[14, 3, 0, 0, 0, 0, 0, 0]]), false),
        ("advertisement with half an option", cut(nd(V6, 136, V6, &[target]), 4), false),
        ("advertisement with a byte behind it", padded(nd(V6, 136, V6, &[target])), false),
        ("advertisement cut off", cut(nd(V6, 136, V6, &[]), 1), false),
        ("advertisement behind hop-by-hop", behind(&[0], 0, 58, &neighbour(136, V6, &[target])), true),
        ("advertisement of another behind hop-by-hop", behind(&[0], 0, 58, &foreign_nd), false),
        ("advertisement in an atomic fragment", behind(&[44], 0, 58, &neighbour(136, V6, &[target])), false),
        ("echo request in a first fragment", behind(&[44], 1, 58, &[128, 0, 0, 0]), true),
        ("its own later IPv6 fragment", behind(&[44], 8, 58, &foreign_nd), true),
        ("TCP behind all", behind(&[0, 60, 43, 44, 60], 0, 6, &[0; 20]), true),
        ("one header too many", behind(&[0, 60, 43, 60, 60, 60], 0, 6, &[0; 20]), false),
    ]
}

#[test]
fn frames_of_a_guest_that_is_held_to_its_identity_cross_or_not() {
    let program = Guard::FromGuestAntiSpoof(identity()).program();
    for (name, frame, crosses) in held() {
        assert_eq!(run(&program, Input { frame: &frame, vlan_tagged: false }), verdict(crosses), "{name}");
        assert_eq!(run(&program, Input { frame: &frame, vlan_tagged: true }), tc::DROP, "{name}, tagged");
    }
}

#[test]
fn the_longest_guard_that_can_be_is_taken_by_the_kernel_and_one_address_more_is_refused() {
    let mac = MacAddr::new(GUEST).expect("a station's address");
    let many = |count: u16| (0..count).map(|n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).into()).collect::<Vec<_>>();
    let gateways = ["fe80::1".parse().expect("an address"); 2];
    let most = u16::try_from(MAX_ADDRESSES).expect("few") - 2;
    let longest = Guard::FromGuestAntiSpoof(Identity::new(mac, &many(most), &gateways).expect("as many as can be"));
    Trial::of(&longest.program()).expect("the kernel takes it");
    let frame = |source| ipv6_frame(GUEST, &ipv6_from(source, ipv6(17, &udp(53))));
    let judged = |source| run(&longest.program(), Input { frame: &frame(source), vlan_tagged: false });
    assert_eq!((judged("fd00::1d"), judged("fd00::1e")), (tc::GO_ON, tc::DROP), "the last, and none");
    for addresses in [vec![], vec!["10.77.0.2".parse().expect("an address")]] {
        let guard = Guard::FromGuestAntiSpoof(Identity::new(mac, &addresses, &[]).expect("few"));
        Trial::of(&guard.program()).unwrap_or_else(|error| panic!("{addresses:?}: {error}"));
    }
    let error = Identity::new(mac, &many(most + 1), &gateways).expect_err("too many");
    assert_eq!(error, TooManyAddresses { count: MAX_ADDRESSES + 1 });
}

#[test]
fn whatever_the_frame_the_program_says_what_the_model_says_and_so_does_the_kernel() {
    let none = Served { v4: false, v6: false };
    let free =
        [Served::ALL, none].into_iter().flat_map(|served| [Guard::FromGuest(served), Guard::ToGuest(guest(), served)]);
    let guards: Vec<Guard> =
        [Guard::FromGuestAntiSpoof(identity()), Guard::ToGuestAntiSpoof(guest())].into_iter().chain(free).collect();
    let load = |guard: Guard| {
        let program = guard.program();
        let kernel = Trial::of(&program).expect("the kernel takes it");
        (guard, program, kernel)
    };
    let guards: Vec<_> = guards.into_iter().map(load).collect();
    let config = Config { cases: 6000, failure_persistence: None, ..Config::default() };
    let seen = std::cell::RefCell::new([[0_u32; 2]; 6]);
    let agree = TestRunner::new(config).run(&any_frame(), |(frame, vlan_tagged)| {
        for (place, (guard, program, kernel)) in guards.iter().enumerate() {
            let crosses = model::crosses(guard, &frame, vlan_tagged);
            seen.borrow_mut()[place][usize::from(crosses)] += 1;
            // Never 0, which would mean `TC_ACT_OK`: the namespace's own stack hears the frame.
            prop_assert_eq!(run(program, Input { frame: &frame, vlan_tagged }), verdict(crosses), "{:?}", guard);
            // The kernel's trial has no VLAN tags beside the frame.
            if !vlan_tagged {
                let kept = frame.len().min(verdict(crosses) as usize);
                prop_assert_eq!(kernel.run(&frame), kept, "the kernel: {:?}", guard);
            }
        }
        Ok(())
    });
    agree.unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.into_inner();
    assert!(seen.iter().flatten().all(|count| *count > 100), "too few of one sort to say anything: {seen:?}");
}

/// Any bytes; and frames of both tables with a few bytes changed, cut off or longer than they should be.
fn any_frame() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let whole: Vec<Vec<u8>> =
        table().into_iter().map(|(_, frame, ..)| frame).chain(held().into_iter().map(|(_, frame, _)| frame)).collect();
    let telling = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0_u8, 1, 2, 3, 4, 6, 8, 14, 17, 43, 44, 58, 60, 67, 68, 0x11, 0x22, 0x23, 255]),
        130..=144_u8,
        prop::sample::select(GUEST.to_vec()),
    ];
    let length = prop_oneof![4 => Just(0_i8), 1 => -60..40_i8];
    let changed = (prop::sample::select(whole), prop::collection::vec((any::<Index>(), telling), 0..4), length);
    let changed = changed.prop_map(|(mut frame, changes, length)| {
        for (at, byte) in changes {
            let at = at.index(frame.len().max(1));
            frame.iter_mut().skip(at).take(1).for_each(|old| *old = byte);
        }
        let len = frame.len().saturating_add_signed(length.into());
        frame.resize(len, 0);
        frame
    });
    let noise = prop::collection::vec(any::<u8>(), 0..160);
    (prop_oneof![9 => changed, 1 => noise], prop::bool::weighted(0.1))
}
