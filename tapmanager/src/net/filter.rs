//! What must not cross between a guest and the network outside its pod, as classic BPF programs.
//!
//! Used by [`super::kernel`], which hangs them on the links. [`Guard::program`] drops ([`tc::DROP`]) or lets go on
//! ([`tc::GO_ON`]) to the redirect behind it; it never gives `TC_ACT_OK`, which would show a frame to the namespace's
//! own stack, and therefore checks lengths before each load.
//!
//! | link | dropped |
//! |---|---|
//! | tap (guest to outside) | UDP to port 67 over IPv4 and to port 547 over IPv6: DHCP is answered in the pod |
//! | CNI's link (outside to guest) | source MAC is the guest's (a bridge in hairpin mode reflects its broadcasts); UDP to 68 over IPv4 and to 546 over IPv6: foreign DHCP; ICMPv6 type 134: foreign router advertisements |
//! | both | frames that cannot be judged: IP or UDP header cut off, more than one VLAN tag, more than [`MAX_EXTENSIONS`] IPv6 extension headers |
//!
//! What is looked through:
//! - IPv4 options: the header's own length is used.
//! - Fragments: the first one has the ports and is judged by them. The others pass, as nothing is put together without
//!   the first. An IPv6 first fragment whose header chain is cut off is dropped, as RFC 7112 has it.
//! - IPv6 extension headers (hop-by-hop, destination options, routing, fragment). Behind IPsec (AH, ESP) nothing is
//!   looked at: who can open it has agreed to it.
//! - VLAN: the kernel takes one tag off before filters see a frame, so a tagged frame is judged by what is in it and
//!   crosses with its tag. A second tag would hide the inside: such frames are dropped.
//!
//! Not caught: IP in other encapsulations (LLC/SNAP, tunnels), which nobody takes DHCP from.

use proto::tap::MacAddr;

use crate::sys::bpf::{Assembler, Label, Op, Program, Test};
use crate::sys::tc;

/// All that RFC 8200, section 4.1, sees a use for. Each costs a joining pod some 30 us per guard: the kernel compiles.
pub(crate) const MAX_EXTENSIONS: usize = 5;

const ETHERNET_LEN: u32 = 14;
const ETHERTYPE: u32 = 12;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const VLAN: u32 = 0x8100;
const SERVICE_VLAN: u32 = 0x88a8;
const IPV4_MIN_LEN: u32 = 20;
const IPV4_FRAGMENT: u32 = ETHERNET_LEN + 6;
const IPV4_FRAGMENT_OFFSET: u32 = 0x1fff;
const IPV4_MORE_FRAGMENTS: u32 = 0x2000;
const IPV4_PROTOCOL: u32 = ETHERNET_LEN + 9;
const IPV6_LEN: u32 = 40;
const IPV6_NEXT_HEADER: u32 = ETHERNET_LEN + 6;
const UDP: u32 = 17;
const UDP_LEN: u32 = 8;
const UDP_DESTINATION: u32 = 2;
const ICMPV6: u32 = 58;
const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const DESTINATION_OPTIONS: u32 = 60;
const EXTENSION_MIN_LEN: u32 = 8;
// In the first word of a fragment header: next header, reserved, offset and flags.
const IPV6_FRAGMENT_OFFSET: u32 = 0xfff8;
const IPV6_FRAGMENT_RESERVED: u32 = 0x00ff_0000;
/// Scratch cell that keeps the next header while its place is worked out.
const NEXT_HEADER: u32 = 0;

const DHCPV4_SERVER: u32 = 67;
const DHCPV4_CLIENT: u32 = 68;
const DHCPV6_SERVER: u32 = 547;
const DHCPV6_CLIENT: u32 = 546;
const ROUTER_ADVERTISEMENT: u32 = 134;

/// A filter on the ingress side of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// On the tap: of what the guest sends.
    FromGuest,
    /// On the CNI's link: of what is sent to the guest with this MAC.
    ToGuest(MacAddr),
}

/// What a guard looks for.
struct Banned {
    source: Option<MacAddr>,
    udp4: u32,
    udp6: u32,
    icmp6: Option<u32>,
}

// === impl Guard ===

impl Guard {
    /// The guard's program.
    pub(crate) fn program(self) -> Program {
        let banned = match self {
            Self::FromGuest => Banned { source: None, udp4: DHCPV4_SERVER, udp6: DHCPV6_SERVER, icmp6: None },
            Self::ToGuest(mac) => Banned {
                source: Some(mac),
                udp4: DHCPV4_CLIENT,
                udp6: DHCPV6_CLIENT,
                icmp6: Some(ROUTER_ADVERTISEMENT),
            },
        };
        let mut asm = Assembler::default();
        guard(&mut asm, &banned);
        asm.finish().expect("same code for every guard but for operands, and the tests assemble it")
    }
}

/// The filter of a DHCP server's packet socket: whole IPv4 UDP datagrams to port 67 without a VLAN tag.
pub(crate) fn dhcp_requests() -> Program {
    let mut asm = Assembler::default();
    let (no, yes) = (asm.label(), asm.label());
    asm.op(Op::VlanTagged);
    asm.unless(Test::Is(0), no);
    asm.op(Op::Half(ETHERTYPE));
    asm.unless(Test::Is(IPV4), no);
    asm.op(Op::Byte(IPV4_PROTOCOL));
    asm.unless(Test::Is(UDP), no);
    asm.op(Op::Half(IPV4_FRAGMENT));
    asm.when(Test::AnyBit(IPV4_FRAGMENT_OFFSET | IPV4_MORE_FRAGMENTS), no);
    asm.op(Op::XIpv4HeaderLength(ETHERNET_LEN));
    asm.op(Op::HalfAtX(ETHERNET_LEN + UDP_DESTINATION));
    asm.when(Test::Is(DHCPV4_SERVER), yes);
    asm.bind(no);
    asm.give(0);
    asm.bind(yes);
    asm.give(u32::MAX);
    asm.finish().expect("constant code, and the tests assemble it")
}

