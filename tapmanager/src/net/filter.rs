//! Filters between a guest and the network outside its pod: what they drop, as classic BPF programs.
//!
//! [`super::plan`] chooses a NIC's filters, [`super::kernel`] attaches the programs to the links. [`Guard::program`]
//! drops ([`tc::DROP`]) or lets go on ([`tc::GO_ON`]) to the redirect behind it; it never gives `TC_ACT_OK`, which
//! would show a frame to the namespace's own stack, and therefore checks lengths before each load.
//!
//! | link | dropped |
//! |---|---|
//! | tap (guest to outside) | what a guest asks its pod for: UDP to port 67 over IPv4 and to 547 over IPv6, ICMPv6 133 (router solicitation); what a guest serves nobody: UDP to port 68 and from 67 over IPv4, to 546 and from 547 over IPv6, ICMPv6 134 (router advertisement) and 137 (redirect) |
//! | tap, with anti-spoofing | all but IPv4, IPv6 and ARP, hence LLC and spanning tree too; VLAN tags; source MAC other than the guest's; the rest of the next table |
//! | CNI's link (outside to guest) | source MAC is the guest's (a bridge in hairpin mode reflects its broadcasts); UDP to 68 over IPv4 and to 546 over IPv6: foreign DHCP; ICMPv6 type 134: foreign router advertisements |
//! | CNI's link, with anti-spoofing | destination is another station (a bridge floods) |
//! | all | frames that cannot be judged: IP or UDP header cut off or of another version, more than one VLAN tag, more than [`ipv6::MAX_EXTENSIONS`] IPv6 extension headers |
//!
//! Without anti-spoofing a guest may be a bridge or a router with other stations behind it, so frames for them reach
//! it. In an address family in which the pod's servers tell the guest nothing ([`Served`]), the guest asks the network:
//! a DHCP client's messages, router solicitations and router advertisements cross.
//!
//! With anti-spoofing (the default; an annotation turns it off) a guest sends only from its [`Identity`]:
//!
//! | what | where |
//! |---|---|
//! | ARP requests and replies, IPv4 over Ethernet | sender's MAC is its own; sender's IP is one of its own, or 0.0.0.0 in a request for one of its own (RFC 5227 probe) |
//! | IPv4 | source is one of its own; 0.0.0.0 is for DHCP, which does not cross at all |
//! | IPv6 | source is one of its own or link-local, see below; `::` only in the two next rows |
//! | multicast listener reports | from `::` also: sent before there is an address (RFC 3590) |
//! | neighbour solicitations | from `::` also, for a target that is its own or link-local: duplicate address detection |
//! | neighbour advertisements | the target is its own or link-local |
//! | both of these | whole, not in fragments (RFC 6980); link-layer addresses in options are its own MAC; at most [`neighbour::MAX_OPTIONS`] options |
//!
//! Link-local addresses are the guest's own choice (EUI-64, RFC 7217 or random), so they cannot be told beforehand. All
//! of `fe80::/10` is allowed but what others are known to have: the pod's link-local gateways, and addresses of the
//! EUI-64 form with another MAC than the guest's, as Linux bridges and most hosts have. One in 65536 random addresses
//! has that form by chance: such a guest's link-local packets do not cross.
//!
//! What is looked through:
//! - IPv4 options: the header's own length is used.
//! - Fragments: the first one has the ports and is judged by them. The others are judged by their addresses alone, as
//!   nothing is put together without the first. An IPv6 first fragment whose header chain is cut off is dropped, as RFC
//!   7112 has it.
//! - IPv6 extension headers (hop-by-hop, destination options, routing, fragment). Behind IPsec (AH, ESP) nothing is
//!   looked at: who can open it has agreed to it.
//! - VLAN: the kernel takes one tag off before filters see a frame, so a tagged frame is judged by what is in it and
//!   crosses with its tag, unless there is anti-spoofing. A second tag would hide the inside: such frames are dropped.
//!
//! Not caught: what is inside tunnels; without anti-spoofing also IP over LLC/SNAP, over which no client takes DHCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::tap::MacAddr;

use crate::sys::bpf::{Assembler, Label, Op, Program, Test};
use crate::sys::tc;
pub(crate) use guards::Guards;

mod arp;
mod guards;
mod ipv4;
mod ipv6;
mod ipv6_address;
mod layout;
mod neighbour;
mod requests;

pub(crate) use requests::guest_requests;

use layout::{
    ARP, DHCPV4_CLIENT, DHCPV4_SERVER, DHCPV6_CLIENT, DHCPV6_SERVER, ETHERNET_DESTINATION, ETHERNET_LEN,
    ETHERNET_SOURCE, ETHERTYPE, GROUP_BIT, IPV4, IPV6, REDIRECT, ROUTER_ADVERTISEMENT, ROUTER_SOLICITATION,
    SERVICE_VLAN, VLAN,
};

