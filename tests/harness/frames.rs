//! What a recorded frame is, and frames of an attacker. Only as much of each protocol as the cases ask about.

use std::net::Ipv4Addr;
use std::ops::Range;

const ETH_LEN: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Where an IPv6 packet says who sent it, behind Ethernet's header.
const IPV6_SOURCE: Range<usize> = ETH_LEN + 8..ETH_LEN + 24;
/// Whose advertisement nobody should hear.
const ROGUE: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x66, 0xff, 0xfe, 0x66, 0x66, 0x66];

/// Kinds of frames that must not cross between a pod and the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// DHCPv4 from a client.
    DhcpRequest,
    /// DHCPv4 from a server.
    DhcpReply,
    /// IPv6 router advertisement.
    RouterAdvertisement,
    /// Anything else.
    Other,
}

/// Looks at an Ethernet frame.
#[must_use]
pub fn kind(frame: &[u8]) -> Kind {
    known_kind(frame).unwrap_or(Kind::Other)
}

fn known_kind(frame: &[u8]) -> Option<Kind> {
    let packet = frame.get(ETH_LEN..)?;
    match u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]) {
        IPV4 if *packet.get(9)? == UDP => {
            let udp = packet.get(usize::from(packet.first()? & 0x0f) * 4..)?;
            match u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]) {
                67 => Some(Kind::DhcpRequest),
                68 => Some(Kind::DhcpReply),
                _ => None,
            }
        }
        IPV6 if *packet.get(6)? == ICMPV6 && *packet.get(40)? == ROUTER_ADVERTISEMENT => {
            Some(Kind::RouterAdvertisement)
        }
        _ => None,
    }
}

/// Whether `frame` holds `needle` anywhere.
#[must_use]
pub fn contains(frame: &[u8], needle: &[u8]) -> bool {
    frame.windows(needle.len()).any(|window| window == needle)
}

/// A DHCP offer (RFC 2131) of `address`, broadcast by somebody who should not.
#[must_use]
pub fn rogue_offer(client: [u8; 6], transaction: [u8; 4], address: Ipv4Addr) -> Vec<u8> {
    let server = [10, 66, 6, 6];
    let mut bootp = vec![2, 1, 6, 0];
    bootp.extend(transaction);
    bootp.extend([0, 0, 0x80, 0]); // secs, broadcast flag
    bootp.extend([0; 4]);
    bootp.extend(address.octets());
    bootp.extend(server);
    bootp.extend([0; 4]);
    bootp.extend(client);
    bootp.extend([0; 10 + 64 + 128]);
    bootp.extend([0x63, 0x82, 0x53, 0x63]);
    bootp.extend([53, 1, 2, 54, 4]);
    bootp.extend(server);
    bootp.extend([51, 4, 0, 0, 0x0e, 0x10, 1, 4, 255, 255, 255, 0, 255]);

    let udp_len = 8 + bootp.len();
    let mut frame = vec![0xff; 6];
    frame.extend([0x02, 0, 0, 0x66, 0x66, 0x66]);
    frame.extend(IPV4.to_be_bytes());
    let mut header = vec![0x45, 0];
    header.extend(be16(20 + udp_len));
    header.extend([0, 0, 0, 0, 64, UDP, 0, 0]);
    header.extend(server);
    header.extend([255; 4]);
    let sum = checksum(&[&header]);
    for (slot, byte) in header.iter_mut().skip(10).zip(sum.to_be_bytes()) {
        *slot = byte;
    }
    frame.extend(header);
    // No UDP checksum (RFC 768: zero means none).
    frame.extend([0, 67, 0, 68]);
    frame.extend(be16(udp_len));
    frame.extend([0, 0]);
    frame.extend(bootp);
    frame
}

/// A router advertisement (RFC 4861 section 4.2) of prefix `fd66::/64` to all nodes, by somebody who should not.
#[must_use]
pub fn rogue_advertisement() -> Vec<u8> {
    let group = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([3, 4, 64, 0xc0]); // prefix information, on link, autonomous
    message.extend([0xff; 8]);
    message.extend([0; 4]);
    message.extend([0xfd, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let [high, low] = be16(message.len());
    let sum = checksum(&[&ROGUE, &group, &[0, 0, high, low, 0, 0, 0, ICMPV6], &message]);
    for (slot, byte) in message.iter_mut().skip(2).zip(sum.to_be_bytes()) {
        *slot = byte;
    }

    let mut frame = vec![0x33, 0x33, 0, 0, 0, 1, 0x02, 0, 0, 0x66, 0x66, 0x66];
    frame.extend(IPV6.to_be_bytes());
    frame.extend([0x60, 0, 0, 0, high, low, ICMPV6, 255]);
    frame.extend(ROGUE);
    frame.extend(group);
    frame.extend(message);
    frame
}

/// Whether `frame` is [`rogue_advertisement`], by the address that it claims to come from.
#[must_use]
pub fn is_rogue_advertisement(frame: &[u8]) -> bool {
    kind(frame) == Kind::RouterAdvertisement && frame.get(IPV6_SOURCE).is_some_and(|source| source == ROGUE)
}

/// The internet checksum (RFC 1071) of parts that each have an even length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words.map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// A length as it stands in a header.
#[must_use]
pub fn be16(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_known_by_its_ports_and_types() {
        assert_eq!(kind(&rogue_offer([2, 0, 0, 0, 0, 1], [1, 2, 3, 4], Ipv4Addr::new(10, 66, 6, 7))), Kind::DhcpReply);
        assert_eq!(kind(&rogue_advertisement()), Kind::RouterAdvertisement);
        assert_eq!(kind(&[0; 60]), Kind::Other);
        assert_eq!(kind(&[]), Kind::Other);
    }

    #[test]
    fn a_checksum_over_its_own_sum_is_zero() {
        let frame = rogue_offer([2, 0, 0, 0, 0, 1], [1, 2, 3, 4], Ipv4Addr::new(10, 66, 6, 7));
        assert_eq!(checksum(&[frame.get(14..34).unwrap()]), 0);
    }
}