fn guard(asm: &mut Assembler, banned: &Banned) {
    let (v4, v6) = (asm.label(), asm.label());
    let (drop, pass) = (asm.label(), asm.label());
    asm.op(Op::Length);
    asm.unless(Test::AtLeast(ETHERNET_LEN), drop);
    if let Some(mac) = banned.source {
        let [a, b, c, d, e, f] = mac.octets();
        let other = asm.label();
        asm.op(Op::Word(6));
        asm.unless(Test::Is(u32::from_be_bytes([a, b, c, d])), other);
        asm.op(Op::Half(10));
        asm.when(Test::Is(u32::from_be_bytes([0, 0, e, f])), drop);
        asm.bind(other);
    }
    asm.op(Op::Half(ETHERTYPE));
    asm.when(Test::Is(IPV4), v4);
    asm.when(Test::Is(IPV6), v6);
    asm.when(Test::Is(VLAN), drop);
    asm.when(Test::Is(SERVICE_VLAN), drop);
    asm.bind(pass);
    asm.give(tc::GO_ON);
    asm.bind(drop);
    asm.give(tc::DROP);

    asm.bind(v4);
    guard_v4(asm, banned);
    asm.bind(v6);
    guard_v6(asm, banned);
}

fn guard_v4(asm: &mut Assembler, banned: &Banned) {
    let (drop, pass) = (asm.label(), asm.label());
    asm.op(Op::Length);
    asm.unless(Test::AtLeast(ETHERNET_LEN + IPV4_MIN_LEN), drop);
    asm.op(Op::Byte(IPV4_PROTOCOL));
    asm.unless(Test::Is(UDP), pass);
    asm.op(Op::Half(IPV4_FRAGMENT));
    asm.when(Test::AnyBit(IPV4_FRAGMENT_OFFSET), pass);
    asm.op(Op::XIpv4HeaderLength(ETHERNET_LEN));
    need(asm, ETHERNET_LEN + UDP_LEN, drop);
    asm.op(Op::HalfAtX(ETHERNET_LEN + UDP_DESTINATION));
    asm.when(Test::Is(banned.udp4), drop);
    asm.bind(pass);
    asm.give(tc::GO_ON);
    asm.bind(drop);
    asm.give(tc::DROP);
}

/// Keeps the next header's type in `A` and its place in `X`.
fn guard_v6(asm: &mut Assembler, banned: &Banned) {
    let (whole, udp, icmp, drop) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.op(Op::Length);
    asm.when(Test::AtLeast(ETHERNET_LEN + IPV6_LEN), whole);
    asm.give(tc::DROP);
    asm.bind(whole);
    asm.op(Op::XIs(ETHERNET_LEN + IPV6_LEN));
    asm.op(Op::Byte(IPV6_NEXT_HEADER));
    // For the kernel's checker, which wants every cell filled that code further down reads, and thinks that code
    // behind the end of a branch comes after it.
    asm.op(Op::Store(NEXT_HEADER));
    for _ in 0..MAX_EXTENSIONS {
        look_through_extension(asm, udp, icmp);
    }
    let pass = asm.label();
    asm.when(Test::Is(UDP), udp);
    asm.when(Test::Is(ICMPV6), icmp);
    for extension in [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS] {
        asm.when(Test::Is(extension), drop);
    }
    asm.jump(pass);

    asm.bind(udp);
    need(asm, UDP_LEN, drop);
    asm.op(Op::HalfAtX(UDP_DESTINATION));
    asm.when(Test::Is(banned.udp6), drop);
    asm.jump(pass);

    asm.bind(icmp);
    need(asm, 1, drop);
    asm.op(Op::ByteAtX(0));
    if let Some(kind) = banned.icmp6 {
        asm.when(Test::Is(kind), drop);
    }
    asm.bind(pass);
    asm.give(tc::GO_ON);
    asm.bind(drop);
    asm.give(tc::DROP);
}

/// Moves on to the header behind an extension header, or ends. Its exits are its own, as a conditional jump reaches
/// 255 instructions only.
fn look_through_extension(asm: &mut Assembler, udp: Label, icmp: Label) {
    let (to_udp, to_icmp, pass, drop) = (asm.label(), asm.label(), asm.label(), asm.label());
    let (sized, next) = (asm.label(), asm.label());
    asm.when(Test::Is(UDP), to_udp);
    asm.when(Test::Is(ICMPV6), to_icmp);
    asm.when(Test::Is(HOP_BY_HOP), sized);
    asm.when(Test::Is(ROUTING), sized);
    asm.when(Test::Is(DESTINATION_OPTIONS), sized);
    asm.unless(Test::Is(FRAGMENT), pass);

    need(asm, EXTENSION_MIN_LEN, drop);
    asm.op(Op::WordAtX(0));
    asm.when(Test::AnyBit(IPV6_FRAGMENT_OFFSET), pass);
    // The length of the others is a reserved byte here. Taken for a length, it must not lead astray.
    asm.when(Test::AnyBit(IPV6_FRAGMENT_RESERVED), drop);

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
    asm.jump(next);

    asm.bind(to_udp);
    asm.jump(udp);
    asm.bind(to_icmp);
    asm.jump(icmp);
    asm.bind(pass);
    asm.give(tc::GO_ON);
    asm.bind(drop);
    asm.give(tc::DROP);

    asm.bind(next);
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
