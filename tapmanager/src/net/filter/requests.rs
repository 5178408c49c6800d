//! The filter of the packet socket on a tap: what a guest asks its own pod for.
//!
//! Used by [`crate::net`] for the socket that the pod's DHCP and router-advertisement servers listen on. It hears
//! frames before the tap's guard drops them.

use std::net::Ipv4Addr;

use super::layout::{
    ARP, ARP_OPERATION, ARP_REQUEST, ARP_TARGET_IP, DHCPV4_SERVER, DHCPV6_SERVER, ETHERNET_LEN, ETHERTYPE, ICMPV6,
    IPV4, IPV4_FRAGMENT, IPV4_FRAGMENT_OFFSET, IPV4_MORE_FRAGMENTS, IPV4_PROTOCOL, IPV6, IPV6_LEN, IPV6_NEXT_HEADER,
    NEIGHBOUR_SOLICITATION, ROUTER_SOLICITATION, UDP, UDP_DESTINATION,
};
use crate::sys::bpf::{Assembler, Op, Program, Test};

/// Hears UDP to port 67 over IPv4 and to port 547 over IPv6, router solicitations and neighbour solicitations; whole,
/// without a VLAN tag and without IPv6 extension headers, as no client sends any. Of ARP, requests for `neighbours` alone:
/// all others would spend the budget that a guest is heard with.
pub(crate) fn guest_requests(neighbours: &[Ipv4Addr]) -> Program {
    let mut asm = Assembler::default();
    let (v6, udp6, no, yes) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.op(Op::VlanTagged);
    asm.unless(Test::Is(0), no);
    asm.op(Op::Half(ETHERTYPE));
    asm.when(Test::Is(IPV6), v6);
    let arp = (!neighbours.is_empty()).then(|| asm.label());
    if let Some(arp) = arp {
        asm.when(Test::Is(ARP), arp);
    }
    asm.unless(Test::Is(IPV4), no);

    asm.op(Op::Byte(IPV4_PROTOCOL));
    asm.unless(Test::Is(UDP), no);
    asm.op(Op::Half(IPV4_FRAGMENT));
    asm.when(Test::AnyBit(IPV4_FRAGMENT_OFFSET | IPV4_MORE_FRAGMENTS), no);
    asm.op(Op::XIpv4HeaderLength(ETHERNET_LEN));
    asm.op(Op::HalfAtX(ETHERNET_LEN + UDP_DESTINATION));
    asm.when(Test::Is(DHCPV4_SERVER), yes);
    asm.jump(no);

    asm.bind(v6);
    asm.op(Op::Byte(IPV6_NEXT_HEADER));
    asm.when(Test::Is(UDP), udp6);
    asm.unless(Test::Is(ICMPV6), no);
    asm.op(Op::Byte(ETHERNET_LEN + IPV6_LEN));
    asm.when(Test::Is(ROUTER_SOLICITATION), yes);
    asm.when(Test::Is(NEIGHBOUR_SOLICITATION), yes);
    asm.jump(no);
    asm.bind(udp6);
    asm.op(Op::Half(ETHERNET_LEN + IPV6_LEN + UDP_DESTINATION));
    asm.when(Test::Is(DHCPV6_SERVER), yes);

    asm.jump(no);
    if let Some(arp) = arp {
        asm.bind(arp);
        asm.op(Op::Half(ETHERNET_LEN + ARP_OPERATION));
        asm.unless(Test::Is(ARP_REQUEST), no);
        asm.op(Op::Word(ETHERNET_LEN + ARP_TARGET_IP));
        for neighbour in neighbours {
            asm.when(Test::Is(neighbour.to_bits()), yes);
        }
    }

    asm.bind(no);
    asm.give(0);
    asm.bind(yes);
    asm.give(u32::MAX);
    asm.finish().expect("same code but for operands, and the tests assemble it")
}