/// Most addresses of a guest that is held to them, its link-local gateways included: each is compared with in turn.
pub(crate) const MAX_ADDRESSES: usize = 32;

/// Scratch cell that keeps the next header of IPv6 while its place is worked out.
const NEXT_HEADER: u32 = 0;
/// Scratch cell that is 1 when there was a fragment header of IPv6, else 0.
const FRAGMENTED: u32 = 1;

/// A filter on the ingress side of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Guard {
    /// On the tap: drops what the guest sends from addresses that it was not given (anti-spoofing).
    FromGuestAntiSpoof(Identity),
    /// On the tap, without anti-spoofing.
    FromGuest(Served),
    /// On the CNI's link: drops what is not for the guest with this MAC address, its partner in anti-spoofing.
    ToGuestAntiSpoof(MacAddr),
    /// On the CNI's link, without anti-spoofing: the guest may have more MAC addresses than this one.
    ToGuest(MacAddr, Served),
}

/// The address families in which the pod's own servers tell the guest all there is, so that nobody else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Served {
    /// By DHCP.
    pub(crate) v4: bool,
    /// By router advertisements and DHCPv6.
    pub(crate) v6: bool,
}

/// Who a guest is: what it may use as a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    mac: MacAddr,
    ipv4: Vec<Ipv4Addr>,
    ipv6: Vec<Ipv6Addr>,
    /// Link-local addresses of others.
    gateways: Vec<Ipv6Addr>,
}

/// A guest cannot be held to so many addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} addresses and gateways, and a guest can be held to {MAX_ADDRESSES} at most; give the NIC fewer or turn \
     anti-spoofing off for the pod"
)]
pub(crate) struct TooManyAddresses {
    /// How many.
    pub(crate) count: usize,
}

/// What a guard looks for.
#[derive(Debug, Clone, Copy)]
struct Rules<'a> {
    /// Ports that no UDP over IPv4 is let through to.
    udp4: &'a [u32],
    /// The same over IPv6.
    udp6: &'a [u32],
    /// Ports that no UDP is let through from, over IPv4 and over IPv6.
    from: [&'a [u32]; 2],
    /// Types of ICMPv6 that are not let through.
    icmp6: &'a [u32],
    /// Who the sender must be.
    identity: Option<&'a Identity>,
}

/// The ends of a program.
#[derive(Debug, Clone, Copy)]
struct Exits {
    drop: Label,
    pass: Label,
}

/// Where to load from: the start of the frame or `X`, and bytes from there.
#[derive(Debug, Clone, Copy)]
enum Offset {
    Frame(u32),
    X(u32),
}

// === impl Guard ===

impl Guard {
    /// The guard's program.
    pub(crate) fn program(&self) -> Program {
        let mut asm = Assembler::default();
        let exits = Exits { drop: asm.label(), pass: asm.label() };
        asm.op(Op::Length);
        asm.unless(Test::AtLeast(ETHERNET_LEN), exits.drop);
        let rules = match self {
            Self::FromGuestAntiSpoof(identity) => {
                asm.op(Op::VlanTagged);
                asm.unless(Test::Is(0), exits.drop);
                unless_mac(&mut asm, Offset::Frame(ETHERNET_SOURCE), identity.mac, exits.drop);
                Rules { identity: Some(identity), ..Rules::from_guest(Served::ALL) }
            }
            Self::FromGuest(served) => Rules::from_guest(*served),
            Self::ToGuestAntiSpoof(mac) => {
                let group = asm.label();
                asm.op(Op::Byte(ETHERNET_DESTINATION));
                asm.when(Test::AnyBit(GROUP_BIT), group);
                unless_mac(&mut asm, Offset::Frame(ETHERNET_DESTINATION), *mac, exits.drop);
                asm.bind(group);
                drop_reflections(&mut asm, *mac, exits.drop);
                Rules::to_guest(Served::ALL)
            }
            Self::ToGuest(mac, served) => {
                drop_reflections(&mut asm, *mac, exits.drop);
                Rules::to_guest(*served)
            }
        };
        judge(&mut asm, &rules, exits);
        asm.bind(exits.pass);
        asm.give(tc::GO_ON);
        asm.bind(exits.drop);
        asm.give(tc::DROP);
        asm.finish().expect("same code for every guard but for operands, and the tests assemble the longest")
    }
}

// === impl Served ===

impl Served {
    /// Both.
    pub(crate) const ALL: Self = Self { v4: true, v6: true };
}

// === impl Rules ===

