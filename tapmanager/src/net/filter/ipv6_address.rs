//! Whether an IPv6 address in a frame is one that the guest may have.

use std::net::Ipv6Addr;

use super::{Identity, Offset};
use crate::sys::bpf::{Assembler, Label, Op, Test};

/// Ends at `own` if the address at `place` is the guest's or a link-local one that it may have, else at `foreign`.
pub(super) fn when_own(asm: &mut Assembler, identity: &Identity, place: Offset, own: Label, foreign: Label) {
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
pub(super) fn when_is(asm: &mut Assembler, place: Offset, address: Ipv6Addr, same: Label) {
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
