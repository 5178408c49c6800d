//! What a hostile guest sends, frame by frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tests::frames::{be16, checksum, rogue_advertisement, rogue_offer};

const BROADCAST: [u8; 6] = [0xff; 6];
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const STRANGER: Party = Party {
    mac: [0x02, 0, 0, 0x66, 0x66, 0x66],
    v4: Ipv4Addr::new(10, 66, 6, 6),
    v6: Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 6),
};
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
const LLDP: u16 = 0x88cc;
const VLAN: [u8; 4] = [0x81, 0, 0, 5];

const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

/// Somebody on the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Party {
    pub(super) mac: [u8; 6],
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

/// A frame that nobody is to see.
#[derive(Debug, Clone)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) frame: Vec<u8>,
    /// Whether it is only a lie about who sends it: such frames of guests that are not held to their identity cross.
    pub(super) lies: bool,
    /// Length at which it is not wrong any more: what is left without its last part is what every host may send.
    pub(super) honest_at: Option<usize>,
}

/// Everything that `hostile` does to `neighbour`.
pub(super) fn all(hostile: Party, neighbour: Party, gateway: Party) -> Vec<Attack> {
    let mut attacks: Vec<Attack> = forgeries(hostile, neighbour, gateway)
        .into_iter()
        .map(|(name, frame)| Attack { name, frame, lies: true, honest_at: None })
        .collect();
    let wrong_macs = [
        ("solicitation with the neighbour's MAC", nd(hostile, SOLICITATION, gateway.v6, SOURCE_MAC, neighbour.mac)),
        ("advertisement with the neighbour's MAC", nd(hostile, ADVERTISEMENT, hostile.v6, TARGET_MAC, neighbour.mac)),
    ];
    attacks.extend(wrong_macs.into_iter().map(|(name, frame)| {
        let honest_at = Some(frame.len() - 8);
        Attack { name, frame, lies: true, honest_at }
    }));
    attacks.extend(services(hostile, neighbour, gateway).into_iter().map(|(name, frame)| Attack {
        name,
        frame,
        lies: false,
        honest_at: None,
    }));
    attacks
}

/// Lies about who it is, in each place that says so.
fn forgeries(hostile: Party, neighbour: Party, gateway: Party) -> Vec<(&'static str, Vec<u8>)> {
    let as_mac = |mac| Party { mac, ..hostile };
    let v4 = |mac: [u8; 6], source, protocol| {
        ethernet(BROADCAST, mac, IPV4, &ipv4(source, neighbour.v4, protocol, &udp(5353, 5353, &[7; 8])))
    };
    let v6 = |mac: [u8; 6], source| ethernet(ALL_NODES, mac, IPV6, &ipv6(source, UDP, &udp(5353, 5353, &[7; 8])));
    let arp = |mac, operation, sender_mac, sender, target| {
        ethernet(BROADCAST, mac, ARP, &arp(operation, sender_mac, sender, target))
    };
    let na = |from: Party, target| nd(from, ADVERTISEMENT, target, TARGET_MAC, hostile.mac);
    let own = hostile.mac;
    vec![
        ("IPv4 with the neighbour's MAC", v4(neighbour.mac, hostile.v4, UDP)),
        ("IPv4 with a stranger's MAC", v4(STRANGER.mac, hostile.v4, UDP)),
        ("IPv4 from the neighbour", v4(own, neighbour.v4, UDP)),
        ("IPv4 from the gateway", v4(own, gateway.v4, TCP)),
        ("IPv4 from a stranger", v4(own, STRANGER.v4, UDP)),
        ("IPv4 from nobody", v4(own, NOBODY, UDP)),
        ("IPv4 with the neighbour's MAC and address", v4(neighbour.mac, neighbour.v4, TCP)),
        ("IPv6 with the neighbour's MAC", v6(neighbour.mac, hostile.v6)),
        ("IPv6 from the neighbour", v6(own, neighbour.v6)),
        ("IPv6 from the gateway", v6(own, gateway.v6)),
        ("IPv6 from a stranger", v6(own, STRANGER.v6)),
        ("IPv6 from the gateway's link-local address", v6(own, link_local(gateway.mac))),
        ("IPv6 from the neighbour's link-local address", v6(own, link_local(neighbour.mac))),
        ("ARP: the gateway is me", arp(own, 2, own, gateway.v4, neighbour.v4)),
        ("ARP: the neighbour is me", arp(own, 2, own, neighbour.v4, gateway.v4)),
        ("ARP: hear all, the gateway is me", arp(own, 1, own, gateway.v4, gateway.v4)),
        ("ARP: I am the neighbour's MAC", arp(own, 2, neighbour.mac, hostile.v4, gateway.v4)),
        ("ARP around the neighbour's MAC", arp(neighbour.mac, 1, own, hostile.v4, gateway.v4)),
        ("ARP probe for the neighbour's address", arp(own, 1, own, NOBODY, neighbour.v4)),
        ("RARP", ethernet(BROADCAST, own, RARP, &self::arp(3, own, NOBODY, NOBODY))),
        ("advertisement: the gateway is me", na(hostile, gateway.v6)),
        ("advertisement: the neighbour is me", na(hostile, neighbour.v6)),
        ("advertisement: the gateway's link-local address is me", na(hostile, link_local(gateway.mac))),
        ("advertisement from the neighbour", na(Party { v6: neighbour.v6, ..hostile }, hostile.v6)),
        (
            "advertisement around the neighbour's MAC",
            nd(as_mac(neighbour.mac), ADVERTISEMENT, hostile.v6, TARGET_MAC, own),
        ),
        (
            "solicitation from the neighbour",
            nd(Party { v6: neighbour.v6, ..hostile }, SOLICITATION, gateway.v6, SOURCE_MAC, own),
        ),
        ("detection of the neighbour's address", detection(own, neighbour.v6)),
        ("LLDP", ethernet(BROADCAST, own, LLDP, &[0; 46])),
        ("LLC", ethernet(BROADCAST, own, 38, &[0x42, 0x42, 3, 0, 0, 0, 0, 0])),
        (TAGGED, tagged(&v4(own, hostile.v4, UDP))),
    ]
}

