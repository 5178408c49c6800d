//! IPv6: DHCP, router advertisements behind any header chain, and the source addresses of a guest with anti-spoofing.

use super::layout::{
    DESTINATION_OPTIONS, ETHERNET_LEN, EXTENSION_MIN_LEN, FRAGMENT, HOP_BY_HOP, ICMPV6, IPV6_FRAGMENT_OFFSET,
    IPV6_FRAGMENT_RESERVED, IPV6_LEN, IPV6_NEXT_HEADER, IPV6_SOURCE, IPV6_VERSION, ROUTING, UDP, UDP_LEN, VERSION_MASK,
};
use super::{Exits, FRAGMENTED, NEXT_HEADER, Offset, Rules, ipv4, ipv6_address, need, neighbour};
use crate::sys::bpf::{Assembler, Label, Op, Test};

/// All that RFC 8200, section 4.1, sees a use for. Each costs a joining pod time: the kernel compiles.
pub(crate) const MAX_EXTENSIONS: usize = 5;

/// Where the last header goes.
struct Upper {
    udp: Label,
    icmp: Label,
    /// Anything else, or what cannot be seen.
    other: Label,
}

/// Keeps the next header's type in `A` and its place in `X`.
pub(super) fn judge(asm: &mut Assembler, rules: &Rules<'_>, exits: Exits) {
    let upper = Upper { udp: asm.label(), icmp: asm.label(), other: asm.label() };
    asm.op(Op::Length);
    asm.unless(Test::AtLeast(ETHERNET_LEN + IPV6_LEN), exits.drop);
    asm.op(Op::Byte(ETHERNET_LEN));
    asm.op(Op::And(VERSION_MASK));
    asm.unless(Test::Is(IPV6_VERSION), exits.drop);
    asm.op(Op::AIs(0));
    asm.op(Op::Store(FRAGMENTED));
    asm.op(Op::XIs(ETHERNET_LEN + IPV6_LEN));
    asm.op(Op::Byte(IPV6_NEXT_HEADER));
    for _ in 0..MAX_EXTENSIONS {
        look_through_extension(asm, &upper, exits.drop);
    }
    asm.when(Test::Is(UDP), upper.udp);
    asm.when(Test::Is(ICMPV6), upper.icmp);
    for extension in [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS] {
        asm.when(Test::Is(extension), exits.drop);
    }
    asm.jump(upper.other);

    asm.bind(upper.udp);
    need(asm, UDP_LEN, exits.drop);
    ipv4::unless_banned(asm, Offset::X(0), rules.from[1], rules.udp6, exits.drop);
    asm.jump(upper.other);

    asm.bind(upper.icmp);
    need(asm, 1, exits.drop);
    asm.op(Op::ByteAtX(0));
    for kind in rules.icmp6 {
        asm.when(Test::Is(*kind), exits.drop);
    }
    if let Some(identity) = rules.identity {
        neighbour::judge(asm, identity, upper.other, exits);
        asm.bind(upper.other);
        ipv6_address::when_own(asm, identity, Offset::Frame(IPV6_SOURCE), exits.pass, exits.drop);
    } else {
        asm.bind(upper.other);
        asm.jump(exits.pass);
    }
}

/// Moves on to the header behind an extension header, or leaves.
fn look_through_extension(asm: &mut Assembler, upper: &Upper, drop: Label) {
    let sized = asm.label();
    asm.when(Test::Is(UDP), upper.udp);
    asm.when(Test::Is(ICMPV6), upper.icmp);
    asm.when(Test::Is(HOP_BY_HOP), sized);
    asm.when(Test::Is(ROUTING), sized);
    asm.when(Test::Is(DESTINATION_OPTIONS), sized);
    asm.unless(Test::Is(FRAGMENT), upper.other);

    need(asm, EXTENSION_MIN_LEN, drop);
    asm.op(Op::WordAtX(0));
    asm.when(Test::AnyBit(IPV6_FRAGMENT_OFFSET), upper.other);
    // The length of the others is a reserved byte here. Taken for a length, it must not lead astray.
    asm.when(Test::AnyBit(IPV6_FRAGMENT_RESERVED), drop);
    asm.op(Op::AIs(1));
    asm.op(Op::Store(FRAGMENTED));

    asm.bind(sized);
    need(asm, EXTENSION_MIN_LEN, drop);
    // Type of the next header and length of this one: in units of 8 bytes, not counting the first.
    asm.op(Op::HalfAtX(0));
    asm.op(Op::Store(NEXT_HEADER));
    asm.op(Op::And(0xff));
    asm.op(Op::Add(1));
    asm.op(Op::ShiftLeft(3));
    asm.op(Op::AddX);
    asm.op(Op::XIsA);
    asm.op(Op::Recall(NEXT_HEADER));
    asm.op(Op::ShiftRight(8));
}
