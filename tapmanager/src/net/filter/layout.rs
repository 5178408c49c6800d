//! Where things stand in frames: offsets, lengths and numbers that the programs of [`super`] compare with.
//!
//! Ethernet: IEEE 802.3; ARP: RFC 826; IPv4: RFC 791; IPv6: RFC 8200; Neighbor Discovery: RFC 4861. Offsets that begin
//! with the name of a header count from its start.

pub(super) const ETHERNET_LEN: u32 = 14;
pub(super) const ETHERNET_DESTINATION: u32 = 0;
pub(super) const ETHERNET_SOURCE: u32 = 6;
pub(super) const ETHERTYPE: u32 = 12;
/// In the first byte of a destination: a broadcast or multicast address.
pub(super) const GROUP_BIT: u32 = 1;

pub(super) const IPV4: u32 = 0x0800;
pub(super) const ARP: u32 = 0x0806;
pub(super) const VLAN: u32 = 0x8100;
pub(super) const IPV6: u32 = 0x86dd;
pub(super) const SERVICE_VLAN: u32 = 0x88a8;

pub(super) const ARP_LEN: u32 = 28;
/// Hardware type and protocol type: IPv4 over Ethernet.
pub(super) const ARP_TYPES: u32 = 0x0001_0800;
/// Lengths of both sorts of addresses.
pub(super) const ARP_LENGTHS: u32 = 0x0604;
pub(super) const ARP_OPERATION: u32 = 6;
pub(super) const ARP_SENDER_MAC: u32 = 8;
pub(super) const ARP_SENDER_IP: u32 = 14;
pub(super) const ARP_TARGET_IP: u32 = 24;
pub(super) const ARP_REQUEST: u32 = 1;
pub(super) const ARP_REPLY: u32 = 2;

pub(super) const VERSION_MASK: u32 = 0xf0;
pub(super) const IPV4_VERSION: u32 = 0x40;
pub(super) const IPV4_MIN_LEN: u32 = 20;
/// The least of the first byte's low half, the length of the header in words of four bytes.
pub(super) const IPV4_MIN_WORDS: u32 = 5;
pub(super) const IPV4_FRAGMENT: u32 = ETHERNET_LEN + 6;
pub(super) const IPV4_FRAGMENT_OFFSET: u32 = 0x1fff;
pub(super) const IPV4_MORE_FRAGMENTS: u32 = 0x2000;
pub(super) const IPV4_PROTOCOL: u32 = ETHERNET_LEN + 9;
pub(super) const IPV4_SOURCE: u32 = ETHERNET_LEN + 12;

pub(super) const IPV6_VERSION: u32 = 0x60;
pub(super) const IPV6_LEN: u32 = 40;
pub(super) const IPV6_NEXT_HEADER: u32 = ETHERNET_LEN + 6;
pub(super) const IPV6_SOURCE: u32 = ETHERNET_LEN + 8;
pub(super) const EXTENSION_MIN_LEN: u32 = 8;
// In the first word of a fragment header: next header, reserved, offset and flags.
pub(super) const IPV6_FRAGMENT_OFFSET: u32 = 0xfff8;
pub(super) const IPV6_FRAGMENT_RESERVED: u32 = 0x00ff_0000;

pub(super) const HOP_BY_HOP: u32 = 0;
pub(super) const UDP: u32 = 17;
pub(super) const ROUTING: u32 = 43;
pub(super) const FRAGMENT: u32 = 44;
pub(super) const ICMPV6: u32 = 58;
pub(super) const DESTINATION_OPTIONS: u32 = 60;

pub(super) const UDP_LEN: u32 = 8;
pub(super) const UDP_DESTINATION: u32 = 2;
pub(super) const DHCPV4_SERVER: u32 = 67;
pub(super) const DHCPV4_CLIENT: u32 = 68;
pub(super) const DHCPV6_CLIENT: u32 = 546;
pub(super) const DHCPV6_SERVER: u32 = 547;

// Types of ICMPv6: RFC 4861, RFC 2710 and RFC 3810.
pub(super) const LISTENER_REPORT: u32 = 131;
pub(super) const LISTENER_DONE: u32 = 132;
pub(super) const ROUTER_SOLICITATION: u32 = 133;
pub(super) const ROUTER_ADVERTISEMENT: u32 = 134;
pub(super) const NEIGHBOUR_SOLICITATION: u32 = 135;
pub(super) const NEIGHBOUR_ADVERTISEMENT: u32 = 136;
pub(super) const REDIRECT: u32 = 137;
pub(super) const LISTENER_REPORT_V2: u32 = 143;

/// Length of a neighbour solicitation or advertisement without options.
pub(super) const NEIGHBOUR_LEN: u32 = 24;
pub(super) const NEIGHBOUR_TARGET: u32 = 8;
/// Options are multiples of this long, and say in their second byte how many.
pub(super) const OPTION_UNIT: u32 = 8;
/// Type and length of an option with the sender's link-layer address.
pub(super) const SOURCE_MAC_OPTION: u32 = 0x0101;
/// Type and length of an option with the target's link-layer address.
pub(super) const TARGET_MAC_OPTION: u32 = 0x0201;
