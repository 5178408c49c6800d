//! IPv6: DHCP, router advertisements behind any header chain, and the source of a guest that is held to its identity.

use std::net::Ipv6Addr;

use super::layout::{
    DESTINATION_OPTIONS, ETHERNET_LEN, EXTENSION_MIN_LEN, FRAGMENT, HOP_BY_HOP, ICMPV6, IPV6_FRAGMENT_OFFSET,
    IPV6_FRAGMENT_RESERVED, IPV6_LEN, IPV6_NEXT_HEADER, IPV6_SOURCE, IPV6_VERSION, ROUTING, UDP, UDP_LEN, VERSION_MASK,
};
use super::{Exits, Identity, Place, Rules, ipv4, need, neighbour};
use crate::sys::bpf::{Assembler, Label, Op, Test};

/// All that RFC 8200, section 4.1, sees a use for. Each costs a joining pod time: the kernel compiles.
pub(crate) const MAX_EXTENSIONS: usize = 5;

/// Scratch cell that keeps the next header while its place is worked out.
const NEXT_HEADER: u32 = 0;
/// Scratch cell that is 1 when there was a fragment header, else 0.
pub(super) const FRAGMENTED: u32 = 1;

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
    ipv4::unless_banned(asm, Place::X(0), rules.from[1], rules.udp6, exits.drop);
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
        when_own(asm, identity, Place::Frame(IPV6_SOURCE), exits.pass, exits.drop);
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

/// Ends at `own` if the address at `place` is the guest's or a link-local one that it may have, else at `foreign`.
pub(super) fn when_own(asm: &mut Assembler, identity: &Identity, place: Place, own: Label, foreign: Label) {
    for address in &identity.ipv6 {
        when_is(asm, place, *address, own);
    }
    asm.op(place.half());
    asm.op(Op::And(0xffc0));
    asm.unless(Test::Is(0xfe80), foreign);
    for gateway in &identity.gateways {
        when_is(asm, place, *gateway, foreign);
    }
    // The middle of an interface identifier of the EUI-64 form (RFC 4291, appendix A).
    asm.op(place.plus(11).half());
    asm.unless(Test::Is(0xfffe), own);
    let [a, b, c, d, e, f] = identity.mac.octets();
    asm.op(place.plus(8).word());
    asm.unless(Test::Is(u32::from_be_bytes([a ^ 2, b, c, 0xff])), foreign);
    asm.op(place.plus(12).word());
    asm.when(Test::Is(u32::from_be_bytes([0xfe, d, e, f])), own);
    asm.jump(foreign);
}

/// Goes to `same` if `address` stands there, else on. Overwrites `A`.
pub(super) fn when_is(asm: &mut Assembler, place: Place, address: Ipv6Addr, same: Label) {
    let other = asm.label();
    let bits = address.to_bits();
    for (bytes, word) in [(0, bits >> 96), (4, bits >> 64), (8, bits >> 32), (12, bits)] {
        #[expect(clippy::cast_possible_truncation, reason = "the low word is what is wanted")]
        let word = word as u32;
        asm.op(place.plus(bytes).word());
        asm.unless(Test::Is(word), other);
    }
    asm.jump(same);
    asm.bind(other);
}
