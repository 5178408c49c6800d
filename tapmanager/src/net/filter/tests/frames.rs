//! Frames for tests, made byte by byte.

use super::super::layout::{ARP, IPV4, IPV6};

/// The guest's MAC address in all frames.
pub(in crate::net) const GUEST: [u8; 6] = [0x8e, 1, 2, 3, 4, 5];
/// Another station's.
pub(in crate::net) const OTHER: [u8; 6] = [0x8e, 1, 2, 3, 4, 6];
/// All stations.
pub(in crate::net) const BROADCAST: [u8; 6] = [0xff; 6];

/// To all.
pub(in crate::net) fn ethernet(source: [u8; 6], kind: u32, payload: &[u8]) -> Vec<u8> {
    ethernet_to(BROADCAST, source, kind, payload)
}

pub(in crate::net) fn ethernet_to(destination: [u8; 6], source: [u8; 6], kind: u32, payload: &[u8]) -> Vec<u8> {
    [&destination, source.as_slice(), &kind.to_be_bytes()[2..], payload].concat()
}

pub(in crate::net) fn ipv4(protocol: u8, options: &[u8], flags_offset: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 20];
    header[0] = 0x45 + u8::try_from(options.len() / 4).expect("short options");
    header[6..8].copy_from_slice(&flags_offset.to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    [&header, options, payload].concat()
}

pub(in crate::net) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 40];
    header[0] = 0x60;
    header[6] = next;
    header[7] = 255;
    [&header, payload].concat()
}

/// IPv6 with extension headers of these types; destination options are 16 bytes long, the others 8.
pub(in crate::net) fn chain(extensions: &[u8], fragment_offset: u16, last: u8, payload: &[u8]) -> Vec<u8> {
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
    udp_from(0xc000, destination)
}

pub(in crate::net) fn udp_from(source: u16, destination: u16) -> Vec<u8> {
    let ([from_high, from_low], [high, low]) = (source.to_be_bytes(), destination.to_be_bytes());
    vec![from_high, from_low, high, low, 0, 8, 0, 0]
}

/// An IPv4 packet with a source address; to 10.77.0.9.
pub(in crate::net) fn ipv4_from(source: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4(protocol, &[], 0, payload);
    let len = u16::try_from(packet.len()).expect("short");
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&[10, 77, 0, 9]);
    packet
}

/// The same, IPv6 in whatever `packet` is. To all nodes.
pub(in crate::net) fn ipv6_from(source: &str, mut packet: Vec<u8>) -> Vec<u8> {
    let len = u16::try_from(packet.len() - 40).expect("short");
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet[8..24].copy_from_slice(&address(source));
    packet[24..40].copy_from_slice(&address("ff02::1"));
    packet
}

/// ARP: 1 asks for the target, 2 tells of the sender.
pub(in crate::net) fn arp(operation: u8, mac: [u8; 6], sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, operation], mac.as_slice(), &sender, &[0; 6], &target].concat()
}

/// ICMPv6 of Neighbor Discovery with a target and options.
pub(in crate::net) fn neighbour(kind: u8, target: &str, options: &[&[u8]]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], address(target).as_slice(), &options.concat()].concat()
}

/// An option with a link-layer address: 1 of the source, 2 of the target.
pub(in crate::net) fn mac_option(kind: u8, mac: [u8; 6]) -> Vec<u8> {
    [&[kind, 1], mac.as_slice()].concat()
}

pub(in crate::net) fn arp_frame(source: [u8; 6], payload: &[u8]) -> Vec<u8> {
    ethernet(source, ARP, payload)
}

pub(in crate::net) fn ipv4_frame(source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    ethernet(source, IPV4, packet)
}

pub(in crate::net) fn ipv6_frame(source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    ethernet(source, IPV6, packet)
}

fn address(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().expect("an address").octets()
}
