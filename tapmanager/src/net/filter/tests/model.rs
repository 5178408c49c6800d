//! What the guards are to do, said once more in plain Rust: the programs are compared with it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::{Guard, Identity, Served};

/// Whether `frame` crosses. What ends too early for a question to be answered does not.
pub(super) fn crosses(guard: &Guard, frame: &[u8], vlan_tagged: bool) -> bool {
    judge(guard, frame, vlan_tagged).unwrap_or(false)
}

fn judge(guard: &Guard, frame: &[u8], vlan_tagged: bool) -> Option<bool> {
    let (destination, source) = (frame.get(..6)?, frame.get(6..12)?);
    let (kind, packet) = (number(frame, 12, 2)?, frame.get(14..)?);
    let for_group = destination[0] & 1 == 1;
    let identity = match guard {
        Guard::FromGuestAntiSpoof(identity) => Some(identity),
        Guard::ToGuestAntiSpoof(mac) if !for_group && destination != mac.octets() => return None,
        Guard::ToGuestAntiSpoof(mac) | Guard::ToGuest(mac, _) if source == mac.octets() => return None,
        Guard::FromGuest(_) | Guard::ToGuestAntiSpoof(_) | Guard::ToGuest(..) => None,
    };
    let held_back = identity.is_some_and(|identity| vlan_tagged || source != identity.mac.octets());
    match kind {
        _ if held_back => None,
        0x0800 => ipv4(guard, identity, packet),
        0x86dd => ipv6(guard, identity, packet),
        0x0806 => Some(identity.is_none_or(|identity| arp(identity, packet).unwrap_or(false))),
        0x8100 | 0x88a8 => None,
        _ => Some(identity.is_none()),
    }
}

fn arp(identity: &Identity, packet: &[u8]) -> Option<bool> {
    let target = ipv4_at(packet, 24)?;
    let speaker = match (packet.get(..8)?, ipv4_at(packet, 14)?) {
        ([0, 1, 8, 0, 6, 4, 0, 1], Ipv4Addr::UNSPECIFIED) => target,
        ([0, 1, 8, 0, 6, 4, 0, 1 | 2], sender) => sender,
        _ => return None,
    };
    Some(packet.get(8..14)? == identity.mac.octets() && is_own(identity, speaker.into()))
}

fn ipv4(guard: &Guard, identity: Option<&Identity>, packet: &[u8]) -> Option<bool> {
    let source = ipv4_at(packet, 12)?;
    let words = packet[0] & 0xf;
    ipv4_at(packet, 16)?;
    if packet[0] >> 4 != 4 || words < 5 || identity.is_some_and(|identity| !is_own(identity, source.into())) {
        return None;
    }
    let later_fragment = number(packet, 6, 2)? & 0x1fff != 0;
    if packet[9] != 17 || later_fragment {
        return Some(true);
    }
    let (from, to): (&[u64], &[u64]) = match (is_outwards(guard), served(guard).v4) {
        (true, true) => (&[67], &[67, 68]),
        (true, false) => (&[67], &[68]),
        (false, true) => (&[], &[68]),
        (false, false) => (&[], &[]),
    };
    udp(packet.get(4 * usize::from(words)..)?, from, to)
}

fn udp(datagram: &[u8], from: &[u64], to: &[u64]) -> Option<bool> {
    let header = datagram.get(..8)?;
    Some(!from.contains(&number(header, 0, 2)?) && !to.contains(&number(header, 2, 2)?))
}

fn ipv6(guard: &Guard, identity: Option<&Identity>, packet: &[u8]) -> Option<bool> {
    let source = ipv6_at(packet, 8)?;
    let mut rest = packet.get(40..)?;
    if packet[0] >> 4 != 6 {
        return None;
    }
    let sourced = identity.is_none_or(|identity| is_own(identity, source.into()));
    let (mut next, mut fragmented, mut extensions) = (packet[6], false, 0);
    while [0, 43, 44, 60].contains(&next) {
        extensions += 1;
        let head = rest.get(..8).filter(|_| extensions <= 5)?;
        if next == 44 {
            if head[2] != 0 || head[3] & 0xf8 != 0 {
                return Some(sourced);
            }
            fragmented = true;
            if head[1] != 0 {
                return None;
            }
        }
        next = head[0];
        rest = rest.get(8 * (1 + usize::from(head[1]))..).unwrap_or(&[]);
    }
    let (from, to, banned): (&[u64], &[u64], &[u8]) = match (is_outwards(guard), served(guard).v6) {
        (true, true) => (&[547], &[546, 547], &[133, 134, 137]),
        (true, false) => (&[547], &[546], &[134, 137]),
        (false, true) => (&[], &[546], &[134]),
        (false, false) => (&[], &[], &[]),
    };
    match next {
        17 => Some(udp(rest, from, to)? && sourced),
        58 => {
            let kind = *rest.first()?;
            let spoken = |identity| speaks_for_itself(identity, source, fragmented, rest);
            Some(!banned.contains(&kind) && identity.map_or(Some(true), spoken)?)
        }
        _ => Some(sourced),
    }
}

fn is_outwards(guard: &Guard) -> bool {
    matches!(guard, Guard::FromGuestAntiSpoof(_) | Guard::FromGuest(_))
}

fn served(guard: &Guard) -> Served {
    match guard {
        Guard::FromGuestAntiSpoof(_) | Guard::ToGuestAntiSpoof(_) => Served { v4: true, v6: true },
        Guard::FromGuest(served) | Guard::ToGuest(_, served) => *served,
    }
}

fn speaks_for_itself(identity: &Identity, source: Ipv6Addr, fragmented: bool, message: &[u8]) -> Option<bool> {
    let sourced = is_own(identity, source.into());
    let kind = *message.first()?;
    if [131, 132, 143].contains(&kind) {
        return Some(sourced || source.is_unspecified());
    }
    if ![135, 136].contains(&kind) {
        return Some(sourced);
    }
    let target = ipv6_at(message, 8).filter(|_| !fragmented)?;
    if kind == 135 && source.is_unspecified() {
        return Some(is_own(identity, target.into()));
    }
    let mut options = message.get(24..)?;
    for _ in 0..4 {
        if options.is_empty() {
            break;
        }
        let (kind, len) = (*options.first()?, 8 * usize::from(*options.get(1)?));
        let option = options.get(..len).filter(|option| !option.is_empty())?;
        if [1, 2].contains(&kind) && option.get(2..)? != identity.mac.octets() {
            return None;
        }
        options = options.get(len..)?;
    }
    Some(sourced && options.is_empty() && (kind == 135 || is_own(identity, target.into())))
}

fn is_own(identity: &Identity, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => identity.ipv4.contains(&address),
        IpAddr::V6(address) => {
            identity.ipv6.contains(&address)
                || address.is_unicast_link_local()
                    && !identity.gateways.contains(&address)
                    && !is_of_another_mac(identity, address)
        }
    }
}

fn is_of_another_mac(identity: &Identity, address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f] = identity.mac.octets();
    let host = &address.octets()[8..];
    host[3..5] == [0xff, 0xfe] && host != [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    Some(bytes.get(at..at + len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn ipv4_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?.into())
}

fn ipv6_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?.into())
}
