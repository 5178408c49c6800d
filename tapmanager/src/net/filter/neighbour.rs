//! Neighbour Discovery and multicast listener reports of a guest with anti-spoofing.

use std::net::Ipv6Addr;

use super::layout::{
    IPV6_SOURCE, LISTENER_DONE, LISTENER_REPORT, LISTENER_REPORT_V2, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_LEN,
    NEIGHBOUR_SOLICITATION, NEIGHBOUR_TARGET, OPTION_UNIT, SOURCE_MAC_OPTION, TARGET_MAC_OPTION,
};
use super::{Exits, FRAGMENTED, Identity, Offset, ipv6_address, need, unless_mac};
use crate::sys::bpf::{Assembler, Label, Op, Test};

/// Hosts send a link-layer address and a nonce (RFC 7527); two more are spare.
pub(super) const MAX_OPTIONS: usize = 4;

/// Finds ICMPv6 at `X` and its type in `A`. Goes to `sourced` with what is good if its source is.
pub(super) fn judge(asm: &mut Assembler, identity: &Identity, sourced: Label, exits: Exits) {
    let (listener, solicitation, advertisement) = (asm.label(), asm.label(), asm.label());
    let (detection, options) = (asm.label(), asm.label());
    let from = Offset::Frame(IPV6_SOURCE);
    for kind in [LISTENER_REPORT, LISTENER_DONE, LISTENER_REPORT_V2] {
        asm.when(Test::Is(kind), listener);
    }
    asm.when(Test::Is(NEIGHBOUR_SOLICITATION), solicitation);
    asm.when(Test::Is(NEIGHBOUR_ADVERTISEMENT), advertisement);
    asm.jump(sourced);

    asm.bind(listener);
    ipv6_address::when_is(asm, from, Ipv6Addr::UNSPECIFIED, exits.pass);
    asm.jump(sourced);

    asm.bind(solicitation);
    whole(asm, exits.drop);
    ipv6_address::when_is(asm, from, Ipv6Addr::UNSPECIFIED, detection);
    asm.jump(options);

    // Duplicate address detection. With a link-layer address in it nobody would take it (RFC 4861, section 7.1.1).
    asm.bind(detection);
    ipv6_address::when_own(asm, identity, Offset::X(NEIGHBOUR_TARGET), exits.pass, exits.drop);

    asm.bind(advertisement);
    whole(asm, exits.drop);
    ipv6_address::when_own(asm, identity, Offset::X(NEIGHBOUR_TARGET), options, exits.drop);

    asm.bind(options);
    asm.op(Op::AIs(NEIGHBOUR_LEN));
    for _ in 0..MAX_OPTIONS {
        skip(asm);
        option(asm, identity, sourced, exits.drop);
    }
    skip(asm);
    asm.op(Op::Length);
    asm.op(Op::SubX);
    asm.when(Test::Is(0), sourced);
    asm.jump(exits.drop);
}

fn whole(asm: &mut Assembler, drop: Label) {
    asm.op(Op::Recall(FRAGMENTED));
    asm.unless(Test::Is(0), drop);
    need(asm, NEIGHBOUR_LEN, drop);
}

/// Judges the option at `X` and leaves its length in `A`; ends at `end` if there is none. The options fill the frame:
/// what pads it would be taken for one, and hosts pad nothing of this length.
fn option(asm: &mut Assembler, identity: &Identity, end: Label, drop: Label) {
    let (some, address, done) = (asm.label(), asm.label(), asm.label());
    asm.op(Op::Length);
    asm.op(Op::SubX);
    asm.unless(Test::Is(0), some);
    asm.jump(end);
    asm.bind(some);
    need(asm, OPTION_UNIT, drop);
    asm.op(Op::HalfAtX(0));
    asm.when(Test::Is(SOURCE_MAC_OPTION), address);
    asm.when(Test::Is(TARGET_MAC_OPTION), address);
    // Of these types and of another length, it is something that only a careless reader takes for an address.
    asm.op(Op::ShiftRight(8));
    asm.when(Test::Is(SOURCE_MAC_OPTION >> 8), drop);
    asm.when(Test::Is(TARGET_MAC_OPTION >> 8), drop);
    asm.op(Op::ByteAtX(1));
    asm.op(Op::ShiftLeft(3));
    asm.when(Test::Is(0), drop);
    asm.jump(done);
    asm.bind(address);
    unless_mac(asm, Offset::X(2), identity.mac, drop);
    asm.op(Op::AIs(OPTION_UNIT));
    asm.bind(done);
}

/// Moves `X` on by `A`.
fn skip(asm: &mut Assembler) {
    asm.op(Op::AddX);
    asm.op(Op::XIsA);
}