impl Rules<'_> {
    fn from_guest(served: Served) -> Self {
        Self {
            udp4: if served.v4 { &[DHCPV4_SERVER, DHCPV4_CLIENT] } else { &[DHCPV4_CLIENT] },
            udp6: if served.v6 { &[DHCPV6_SERVER, DHCPV6_CLIENT] } else { &[DHCPV6_CLIENT] },
            from: [&[DHCPV4_SERVER], &[DHCPV6_SERVER]],
            icmp6: if served.v6 {
                &[ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, REDIRECT]
            } else {
                &[ROUTER_ADVERTISEMENT, REDIRECT]
            },
            identity: None,
        }
    }

    fn to_guest(served: Served) -> Self {
        let udp4: &[u32] = if served.v4 { &[DHCPV4_CLIENT] } else { &[] };
        let (udp6, icmp6): (&[u32], &[u32]) =
            if served.v6 { (&[DHCPV6_CLIENT], &[ROUTER_ADVERTISEMENT]) } else { (&[], &[]) };
        Self { udp4, udp6, from: [&[], &[]], icmp6, identity: None }
    }
}

// === impl Identity ===

impl Identity {
    /// A guest with this MAC and these addresses. Link-local ones among `gateways` are theirs alone.
    pub(crate) fn new(mac: MacAddr, addresses: &[IpAddr], gateways: &[IpAddr]) -> Result<Self, TooManyAddresses> {
        let v4 = |ip: &IpAddr| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None };
        let v6 = |ip: &IpAddr| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None };
        let (ipv4, ipv6) = (addresses.iter().filter_map(v4).collect(), addresses.iter().filter_map(v6).collect());
        let gateways: Vec<Ipv6Addr> = gateways.iter().filter_map(v6).filter(Ipv6Addr::is_unicast_link_local).collect();
        let count = addresses.len() + gateways.len();
        if count > MAX_ADDRESSES {
            return Err(TooManyAddresses { count });
        }
        Ok(Self { mac, ipv4, ipv6, gateways })
    }
}

// === impl Offset ===

impl Offset {
    fn plus(self, bytes: u32) -> Self {
        match self {
            Self::Frame(at) => Self::Frame(at + bytes),
            Self::X(at) => Self::X(at + bytes),
        }
    }

    fn half(self) -> Op {
        match self {
            Self::Frame(at) => Op::Half(at),
            Self::X(at) => Op::HalfAtX(at),
        }
    }

    fn word(self) -> Op {
        match self {
            Self::Frame(at) => Op::Word(at),
            Self::X(at) => Op::WordAtX(at),
        }
    }
}

fn judge(asm: &mut Assembler, rules: &Rules<'_>, exits: Exits) {
    let (v4, v6) = (asm.label(), asm.label());
    asm.op(Op::Half(ETHERTYPE));
    asm.when(Test::Is(IPV4), v4);
    asm.when(Test::Is(IPV6), v6);
    if let Some(identity) = rules.identity {
        asm.unless(Test::Is(ARP), exits.drop);
        arp::judge(asm, identity, exits);
    } else {
        asm.when(Test::Is(VLAN), exits.drop);
        asm.when(Test::Is(SERVICE_VLAN), exits.drop);
        asm.jump(exits.pass);
    }
    asm.bind(v4);
    ipv4::judge(asm, rules, exits);
    asm.bind(v6);
    ipv6::judge(asm, rules, exits);
}

/// Goes to `drop` if the guest itself sent the frame. Overwrites `A`.
fn drop_reflections(asm: &mut Assembler, guest: MacAddr, drop: Label) {
    let foreign = asm.label();
    unless_mac(asm, Offset::Frame(ETHERNET_SOURCE), guest, foreign);
    asm.jump(drop);
    asm.bind(foreign);
}

/// Goes to `other` unless `mac` stands there. Overwrites `A`.
fn unless_mac(asm: &mut Assembler, place: Offset, mac: MacAddr, other: Label) {
    let [a, b, c, d, e, f] = mac.octets();
    asm.op(place.word());
    asm.unless(Test::Is(u32::from_be_bytes([a, b, c, d])), other);
    asm.op(place.plus(4).half());
    asm.unless(Test::Is(u32::from_be_bytes([0, 0, e, f])), other);
}

/// Goes to `drop` unless `len` bytes of the frame are left at `X`. Overwrites `A`.
fn need(asm: &mut Assembler, len: u32, drop: Label) {
    asm.op(Op::Length);
    // First this: the difference of the next step must not wrap around.
    asm.unless(Test::AtLeastX, drop);
    asm.op(Op::SubX);
    asm.unless(Test::AtLeast(len), drop);
}

#[cfg(test)]
pub(super) mod tests;
