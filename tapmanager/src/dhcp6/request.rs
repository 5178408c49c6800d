//! What a client says, as far as the server cares. RFC 8415 sections 16 and 21. Pure; called by [`super::Server`].
//!
//! Options are read here one by one and not by a decoder of all of them: one that stops at the first option that it does
//! not like would let a client's odd vendor data hide its request. An option that does not hold together in itself is as
//! if it were not there; a message that does not is none.

use std::net::Ipv6Addr;

/// Codes of options (RFC 8415 section 21, RFC 3646, RFC 4704).
pub(super) const CLIENT_ID: u16 = 1;
pub(super) const SERVER_ID: u16 = 2;
pub(super) const IA_NA: u16 = 3;
pub(super) const IA_TA: u16 = 4;
pub(super) const IA_ADDRESS: u16 = 5;
pub(super) const OPTION_REQUEST: u16 = 6;
pub(super) const PREFERENCE: u16 = 7;
pub(super) const STATUS: u16 = 13;
pub(super) const RAPID_COMMIT: u16 = 14;
pub(super) const RESOLVERS: u16 = 23;
pub(super) const SEARCHES: u16 = 24;
pub(super) const IA_PD: u16 = 25;
pub(super) const REFRESH: u16 = 32;
pub(super) const FQDN: u16 = 39;

/// RFC 8415 section 11.1: a type and at most 128 bytes.
const DUID: std::ops::RangeInclusive<usize> = 3..=130;
/// Most associations of one message; a client has one, or one per address.
const MAX_ASSOCIATIONS: usize = 16;

/// The messages that a server has answers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Solicit,
    Request,
    Confirm,
    Renew,
    Rebind,
    Release,
    Decline,
    Information,
}

/// What an association is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Addresses,
    Temporary,
    Prefixes,
}

/// An association that the client has or wishes for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Association {
    pub(super) sort: Sort,
    /// Its IAID.
    pub(super) id: [u8; 4],
    /// What it has or wishes for; of prefixes none are read.
    pub(super) addresses: Vec<Ipv6Addr>,
}

/// A message of a client on this link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) transaction: [u8; 3],
    /// Only an Information-request may have none.
    pub(super) client: Option<Vec<u8>>,
    pub(super) associations: Vec<Association>,
    pub(super) rapid: bool,
    /// What is asked for. `None` if the client does not say.
    pub(super) wishes: Option<Vec<u16>>,
    /// Flags of the client's FQDN option, if it has one.
    pub(super) fqdn: Option<u8>,
}

impl Request {
    /// Reads a message; `None` for what is none that a server with this DUID answers.
    pub(super) fn parse(payload: &[u8], server: &[u8]) -> Option<Self> {
        let (&[kind, a, b, c], rest) = payload.split_first_chunk::<4>()?;
        let kind = Kind::of(kind)?;
        let options = options(rest)?;
        let find = |code: u16| options.iter().find(|(found, _)| *found == code).map(|(_, data)| *data);
        let client = find(CLIENT_ID).filter(|duid| DUID.contains(&duid.len())).map(<[u8]>::to_vec);
        if client.is_none() && kind != Kind::Information {
            return None;
        }
        // RFC 8415 section 16: who must name a server, who must not, and who may.
        match (kind, find(SERVER_ID)) {
            (Kind::Solicit | Kind::Confirm | Kind::Rebind, Some(_)) => return None,
            (Kind::Request | Kind::Renew | Kind::Release | Kind::Decline, None) => return None,
            (_, Some(chosen)) if chosen != server => return None,
            _ => {}
        }
        let associations: Vec<Association> =
            options.iter().filter_map(|(code, data)| association(*code, data)).take(MAX_ASSOCIATIONS).collect();
        if kind == Kind::Information && !associations.is_empty() {
            return None;
        }
        let codes = |data: &[u8]| data.as_chunks::<2>().0.iter().map(|code| u16::from_be_bytes(*code)).collect();
        Some(Self {
            kind,
            transaction: [a, b, c],
            client,
            associations,
            rapid: kind == Kind::Solicit && find(RAPID_COMMIT).is_some(),
            wishes: find(OPTION_REQUEST).map(codes),
            fqdn: find(FQDN).and_then(|data| data.first().copied()),
        })
    }

    /// Whether the client asks for this option; one that names none takes all.
    pub(super) fn asks_for(&self, code: u16) -> bool {
        self.wishes.as_ref().is_none_or(|wishes| wishes.contains(&code))
    }
}

impl Kind {
    /// RFC 8415 section 7.3.
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Solicit,
            3 => Self::Request,
            4 => Self::Confirm,
            5 => Self::Renew,
            6 => Self::Rebind,
            8 => Self::Release,
            9 => Self::Decline,
            11 => Self::Information,
            _ => return None,
        })
    }
}

fn association(code: u16, data: &[u8]) -> Option<Association> {
    let (sort, header) = match code {
        IA_NA => (Sort::Addresses, 12),
        IA_TA => (Sort::Temporary, 4),
        IA_PD => (Sort::Prefixes, 12),
        _ => return None,
    };
    let (id, _) = data.split_first_chunk::<4>()?;
    let inner = options(data.get(header..)?)?;
    let address = |(code, data): &(u16, &[u8])| {
        let octets = data.first_chunk::<16>().filter(|_| *code == IA_ADDRESS)?;
        Some(Ipv6Addr::from(*octets))
    };
    let addresses = inner.iter().filter_map(address).collect();
    Some(Association { sort, id: *id, addresses })
}

/// `None` if an option is longer than what is left.
fn options(mut bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut found = Vec::new();
    while let Some((&[code_high, code_low, len_high, len_low], rest)) = bytes.split_first_chunk::<4>() {
        let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([len_high, len_low])))?;
        found.push((u16::from_be_bytes([code_high, code_low]), data));
        bytes = rest;
    }
    bytes.is_empty().then_some(found)
}
