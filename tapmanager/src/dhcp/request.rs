//! What a client says, as far as the server cares. Pure; called by [`super::Server`].
//!
//! Options are taken from the raw list, one by one, and not through dhcproto's typed ones: its decoder stops at the
//! first option that it does not like, so that a client's odd host name would hide which server it chose.

use std::net::Ipv4Addr;

use dhcproto::v4::borrowed::{DhcpOptionIterator, Message};
use dhcproto::v4::{Flags, HType, MessageType, Opcode, OptionCode};

/// Place of the fields `sname` and `file`, which may hold options too (RFC 2131 section 4.1).
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
/// Length of an Ethernet address in `hlen`.
const MAC_LEN: u8 = 6;
/// RFC 2131 section 2: what a client takes that says nothing, headers of IP and UDP included.
pub(super) const LEAST_MAX_SIZE: u16 = 576;

/// A message of a client on this link; relayed ones are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: MessageType,
    pub(super) xid: u32,
    pub(super) flags: Flags,
    pub(super) ciaddr: Ipv4Addr,
    pub(super) chaddr: [u8; 6],
    /// The server that was chosen (option 54).
    pub(super) server: Option<Ipv4Addr>,
    /// The address that is asked for (option 50).
    pub(super) wanted: Option<Ipv4Addr>,
    /// What is asked for, in the order of preference (option 55). `None` if the client does not say.
    pub(super) parameters: Option<Vec<u8>>,
    /// The longest packet that the client takes (option 57), with the headers of IP and UDP.
    pub(super) max_size: u16,
    /// What must be sent back as it came: the client's identifier (option 61, RFC 6842) and its machine's (97, RFC 4578).
    pub(super) echoed: Vec<(OptionCode, Vec<u8>)>,
}

impl Request {
    /// Reads a message; `None` for what is no DHCP message of an Ethernet client on this link.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let message = Message::new(payload).ok()?;
        // `chaddr()` must not be called before the length is known to be sane.
        if message.opcode() != Opcode::BootRequest || message.htype() != HType::Eth || message.hlen() != MAC_LEN {
            return None;
        }
        if !message.giaddr().is_unspecified() {
            return None;
        }
        let options = options(payload, &message);
        let find = |code: OptionCode| options.iter().find(|(found, _)| *found == code).map(|(_, data)| data.as_slice());
        let address = |code| find(code).and_then(|data| data.try_into().ok()).map(<[u8; 4]>::into);
        let echoed = [OptionCode::ClientIdentifier, OptionCode::ClientMachineIdentifier];
        let &[kind] = find(OptionCode::MessageType)? else { return None };
        Some(Self {
            kind: kind.into(),
            xid: message.xid(),
            flags: message.flags(),
            ciaddr: message.ciaddr(),
            chaddr: message.chaddr().try_into().ok()?,
            server: address(OptionCode::ServerIdentifier),
            wanted: address(OptionCode::RequestedIpAddress),
            parameters: find(OptionCode::ParameterRequestList).map(<[u8]>::to_vec),
            max_size: find(OptionCode::MaxMessageSize)
                .and_then(|data| data.try_into().ok())
                .map_or(LEAST_MAX_SIZE, |data| u16::from_be_bytes(data).max(LEAST_MAX_SIZE)),
            echoed: echoed.into_iter().filter_map(|code| Some((code, find(code)?.to_vec()))).collect(),
        })
    }

    /// Whether the client asks for this option.
    pub(super) fn asks_for(&self, code: OptionCode) -> bool {
        self.parameters.as_ref().is_some_and(|list| list.contains(&code.into()))
    }
}

fn options(payload: &[u8], message: &Message<'_>) -> Vec<(OptionCode, Vec<u8>)> {
    let mut found: Vec<_> = message.opts().map(|option| (option.code(), option.data().to_vec())).collect();
    let overload = found.iter().find(|(code, _)| *code == OptionCode::OptionOverload);
    let overload = overload.and_then(|(_, data)| data.first().copied()).unwrap_or(0);
    for (bit, place) in [(1, FILE), (2, SNAME)] {
        if let Some(field) = payload.get(place).filter(|_| overload & bit != 0) {
            found.extend(DhcpOptionIterator::new(field).map(|option| (option.code(), option.data().to_vec())));
        }
    }
    found
}
