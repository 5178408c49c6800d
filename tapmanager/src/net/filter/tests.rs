use proptest::prelude::*;

use super::layout::*;
use super::*;
use crate::sys::bpf::interpreter::{Input, run};

/// The guest's MAC address in all frames.
pub(in crate::net) const GUEST: [u8; 6] = [0x8e, 1, 2, 3, 4, 5];
const OTHER: [u8; 6] = [0x8e, 1, 2, 3, 4, 6];

/// Frames, and whether each crosses: from the guest, to the guest. The real kernel is asked about them as well.
pub(in crate::net) fn table() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    let udp4 = |port| ethernet(OTHER, IPV4, &ipv4(17, &[], 0, &udp(port)));
    let udp6 = |port| ethernet(OTHER, IPV6, &ipv6(17, &udp(port)));
    let icmp6 = |kind| ethernet(OTHER, IPV6, &ipv6(58, &[kind, 0, 0, 0, 0, 0, 0, 0]));
    let fragment4 = |flags_offset, port| ethernet(OTHER, IPV4, &ipv4(17, &[], flags_offset, &udp(port)));
    let behind = |extensions: &[u8], last, payload: &[u8]| ethernet(OTHER, IPV6, &chain(extensions, 0, last, payload));
    let ra: &[u8] = &[134, 0, 0, 0];
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
        ("reflection of the guest's own ARP", ethernet(GUEST, 0x0806, &[0; 28]), true, false),
    ]
}

#[test]
fn frames_cross_or_not_as_the_table_says() {
    for (name, frame, from_guest, to_guest) in table() {
        for vlan_tagged in [false, true] {
            let input = Input { frame: &frame, vlan_tagged };
            assert_eq!(run(&Guard::FromGuest(None).program(), input), verdict(from_guest), "{name}, from the guest");
            assert_eq!(run(&to_guest_guard().program(), input), verdict(to_guest), "{name}, to the guest");
        }
    }
}

#[test]
fn a_neighbour_whose_mac_differs_in_one_byte_is_heard() {
    for at in 0..6 {
        let mut source = GUEST;
        source[at] ^= 0x10;
        let frame = ethernet(source, 0x0806, &[0; 28]);
        let input = Input { frame: &frame, vlan_tagged: false };
        assert_eq!(run(&to_guest_guard().program(), input), tc::GO_ON, "byte {at}");
    }
}

#[test]
fn the_dhcp_server_hears_whole_untagged_requests_only() {
    let hears = |frame: &[u8], vlan_tagged| run(&guest_requests(), Input { frame, vlan_tagged }) != 0;
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
}

proptest! {
    /// 0 would mean `TC_ACT_OK`: the namespace's own stack hears the frame.
    #[test]
    fn whatever_the_frame_it_is_dropped_or_goes_on(
        mut frame in proptest::collection::vec(any::<u8>(), 0..160),
        kind in prop_oneof![Just(IPV4), Just(IPV6), Just(0x8100), any::<u16>().prop_map(u32::from)],
        next in prop_oneof![Just(17_u8), Just(58), Just(0), Just(44), Just(60), any::<u8>()],
    ) {
        let at = if kind == IPV6 { 20 } else { 23 };
        if let Some(kind_) = frame.get_mut(12..14) {
            kind_.copy_from_slice(&kind.to_be_bytes()[2..]);
        }
        if let Some(next_) = frame.get_mut(at) {
            *next_ = next;
        }
        for guard in [Guard::FromGuest(None), to_guest_guard()] {
            let verdict = run(&guard.program(), Input { frame: &frame, vlan_tagged: false });
            prop_assert!(verdict == tc::DROP || verdict == tc::GO_ON, "{verdict:#x}");
        }
    }
}

fn to_guest_guard() -> Guard {
    Guard::ToGuest(MacAddr::new(GUEST).expect("a station's address"))
}

fn verdict(crosses: bool) -> u32 {
    if crosses { tc::GO_ON } else { tc::DROP }
}

pub(in crate::net) fn ethernet(source: [u8; 6], kind: u32, payload: &[u8]) -> Vec<u8> {
    [&[0xff; 6], source.as_slice(), &kind.to_be_bytes()[2..], payload].concat()
}

pub(in crate::net) fn ipv4(protocol: u8, options: &[u8], flags_offset: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[0] = 0x45 + u8::try_from(options.len() / 4).expect("short options");
    header[6..8].copy_from_slice(&flags_offset.to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    [&header, options, payload].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 40];
    header[0] = 0x60;
    header[6] = next;
    header[7] = 255;
    [&header, payload].concat()
}

/// IPv6 with extension headers of these types; destination options are 16 bytes long, the others 8.
fn chain(extensions: &[u8], fragment_offset: u16, last: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    for (place, kind) in extensions.iter().enumerate() {
        let next = extensions.get(place + 1).copied().unwrap_or(last);
        let [high, low] = fragment_offset.to_be_bytes();
        match kind {
            44 => packet.extend([next, 0, high, low, 0, 0, 0, 1]),
            60 => packet.extend([next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            _ => packet.extend([next, 0, 1, 4, 0, 0, 0, 0]),
        }
    }
    packet.extend(payload);
    ipv6(extensions.first().copied().unwrap_or(last), &packet)
}

pub(in crate::net) fn udp(destination: u16) -> Vec<u8> {
    let [high, low] = destination.to_be_bytes();
    vec![0xc0, 0, high, low, 0, 8, 0, 0]
}
