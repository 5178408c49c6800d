//! The Ethernet, IPv4 and UDP around a DHCP message, read and written. Pure; called by [`super::Server`].
//!
//! Reading trusts nothing of the guest: inconsistent lengths make a frame no datagram. It does not verify checksums:
//! the frames come out of the guest's memory, not over a wire, and the UDP checksum of a guest that offloads it is only
//! half computed. Writing computes both.

use std::net::Ipv4Addr;

use crate::checksum::checksum;

/// UDP ports of RFC 2131 section 4.1.
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_UDP: u8 = 17;
/// Flag "more fragments" and the offset, of RFC 791: either makes it a fragment.
const FRAGMENT: u16 = 0x3fff;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const TTL: u8 = 64;

pub(super) const IP_HEADER: usize = 20;
pub(super) const UDP_HEADER: usize = 8;

/// A datagram to a DHCP server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    pub(super) from_mac: [u8; 6],
    pub(super) to_mac: [u8; 6],
    pub(super) to: Ipv4Addr,
    pub(super) payload: &'a [u8],
}

/// Where an answer comes from and goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) from_mac: [u8; 6],
    pub(super) to_mac: [u8; 6],
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
}

/// Reads an untagged frame with an unfragmented datagram to the server's port.
pub(super) fn parse(frame: &[u8]) -> Option<Datagram<'_>> {
    let (to_mac, rest) = frame.split_first_chunk::<6>()?;
    let (from_mac, rest) = rest.split_first_chunk::<6>()?;
    let packet = rest.strip_prefix(&ETHERTYPE_IPV4)?;

    let (ip, _) = packet.split_first_chunk::<IP_HEADER>()?;
    let [version_ihl, _, len_high, len_low, _, _, frag_high, frag_low, _, protocol, ..] = *ip;
    let header_len = usize::from(version_ihl & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let fragment = u16::from_be_bytes([frag_high, frag_low]) & FRAGMENT != 0;
    if version_ihl >> 4 != 4 || header_len < IP_HEADER || fragment || protocol != PROTOCOL_UDP {
        return None;
    }
    let (_, to) = ip.split_last_chunk::<4>()?;
    // Short frames are padded, so the packet may end before the frame does.
    let datagram = packet.get(header_len..total_len)?;

    let (udp, _) = datagram.split_first_chunk::<UDP_HEADER>()?;
    let [_, _, port_high, port_low, len_high, len_low, _, _] = *udp;
    let udp_len = usize::from(u16::from_be_bytes([len_high, len_low]));
    if u16::from_be_bytes([port_high, port_low]) != SERVER_PORT {
        return None;
    }
    let payload = datagram.get(UDP_HEADER..udp_len)?;
    Some(Datagram { from_mac: *from_mac, to_mac: *to_mac, to: Ipv4Addr::from(*to), payload })
}

/// Writes a frame to the client's port. `None` if the message is longer than a packet can be.
pub(super) fn build(envelope: &Envelope, payload: &[u8]) -> Option<Vec<u8>> {
    let udp_len = u16::try_from(UDP_HEADER + payload.len()).ok()?.to_be_bytes();
    let total_len = u16::try_from(IP_HEADER + UDP_HEADER + payload.len()).ok()?.to_be_bytes();
    let (from, to) = (envelope.from.octets(), envelope.to.octets());

    let ip_header = |checksum: u16| {
        [&[0x45, 0][..], &total_len, &[0, 0], &DONT_FRAGMENT, &[TTL, PROTOCOL_UDP], &checksum.to_be_bytes(), &from, &to]
            .concat()
    };
    let udp_header = |checksum: u16| {
        [SERVER_PORT.to_be_bytes(), CLIENT_PORT.to_be_bytes(), udp_len, checksum.to_be_bytes()].concat()
    };
    let pseudo_header = [&from[..], &to, &[0, PROTOCOL_UDP], &udp_len].concat();

    let ip_checksum = checksum(&[&ip_header(0)]);
    let udp_checksum = match checksum(&[&pseudo_header, &udp_header(0), payload]) {
        0 => 0xffff, // RFC 768: zero would say that there is none
        sum => sum,
    };
    let headers = [&ip_header(ip_checksum)[..], &udp_header(udp_checksum)].concat();
    Some([&envelope.to_mac[..], &envelope.from_mac, &ETHERTYPE_IPV4, &headers, payload].concat())
}

#[cfg(test)]
mod tests;
