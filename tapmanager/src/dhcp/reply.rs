//! The server's messages as bytes, within what the client takes. Pure; called by [`super::Server`].
//!
//! Options are put in by importance while there is room. What does not fit into the packet that the client takes (option
//! 57, 576 bytes if it says nothing, and never more than the link's MTU) is dropped in this order: the search list from
//! its end, the echoed machine identifier, the broadcast address, routes from their end (the way to a gateway and the
//! default route come first), the domain, the host name, what the pod says, from its end, name servers from their end, the MTU, routers from their end.
//! Address, mask, times and identities always fit. The options stand in the order that the client asked for them in.
//!
//! An option longer than 255 bytes comes in pieces, each an option of the same number (RFC 3396). The RFC lets them end
//! anywhere, but systemd's networkd reads each by itself, so here each ends where a route or a domain ends.

use std::net::Ipv4Addr;

use dhcproto::v4::{Message, MessageType, Opcode, OptionCode};
use dhcproto::{Encodable, Encoder};

use super::frame::{IP_HEADER, UDP_HEADER};
use super::lease::Lease;
use super::request::{LEAST_MAX_SIZE, Request};
use crate::domain::on_the_wire;

/// RFC 2131 section 2: the fixed fields, and the magic cookie before the options.
const HEADER: usize = 240;
/// RFC 951: the shortest message that old clients take.
const LEAST_PAYLOAD: usize = 300;
/// RFC 791: the least MTU; option 26 may not say less (RFC 2132 section 5.1).
const LEAST_MTU: u16 = 68;
/// Most bytes of one piece of an option: its length is a byte.
const MAX_PIECE: usize = u8::MAX as usize;
/// Number and length before the bytes of a piece.
const PIECE_HEADER: usize = 2;
/// What clients that are older than RFC 3442 call its option, those of Microsoft.
const OLD_ROUTES: OptionCode = OptionCode::Unknown(249);
/// RFC 2131 section 3.3: all ones would be "for ever".
const MAX_LEASE: u32 = u32::MAX - 1;

/// What the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The address may be had.
    Offer,
    /// The address is had.
    Ack,
    /// The address asked for may not be had.
    Nak,
    /// To a client that has an address by other means: all but that.
    Inform,
}

/// An option whose last parts may be left out.
struct Draft {
    code: OptionCode,
    parts: Vec<Vec<u8>>,
}

/// Writes the message. `None` only if it cannot be encoded, which no value here leads to.
pub(super) fn encode(answer: Answer, lease: &Lease, request: &Request) -> Option<Vec<u8>> {
    let none = Ipv4Addr::UNSPECIFIED;
    let (ciaddr, yiaddr) = match answer {
        Answer::Offer => (none, lease.address.ip()),
        Answer::Ack => (request.ciaddr, lease.address.ip()),
        Answer::Inform => (request.ciaddr, none),
        Answer::Nak => (none, none),
    };
    let mut header = Message::new_with_id(request.xid, ciaddr, yiaddr, none, none, &request.chaddr);
    header.set_opcode(Opcode::BootReply).set_flags(request.flags);

    let mut payload = Vec::with_capacity(usize::from(LEAST_MAX_SIZE));
    let mut encoder = Encoder::new(&mut payload);
    // Has no options, so this ends behind the magic cookie.
    header.encode(&mut encoder).ok()?;
    let longest = usize::from(request.max_size.min(lease.mtu.max(LEAST_MAX_SIZE)));
    let room = longest - IP_HEADER - UDP_HEADER - HEADER - 1;
    for (code, piece) in fit(drafts(answer, lease, request), room, request) {
        payload.extend([u8::from(code), u8::try_from(piece.len()).ok()?]);
        payload.extend(piece);
    }
    payload.push(OptionCode::End.into());
    payload.resize(payload.len().max(LEAST_PAYLOAD), OptionCode::Pad.into());
    Some(payload)
}