/// Name of the only attack that carries a VLAN tag.
pub(super) const TAGGED: &str = "VLAN tag";

/// What no guest sends to anybody but its own pod, whoever it is.
fn services(hostile: Party, neighbour: Party, gateway: Party) -> Vec<(&'static str, Vec<u8>)> {
    let own = hostile.mac;
    let from_own = |mut frame: Vec<u8>| {
        frame.splice(6..12, own);
        frame
    };
    let dhcp4 = |source, from, to| {
        ethernet(BROADCAST, own, IPV4, &ipv4(source, Ipv4Addr::BROADCAST, UDP, &udp(from, to, &bootp(own, 7))))
    };
    let renewal = ipv4(hostile.v4, gateway.v4, UDP, &udp(68, 67, &bootp(own, 8)));
    let from_link_local = link_local(own);
    let dhcp6 =
        |from, to, message: &[u8]| ethernet(ALL_NODES, own, IPV6, &ipv6(from_link_local, UDP, &udp(from, to, message)));
    let icmp6 =
        |kind| ethernet(ALL_NODES, own, IPV6, &icmp6(from_link_local, &[&[kind, 0, 0, 0][..], &[0; 36]].concat()));
    vec![
        ("DHCPv4 discovery", dhcp4(NOBODY, 68, 67)),
        ("DHCPv4 discovery from its address", dhcp4(hostile.v4, 68, 67)),
        ("DHCPv4 renewal to the gateway alone", ethernet(gateway.mac, own, IPV4, &renewal)),
        ("DHCPv4 offer to the neighbour", from_own(rogue_offer(neighbour.mac, [7; 4], STRANGER.v4))),
        ("DHCPv4 offer from its address", dhcp4(hostile.v4, 67, 68)),
        ("DHCPv4 server to an odd port", dhcp4(hostile.v4, 67, 4011)),
        ("DHCPv6 solicitation", dhcp6(546, 547, &[1, 0, 0, 7, 0, 8, 0, 2, 0, 0])),
        ("DHCPv6 advertisement", dhcp6(547, 546, &[2, 0, 0, 7, 0, 8, 0, 2, 0, 0])),
        ("router advertisement of a stranger", from_own(rogue_advertisement())),
        ("router advertisement", icmp6(134)),
        ("router solicitation", icmp6(133)),
        ("redirect", icmp6(137)),
        (
            "two VLAN tags",
            tagged(&tagged(&ethernet(BROADCAST, own, IPV4, &ipv4(hostile.v4, neighbour.v4, TCP, &[0; 20])))),
        ),
    ]
}

/// A request for a lease by the `n`-th station that does not exist.
pub(super) fn starving_discover(n: u32) -> Vec<u8> {
    let [a, b, c, d] = n.to_be_bytes();
    discover([0x02, 0x99, a, b, c, d], n)
}

/// A request for a lease.
pub(super) fn discover(mac: [u8; 6], transaction: u32) -> Vec<u8> {
    let packet = ipv4(NOBODY, Ipv4Addr::BROADCAST, UDP, &udp(68, 67, &bootp(mac, transaction)));
    ethernet(BROADCAST, mac, IPV4, &packet)
}

