//! What the client of one NIC has, and which of its associations gets what. Pure; called by [`super::Server`] and
//! [`super::reply`].

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnetwork::IpNetwork;
use proto::tap::{Dns, MacAddr, Nic};

use super::request::{Association, Kind, Sort};
use crate::domain::domain_name;

/// RFC 8415 section 7.7: all ones would be "for ever".
const MAX_LEASE: u32 = u32::MAX - 1;

/// Most addresses of a client: as many as a guest can be held to.
const MAX_ADDRESSES: usize = 32;

/// What the client of one MAC address is given. It never ends for the guest: whoever renews gets the same again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    /// The only client that is served.
    pub(super) mac: MacAddr,
    /// Who the server is.
    pub(super) duid: Vec<u8>,
    /// At least one.
    pub(super) addresses: Vec<Ipv6Addr>,
    pub(super) resolvers: Vec<Ipv6Addr>,
    /// Each fit for the wire.
    pub(super) searches: Vec<String>,
    /// Empty if the guest is to choose one.
    pub(super) hostname: String,
    /// For how many seconds a client may go on without asking again.
    pub(super) seconds: u32,
}

/// What is said of one association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) sort: Sort,
    pub(super) id: [u8; 4],
    /// These it has.
    pub(super) has: Vec<Ipv6Addr>,
    /// These it must stop using.
    pub(super) loses: Vec<Ipv6Addr>,
    pub(super) status: Option<Status>,
}

/// RFC 8415 section 21.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Success = 0,
    NoAddrsAvail = 2,
    NoBinding = 3,
    NotOnLink = 4,
    NoPrefixAvail = 6,
}

// === impl Lease ===

impl Lease {
    /// The lease of `nic`; `None` if it has no IPv6 address but link-local ones, which a guest makes itself.
    pub(super) fn of(nic: &Nic, dns: &Dns, hostname: &str, lease: Duration) -> Option<Self> {
        let v6 = |ip: IpAddr| if let IpAddr::V6(ip) = ip { Some(ip) } else { None };
        let mut addresses: Vec<Ipv6Addr> = Vec::new();
        for address in nic.addresses.iter().map(IpNetwork::ip).filter_map(v6) {
            if !address.is_unicast_link_local() && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        // So many have room in one message, beside all else.
        addresses.truncate(MAX_ADDRESSES);
        (!addresses.is_empty()).then(|| Self {
            mac: nic.mac,
            duid: duid(nic.mac),
            addresses,
            resolvers: dns.servers.iter().copied().filter_map(v6).collect(),
            searches: dns.searches.iter().filter_map(|domain| domain_name(domain)).collect(),
            hostname: domain_name(hostname).unwrap_or_default(),
            seconds: u32::try_from(lease.as_secs()).unwrap_or(MAX_LEASE).clamp(1, MAX_LEASE),
        })
    }

    /// Whether all that the client has is its own. `None` if it has nothing (RFC 8415 section 18.3.3).
    pub(super) fn confirm(&self, associations: &[Association]) -> Option<Status> {
        let mut named = associations.iter().flat_map(|association| &association.addresses).peekable();
        named.peek()?;
        let foreign = named.any(|address| !self.addresses.contains(address));
        Some(if foreign { Status::NotOnLink } else { Status::Success })
    }

    /// Shares the addresses out. An association keeps what it has; what nobody has is the first one's.
    pub(super) fn share_out(&self, associations: &[Association], kind: Kind) -> Vec<Verdict> {
        let mut free = self.addresses.clone();
        let mut verdicts: Vec<Verdict> = Vec::new();
        for association in associations {
            let Association { sort, id, addresses } = association;
            let mut verdict = Verdict { sort: *sort, id: *id, has: Vec::new(), loses: Vec::new(), status: None };
            let renews = matches!(kind, Kind::Renew | Kind::Rebind);
            verdict.status = match sort {
                Sort::Addresses => None,
                // What it never had from here it cannot prolong; it may ask anew.
                Sort::Temporary | Sort::Prefixes if renews => Some(Status::NoBinding),
                Sort::Temporary => Some(Status::NoAddrsAvail),
                Sort::Prefixes => Some(Status::NoPrefixAvail),
            };
            let foreign = |address: &Ipv6Addr| !self.addresses.contains(address);
            if *sort == Sort::Addresses && kind == Kind::Request && addresses.iter().any(foreign) {
                // RFC 8415 section 18.3.2. The client looks for servers anew.
                verdict.status = Some(Status::NotOnLink);
                verdicts.push(verdict);
                continue;
            }
            for address in addresses.iter().filter(|_| *sort == Sort::Addresses) {
                if let Some(at) = free.iter().position(|own| own == address) {
                    verdict.has.push(free.remove(at));
                } else if kind != Kind::Solicit && !verdict.has.contains(address) && !verdict.loses.contains(address) {
                    verdict.loses.push(*address);
                }
            }
            verdicts.push(verdict);
        }
        let open = |verdict: &&mut Verdict| verdict.status.is_none();
        if let Some(first) = verdicts.iter_mut().find(open) {
            first.has.append(&mut free);
        }
        for verdict in verdicts.iter_mut().filter(open).filter(|verdict| verdict.has.is_empty()) {
            verdict.status = Some(Status::NoAddrsAvail);
        }
        verdicts
    }

    /// Takes back nothing; of those associations that are not the client's it says so.
    pub(super) fn unknown(&self, associations: &[Association]) -> Vec<Verdict> {
        let own = |association: &&Association| {
            association.sort == Sort::Addresses
                && association.addresses.iter().all(|address| self.addresses.contains(address))
        };
        let no_binding = |Association { sort, id, .. }: &Association| Verdict {
            sort: *sort,
            id: *id,
            has: Vec::new(),
            loses: Vec::new(),
            status: Some(Status::NoBinding),
        };
        associations.iter().filter(|association| !own(association)).map(no_binding).collect()
    }
}

/// A DUID-UUID (RFC 6355) with a UUID of version 8 (RFC 9562): the name of this software and the MAC address. The guest's
/// own DUID may well be made of that address too, and is of another type.
fn duid(mac: MacAddr) -> Vec<u8> {
    [&[0, 4][..], b"virtle", &[0x80, b't'], &[0x80, b'6'], &mac.octets()].concat()
}
