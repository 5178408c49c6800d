//! ARP of a guest with anti-spoofing: it may speak for its own addresses alone.

use super::layout::{
    ARP_LEN, ARP_LENGTHS, ARP_OPERATION, ARP_REPLY, ARP_REQUEST, ARP_SENDER_IP, ARP_SENDER_MAC, ARP_TARGET_IP,
    ARP_TYPES, ETHERNET_LEN,
};
use super::{Exits, Identity, Offset, ipv4, unless_mac};
use crate::sys::bpf::{Assembler, Op, Test};

pub(super) fn judge(asm: &mut Assembler, identity: &Identity, exits: Exits) {
    let (request, other) = (asm.label(), asm.label());
    asm.op(Op::Length);
    asm.unless(Test::AtLeast(ETHERNET_LEN + ARP_LEN), exits.drop);
    asm.op(Op::Word(ETHERNET_LEN));
    asm.unless(Test::Is(ARP_TYPES), exits.drop);
    asm.op(Op::Half(ETHERNET_LEN + 4));
    asm.unless(Test::Is(ARP_LENGTHS), exits.drop);
    unless_mac(asm, Offset::Frame(ETHERNET_LEN + ARP_SENDER_MAC), identity.mac, exits.drop);
    asm.op(Op::Half(ETHERNET_LEN + ARP_OPERATION));
    asm.when(Test::Is(ARP_REQUEST), request);
    asm.unless(Test::Is(ARP_REPLY), exits.drop);
    asm.op(Op::Word(ETHERNET_LEN + ARP_SENDER_IP));
    ipv4::when_own(asm, identity, exits.pass);
    asm.jump(exits.drop);

    asm.bind(request);
    asm.op(Op::Word(ETHERNET_LEN + ARP_SENDER_IP));
    asm.unless(Test::Is(0), other);
    // A probe: whose sender has no address yet asks whether somebody has the one that it is about to take.
    asm.op(Op::Word(ETHERNET_LEN + ARP_TARGET_IP));
    asm.bind(other);
    ipv4::when_own(asm, identity, exits.pass);
    asm.jump(exits.drop);
}
