//! The server's messages as bytes. RFC 8415 sections 18.3 and 21. Pure; called by [`super::Server`].
//!
//! A message goes into one packet that every link carries. The associations go first, and as many as there is room for;
//! then options as they are asked for, each whole or, for lists, as far as it goes.

use super::associations::{Lease, Status, Verdict};
use super::request::{
    CLIENT_ID, FQDN, IA_ADDRESS, IA_NA, IA_PD, IA_TA, Kind, PREFERENCE, RAPID_COMMIT, REFRESH, RESOLVERS, Request,
    SEARCHES, SERVER_ID, STATUS, Sort,
};
use crate::domain::on_the_wire;
use crate::ipv6::{HEADER as IP_HEADER, LEAST_MTU, UDP_HEADER};

const ADVERTISE: u8 = 2;
const REPLY: u8 = 7;
/// The preference at which a client looks no further.
const ONLY_ONE: u8 = 255;
const ROOM: usize = LEAST_MTU - IP_HEADER - UDP_HEADER;
/// Code and length.
const OPTION_HEADER: usize = 4;
/// RFC 8415 section 7.6: the least that a refresh time may say.
const LEAST_REFRESH: u32 = 600;
/// Flags of RFC 4704 section 4.1: the server makes AAAA records; not as the client wished; the server makes none at all.
const S: u8 = 1;
const O: u8 = 2;
const N: u8 = 4;

/// Writes the answer, if one is due.
pub(super) fn encode(lease: &Lease, request: &Request) -> Option<Vec<u8>> {
    let advertise = request.kind == Kind::Solicit && !request.rapid;
    let (mut status, mut verdicts) = (None, Vec::new());
    match request.kind {
        Kind::Solicit | Kind::Request | Kind::Renew | Kind::Rebind => {
            verdicts = lease.share_out(&request.associations, request.kind);
        }
        Kind::Confirm => status = Some(lease.confirm(&request.associations)?),
        Kind::Release | Kind::Decline => {
            status = Some(Status::Success);
            verdicts = lease.unknown(&request.associations);
        }
        Kind::Information => {}
    }

    let [a, b, c] = request.transaction;
    let kind = if advertise { ADVERTISE } else { REPLY };
    let mut message = Message { bytes: vec![kind, a, b, c], room: ROOM };
    if let Some(client) = &request.client {
        message.push(CLIENT_ID, client);
    }
    message.push(SERVER_ID, &lease.duid);
    if advertise {
        message.push(PREFERENCE, &[ONLY_ONE]);
    }
    if request.rapid {
        message.push(RAPID_COMMIT, &[]);
    }
    if let Some(status) = status {
        message.push(STATUS, &status_of(status));
    }
    for verdict in &verdicts {
        let (code, data) = association(verdict, lease, message.left());
        message.push(code, &data);
    }
    if matches!(request.kind, Kind::Confirm | Kind::Release | Kind::Decline) {
        return Some(message.bytes);
    }
    told(&mut message, lease, request);
    Some(message.bytes)
}

/// What has nothing to do with addresses.
fn told(message: &mut Message, lease: &Lease, request: &Request) {
    if request.asks_for(RESOLVERS) {
        message.list(RESOLVERS, lease.resolvers.iter().map(|server| server.octets().to_vec()));
    }
    // RFC 4704 section 6: only to a client that has sent the option and asks for it.
    if let Some(flags) = request.fqdn.filter(|_| request.asks_for(FQDN) && !lease.hostname.is_empty()) {
        // No records are made. The name is a partial one: without the zero at its end.
        let flags = if flags & S != 0 { N | O } else { N };
        let mut name = on_the_wire(&lease.hostname);
        name.pop();
        message.push(FQDN, &[&[flags], &name[..]].concat());
    }
    if request.asks_for(SEARCHES) {
        message.list(SEARCHES, lease.searches.iter().map(|domain| on_the_wire(domain)));
    }
    if request.kind == Kind::Information && request.asks_for(REFRESH) {
        message.push(REFRESH, &lease.seconds.max(LEAST_REFRESH).to_be_bytes());
    }
}

fn association(verdict: &Verdict, lease: &Lease, room: usize) -> (u16, Vec<u8>) {
    // RFC 8415 section 21.4: half, and four fifths.
    let (valid, renew) = (lease.seconds, lease.seconds / 2);
    let rebind = valid - valid / 5;
    let times =
        if verdict.has.is_empty() { [0; 8].to_vec() } else { [renew.to_be_bytes(), rebind.to_be_bytes()].concat() };
    let (code, times) = match verdict.sort {
        Sort::Addresses => (IA_NA, times),
        Sort::Prefixes => (IA_PD, times),
        Sort::Temporary => (IA_TA, Vec::new()),
    };
    let mut data = Message { bytes: [&verdict.id[..], &times].concat(), room };
    if let Some(status) = verdict.status {
        data.push(STATUS, &status_of(status));
    }
    let has = verdict.has.iter().map(|address| (address, valid));
    let loses = verdict.loses.iter().map(|address| (address, 0));
    for (address, lifetime) in has.chain(loses) {
        let lifetime = lifetime.to_be_bytes();
        data.push(IA_ADDRESS, &[&address.octets()[..], &lifetime, &lifetime].concat());
    }
    (code, data.bytes)
}

fn status_of(status: Status) -> Vec<u8> {
    let text: &[u8] = match status {
        Status::Success => b"",
        Status::NoAddrsAvail => b"no addresses but those of the first association",
        Status::NoBinding => b"not had from this server",
        Status::NotOnLink => b"not this machine's",
        Status::NoPrefixAvail => b"no prefixes to delegate",
    };
    [&(status as u16).to_be_bytes()[..], text].concat()
}

/// A message, or an option of options, in the making.
struct Message {
    bytes: Vec<u8>,
    /// The most that it may become.
    room: usize,
}

impl Message {
    /// Adds an option, if there is room for it.
    fn push(&mut self, code: u16, data: &[u8]) {
        let Some(len) = u16::try_from(data.len()).ok().filter(|_| data.len() <= self.left()) else { return };
        self.bytes.extend([code.to_be_bytes(), len.to_be_bytes()].concat());
        self.bytes.extend(data);
    }

    /// Adds an option of as many of these as there is room for; none, if there is nothing to say.
    fn list(&mut self, code: u16, values: impl Iterator<Item = Vec<u8>>) {
        let mut data = Vec::new();
        for value in values {
            if data.len() + value.len() > self.left() {
                break;
            }
            data.extend(value);
        }
        if !data.is_empty() {
            self.push(code, &data);
        }
    }

    /// How long the data of one more option may be.
    fn left(&self) -> usize {
        self.room.saturating_sub(self.bytes.len() + OPTION_HEADER)
    }
}
