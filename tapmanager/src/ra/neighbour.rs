//! Messages of neighbour discovery, read and written. RFC 4861 sections 4, 6.1 and 7.1. Pure; called by
//! [`super::Server`].

use std::net::Ipv6Addr;

use proto::tap::MacAddr;

use crate::ipv6::{ICMPV6, ON_LINK, Packet};

pub(super) const ROUTER_SOLICITATION: u8 = 133;
pub(super) const ROUTER_ADVERTISEMENT: u8 = 134;
pub(super) const NEIGHBOUR_SOLICITATION: u8 = 135;
pub(super) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
/// Flags of an advertisement: of a router, solicited, override.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Lengths of options are in units of this.
const UNIT: usize = 8;

/// What is understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// "Which routers are there?"
    RouterSolicitation,
    /// "Who has `target`?"; from nobody it is "may I have it?".
    NeighbourSolicitation { target: Ipv6Addr },
    /// "It is there."
    NeighbourAdvertisement(Advertisement),
}

/// Where a neighbour is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advertisement {
    pub(super) target: Ipv6Addr,
    pub(super) mac: Option<MacAddr>,
    pub(super) router: bool,
    pub(super) solicited: bool,
    pub(super) overrides: bool,
}

/// Reads a message; `None` for one of another sort, and for what has to be silently discarded.
pub(super) fn parse(packet: &Packet<'_>) -> Option<Message> {
    if packet.next_header != ICMPV6 || packet.hop_limit != ON_LINK {
        return None;
    }
    // Type, code, checksum; then flags or nothing.
    let ([kind, 0, _, _, flags, _, _, _], rest) = packet.payload.split_first_chunk::<8>()? else { return None };
    let from_nobody = packet.from.is_unspecified();
    if *kind == ROUTER_SOLICITATION {
        let source = options(rest)?.source;
        return (!(from_nobody && source)).then_some(Message::RouterSolicitation);
    }
    let (target, rest) = rest.split_first_chunk::<16>()?;
    let target = Ipv6Addr::from(*target);
    let options = options(rest)?;
    match *kind {
        _ if target.is_multicast() => None,
        NEIGHBOUR_SOLICITATION => {
            let fine = !from_nobody || (packet.to.is_multicast() && !options.source);
            fine.then_some(Message::NeighbourSolicitation { target })
        }
        NEIGHBOUR_ADVERTISEMENT => {
            let (router, solicited) = (flags & ROUTER != 0, flags & SOLICITED != 0);
            let overrides = flags & OVERRIDE != 0;
            let said = Advertisement { target, mac: options.target, router, solicited, overrides };
            (!(packet.to.is_multicast() && solicited)).then_some(Message::NeighbourAdvertisement(said))
        }
        _ => None,
    }
}

/// "Who has `target`?", said by the station with this MAC address.
pub(super) fn solicitation(target: Ipv6Addr, mac: MacAddr) -> Vec<u8> {
    let head = [NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    [&head[..], &target.octets(), &[SOURCE_LINK_LAYER, 1], &mac.octets()].concat()
}

/// "It is there."
pub(super) fn advertisement(said: &Advertisement) -> Vec<u8> {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(said.router, ROUTER) | flag(said.solicited, SOLICITED) | flag(said.overrides, OVERRIDE);
    let mut message = [&[NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0], &said.target.octets()[..]].concat();
    if let Some(mac) = said.mac {
        message.extend([TARGET_LINK_LAYER, 1]);
        message.extend(mac.octets());
    }
    message
}

#[derive(Default)]
struct Options {
    source: bool,
    target: Option<MacAddr>,
}

/// `None` if an option is of no length, or longer than what is left.
fn options(mut bytes: &[u8]) -> Option<Options> {
    let mut found = Options::default();
    while let [kind, units, ..] = *bytes {
        let (option, rest) = bytes.split_at_checked(usize::from(units) * UNIT).filter(|_| units != 0)?;
        match kind {
            SOURCE_LINK_LAYER => found.source = true,
            TARGET_LINK_LAYER => {
                let mac = option.get(2..).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
                found.target = mac.and_then(|mac| MacAddr::new(mac).ok());
            }
            _ => {}
        }
        bytes = rest;
    }
    bytes.is_empty().then_some(found)
}