/// The `n`-th ARP request of somebody who does not exist.
pub(super) fn storming_arp(n: u32) -> Vec<u8> {
    let [_, b, c, d] = n.to_be_bytes();
    let mac = [0x02, 0x98, 0, b, c, d];
    ethernet(BROADCAST, mac, ARP, &arp(1, mac, Ipv4Addr::new(10, b, c, d), Ipv4Addr::new(10, 77, c, d)))
}

/// An ARP request as any host sends it.
pub(super) fn who_has(from: Party, target: Ipv4Addr) -> Vec<u8> {
    ethernet(BROADCAST, from.mac, ARP, &arp(1, from.mac, from.v4, target))
}

/// Whether `frame` is the answer of `of` to a request of `to`.
pub(super) fn is_arp_reply(frame: &[u8], to: Party, of: Party) -> bool {
    let answer = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &of.mac, &of.v4.octets(), &to.mac, &to.v4.octets()].concat();
    frame.get(12..14) == Some(&ARP.to_be_bytes()) && frame.get(14..42) == Some(&answer)
}

/// The transaction of a DHCPv4 reply.
pub(super) fn transaction_of_reply(frame: &[u8]) -> Option<u32> {
    const BOOTP: usize = 14 + 20 + 8;
    let is_reply = frame.get(12..14)? == IPV4.to_be_bytes() && frame.get(34..38)? == [0, 67, 0, 68];
    let transaction = frame.get(BOOTP + 4..BOOTP + 8)?.try_into().ok()?;
    is_reply.then_some(u32::from_be_bytes(transaction))
}

/// A frame as it is recorded: the kernel keeps the tag of one beside it.
pub(super) fn without_tag(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.get(12..16) == Some(&VLAN) {
        frame.drain(12..16);
    }
    frame
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &VLAN, rest].concat()
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}

fn arp(operation: u8, sender_mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, operation][..], &sender_mac, &sender.octets(), &[0; 6], &target.octets()].concat()
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = [&[0x45, 0][..], &be16(20 + payload.len()), &[0, 0, 0, 0, 64, protocol, 0, 0]].concat();
    header.extend([from.octets(), to.octets()].concat());
    let sum = checksum(&[&header]).to_be_bytes();
    header.splice(10..12, sum);
    [header, payload.to_vec()].concat()
}

fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    // No checksum: frames are judged, not delivered.
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &be16(8 + payload.len()), &[0, 0], payload].concat()
}

/// To all nodes.
fn ipv6(from: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    [&[0x60, 0, 0, 0][..], &be16(payload.len()), &[next, 255], &from.octets(), &to.octets(), payload].concat()
}

fn icmp6(from: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let pseudo = [&ipv6(from, ICMPV6, &[])[8..40], &[0, 0], &be16(message.len()), &[0, 0, 0, ICMPV6]].concat();
    let sum = checksum(&[&pseudo, message]).to_be_bytes();
    let mut message = message.to_vec();
    message.splice(2..4, sum);
    ipv6(from, ICMPV6, &message)
}

fn nd(from: Party, kind: u8, target: Ipv6Addr, option: u8, mac: [u8; 6]) -> Vec<u8> {
    let message = [&[kind, 0, 0, 0, 0x20, 0, 0, 0][..], &target.octets(), &[option, 1], &mac].concat();
    ethernet(ALL_NODES, from.mac, IPV6, &icmp6(from.v6, &message))
}

fn detection(mac: [u8; 6], target: Ipv6Addr) -> Vec<u8> {
    let message = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
    ethernet(ALL_NODES, mac, IPV6, &icmp6(Ipv6Addr::UNSPECIFIED, &message))
}

/// A discovery (RFC 2131).
fn bootp(mac: [u8; 6], transaction: u32) -> Vec<u8> {
    let mut message = [&[1, 1, 6, 0][..], &transaction.to_be_bytes(), &[0, 0, 0x80, 0], &[0; 16], &mac].concat();
    message.resize(236, 0);
    message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255]);
    message.resize(300, 0);
    message
}

/// The address that a host with this MAC makes for itself (RFC 4291, appendix A).
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f].into()
}

/// The addresses of a NIC.
pub(super) fn party(nic: &proto::tap::Nic) -> Option<Party> {
    let ips = || nic.addresses.iter().map(ipnetwork::IpNetwork::ip);
    let v4 = ips().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None })?;
    let v6 = ips().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(ip) } else { None })?;
    Some(Party { mac: nic.mac.octets(), v4, v6 })
}
