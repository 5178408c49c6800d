//! IPv4: DHCP, and the source addresses of a guest with anti-spoofing.

use super::layout::{
    ETHERNET_LEN, IPV4_FRAGMENT, IPV4_FRAGMENT_OFFSET, IPV4_MIN_LEN, IPV4_MIN_WORDS, IPV4_PROTOCOL, IPV4_SOURCE,
    IPV4_VERSION, UDP, UDP_DESTINATION, UDP_LEN, VERSION_MASK,
};
use super::{Exits, Identity, Offset, Rules, need};
use crate::sys::bpf::{Assembler, Label, Op, Test};

pub(super) fn judge(asm: &mut Assembler, rules: &Rules<'_>, exits: Exits) {
    asm.op(Op::Length);
    asm.unless(Test::AtLeast(ETHERNET_LEN + IPV4_MIN_LEN), exits.drop);
    asm.op(Op::Byte(ETHERNET_LEN));
    asm.op(Op::And(VERSION_MASK));
    asm.unless(Test::Is(IPV4_VERSION), exits.drop);
    asm.op(Op::Byte(ETHERNET_LEN));
    asm.op(Op::And(!VERSION_MASK));
    asm.unless(Test::AtLeast(IPV4_MIN_WORDS), exits.drop);
    if let Some(identity) = rules.identity {
        if identity.ipv4.is_empty() {
            // What follows would never be reached.
            return asm.jump(exits.drop);
        }
        let own = asm.label();
        asm.op(Op::Word(IPV4_SOURCE));
        when_own(asm, identity, own);
        asm.jump(exits.drop);
        asm.bind(own);
    }
    asm.op(Op::Byte(IPV4_PROTOCOL));
    asm.unless(Test::Is(UDP), exits.pass);
    asm.op(Op::Half(IPV4_FRAGMENT));
    asm.when(Test::AnyBit(IPV4_FRAGMENT_OFFSET), exits.pass);
    asm.op(Op::XIpv4HeaderLength(ETHERNET_LEN));
    need(asm, ETHERNET_LEN + UDP_LEN, exits.drop);
    unless_banned(asm, Offset::X(ETHERNET_LEN), rules.from[0], rules.udp4, exits.drop);
    asm.jump(exits.pass);
}

/// Goes to `drop` if the UDP header at `header` has one of these ports. Overwrites `A`.
pub(super) fn unless_banned(asm: &mut Assembler, header: Offset, from: &[u32], to: &[u32], drop: Label) {
    for (place, ports) in [(header, from), (header.plus(UDP_DESTINATION), to)] {
        if !ports.is_empty() {
            asm.op(place.half());
        }
        for port in ports {
            asm.when(Test::Is(*port), drop);
        }
    }
}

/// Goes to `own` if `A` is an address of the guest.
pub(super) fn when_own(asm: &mut Assembler, identity: &Identity, own: Label) {
    for address in &identity.ipv4 {
        asm.when(Test::Is(address.to_bits()), own);
    }
}
