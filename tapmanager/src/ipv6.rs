//! Reads and writes an IPv6 packet in an Ethernet frame. Pure; used by the IPv6 servers, [`crate::dhcp6`] and
//! [`crate::ra`].
//!
//! Reading trusts nothing of the sender: inconsistent lengths make a frame no packet. It does not verify checksums: the
//! frames come out of the guest's memory or off a link of the same machine, and a checksum that is left to a device is
//! only half computed. It takes no packets with extension headers, which neither DHCP clients nor neighbour discovery
//! use (RFC 6980). Writing computes all checksums.

use std::net::Ipv6Addr;

use crate::checksum::checksum;

/// Next header numbers.
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// RFC 8200 section 5: what every link carries. No packet that is written here is longer.
pub(crate) const LEAST_MTU: usize = 1280;
pub(crate) const HEADER: usize = 40;
pub(crate) const UDP_HEADER: usize = 8;

/// Hop limit that says "from this link" (RFC 4861 section 3.1).
pub(crate) const ON_LINK: u8 = 255;

pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Source of frames to the guest that no station of the network sends. Locally administered, and no station's: nothing is
/// sent back to it.
pub(crate) const SERVER_MAC: [u8; 6] = [0x02, 0x76, 0x69, 0x72, 0x74, 0x01];

const ETHERTYPE: [u8; 2] = [0x86, 0xdd];
const VERSION: [u8; 4] = [0x60, 0, 0, 0];

/// A packet, without extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) from_mac: [u8; 6],
    pub(crate) to_mac: [u8; 6],
    pub(crate) from: Ipv6Addr,
    pub(crate) to: Ipv6Addr,
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) payload: &'a [u8],
}

/// Where a packet comes from and goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) from_mac: [u8; 6],
    pub(crate) to_mac: [u8; 6],
    pub(crate) from: Ipv6Addr,
    pub(crate) to: Ipv6Addr,
}

/// Reads an untagged frame with an IPv6 packet.
pub(crate) fn parse(frame: &[u8]) -> Option<Packet<'_>> {
    let (to_mac, rest) = frame.split_first_chunk::<6>()?;
    let (from_mac, rest) = rest.split_first_chunk::<6>()?;
    let packet = rest.strip_prefix(&ETHERTYPE)?;

    let (header, rest) = packet.split_first_chunk::<HEADER>()?;
    let [version, _, _, _, len_high, len_low, next_header, hop_limit, addresses @ ..] = *header;
    if version >> 4 != 6 {
        return None;
    }
    let (from, to) = addresses.split_first_chunk::<16>()?;
    let to: [u8; 16] = to.try_into().ok()?;
    // Short frames are padded, so the packet may end before the frame does.
    let payload = rest.get(..usize::from(u16::from_be_bytes([len_high, len_low])))?;
    let (from, to) = (Ipv6Addr::from(*from), Ipv6Addr::from(to));
    Some(Packet { from_mac: *from_mac, to_mac: *to_mac, from, to, next_header, hop_limit, payload })
}

/// Writes a frame with a message of ICMPv6, whose checksum is zero as yet. `None` if it is too long or none at all.
pub(crate) fn icmp(envelope: &Envelope, mut message: Vec<u8>) -> Option<Vec<u8>> {
    let sum = checksum(&[&pseudo_header(envelope, ICMPV6, message.len())?, &message]);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    frame(envelope, ICMPV6, &[&message])
}

/// Writes a frame with a datagram of UDP. `None` if it is too long.
pub(crate) fn udp(envelope: &Envelope, from: u16, to: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let len = UDP_HEADER + payload.len();
    let header = |sum: u16| -> Option<Vec<u8>> {
        Some([from.to_be_bytes(), to.to_be_bytes(), u16::try_from(len).ok()?.to_be_bytes(), sum.to_be_bytes()].concat())
    };
    let sum = match checksum(&[&pseudo_header(envelope, UDP, len)?, &header(0)?, payload]) {
        0 => 0xffff, // RFC 8200 section 8.1: zero would say that there is none
        sum => sum,
    };
    frame(envelope, UDP, &[&header(sum)?, payload])
}

/// The Ethernet address of a multicast group (RFC 2464 section 7).
pub(crate) fn group_mac(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// The group that whoever has `address` listens to (RFC 4291 section 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// RFC 8200 section 8.1.
fn pseudo_header(envelope: &Envelope, protocol: u8, len: usize) -> Option<Vec<u8>> {
    let len = u32::try_from(len).ok()?.to_be_bytes();
    Some([&envelope.from.octets()[..], &envelope.to.octets(), &len, &[0, 0, 0, protocol]].concat())
}

fn frame(envelope: &Envelope, protocol: u8, parts: &[&[u8]]) -> Option<Vec<u8>> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let len = u16::try_from(len).ok()?.to_be_bytes();
    let ethernet = [&envelope.to_mac[..], &envelope.from_mac, &ETHERTYPE].concat();
    let header = [&VERSION[..], &len, &[protocol, ON_LINK], &envelope.from.octets(), &envelope.to.octets()].concat();
    Some([&ethernet[..], &header, &parts.concat()].concat())
}