/// All options of an answer, by importance.
fn drafts(answer: Answer, lease: &Lease, request: &Request) -> Vec<Draft> {
    use OptionCode as Code;
    let kind = match answer {
        Answer::Offer => MessageType::Offer,
        Answer::Ack | Answer::Inform => MessageType::Ack,
        Answer::Nak => MessageType::Nak,
    };
    let mut drafts = vec![one(Code::MessageType, [kind.into()]), one(Code::ServerIdentifier, lease.server_id.octets())];
    let (identifier, machine): (Vec<_>, Vec<_>) =
        request.echoed.iter().partition(|(code, _)| *code == Code::ClientIdentifier);
    drafts.extend(identifier.into_iter().map(|(code, data)| one(*code, data.as_slice())));
    if answer == Answer::Nak {
        drafts.push(one(Code::Message, *b"the address asked for is not this machine's"));
        return drafts;
    }
    if answer != Answer::Inform {
        let seconds = u32::try_from(lease.lease.as_secs()).unwrap_or(MAX_LEASE).clamp(1, MAX_LEASE);
        // RFC 2131 section 4.4.5: half, and seven eighths.
        let rebinding = seconds - seconds / 8;
        drafts.push(one(Code::AddressLeaseTime, seconds.to_be_bytes()));
        drafts.push(one(Code::Renewal, (seconds / 2).to_be_bytes()));
        drafts.push(one(Code::Rebinding, rebinding.to_be_bytes()));
    }
    drafts.push(one(Code::SubnetMask, lease.address.mask().octets()));
    let old = request.asks_for(OLD_ROUTES) && !request.asks_for(Code::ClasslessStaticRoute);
    let routes = if old { OLD_ROUTES } else { Code::ClasslessStaticRoute };
    // A client that takes option 121 has to ignore this one (RFC 3442). Of an address that is alone on its link the
    // router is not a neighbour, which not every client copes with: it is told so only if it cannot be told better.
    if lease.address.prefix() < 32 || !request.asks_for(routes) {
        drafts.push(several(Code::Router, &lease.routers, |router| router.octets().to_vec()));
    }
    if lease.mtu >= LEAST_MTU {
        drafts.push(one(Code::InterfaceMtu, lease.mtu.to_be_bytes()));
    }
    drafts.push(several(Code::DomainNameServer, &lease.dns, |server| server.octets().to_vec()));
    drafts.extend(lease.said.iter().map(|(number, data)| one(Code::from(*number), data)));
    drafts.push(one(Code::Hostname, lease.hostname.as_bytes()));
    drafts.push(one(Code::DomainName, lease.searches.first().map(String::as_bytes).unwrap_or_default()));
    drafts.push(several(routes, &lease.routes, |(dst, hop)| {
        // RFC 3442: of the destination only as many bytes as its prefix touches.
        let significant = usize::from(dst.prefix().div_ceil(8));
        let dst_bytes = dst.ip().octets().into_iter().take(significant);
        [dst.prefix()].into_iter().chain(dst_bytes).chain(hop.octets()).collect()
    }));
    if lease.address.prefix() < 31 {
        drafts.push(one(Code::BroadcastAddr, lease.address.broadcast().octets()));
    }
    drafts.extend(machine.into_iter().map(|(code, data)| one(*code, data.as_slice())));
    drafts.push(several(Code::DomainSearch, &lease.searches, |domain| on_the_wire(domain)));
    drafts
}

fn one(code: OptionCode, data: impl AsRef<[u8]>) -> Draft {
    Draft { code, parts: vec![data.as_ref().to_vec()] }
}

fn several<T>(code: OptionCode, values: &[T], bytes: impl Fn(&T) -> Vec<u8>) -> Draft {
    Draft { code, parts: values.iter().map(bytes).collect() }
}

/// Chooses what fits into `room` and puts it into the client's order, piece by piece; empty options are left out.
fn fit(drafts: Vec<Draft>, mut room: usize, request: &Request) -> Vec<(OptionCode, Vec<u8>)> {
    let mut chosen: Vec<(OptionCode, Vec<u8>)> = Vec::new();
    for Draft { code, parts } in drafts {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let goes_on = pieces.last().is_some_and(|piece| piece.len() + part.len() <= MAX_PIECE);
            let len = if goes_on { part.len() } else { PIECE_HEADER + part.len() };
            let may_begin = pieces.is_empty() || splits(code);
            if part.len() > MAX_PIECE || len > room || !(goes_on || may_begin) {
                break;
            }
            room -= len;
            match pieces.last_mut().filter(|_| goes_on) {
                Some(piece) => piece.extend(part),
                None => pieces.push(part),
            }
        }
        chosen.extend(pieces.into_iter().map(|piece| (code, piece)));
    }
    let wishes = request.parameters.as_deref().unwrap_or_default();
    chosen.sort_by_key(|(code, _)| match code {
        // Clients look for these first, whatever they ask for.
        OptionCode::MessageType | OptionCode::ServerIdentifier => 0,
        code => {
            let wish = wishes.iter().position(|wish| *wish == u8::from(*code));
            wish.map_or(usize::MAX, |at| at + 1)
        }
    });
    chosen
}

/// Only of these every client knows that they may come in pieces (RFC 3442, RFC 3397).
fn splits(code: OptionCode) -> bool {
    matches!(code, OptionCode::ClasslessStaticRoute | OLD_ROUTES | OptionCode::DomainSearch)
}
