//! Router advertisements as bytes. RFC 4861 section 4.2, RFC 4191, RFC 8106. Pure; called by [`super::Server`].
//!
//! What does not go into one packet that every link carries goes into several (RFC 4861 section 6.2.3). What is said of
//! the link, and not of a router, is in the first router's.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::Ipv6Network;
use proto::tap::{Dns, Nic};

use super::neighbour::ROUTER_ADVERTISEMENT;
use super::routers::{self, Router};
use crate::domain::{domain_name, on_the_wire};
use crate::ipv6::{HEADER as IP_HEADER, LEAST_MTU};

/// Flags: managed addresses, other configuration.
const MANAGED: u8 = 0x80;
const OTHER: u8 = 0x40;
/// Seconds that a router is one without being heard of: the most that can be said (RFC 8319 section 4).
const ROUTER_LIFETIME: u16 = u16::MAX;
const FOR_EVER: [u8; 4] = [0xff; 4];

const HEADER: usize = 16;
/// Bytes of options in one message.
const ROOM: usize = LEAST_MTU - IP_HEADER - HEADER;
/// Bytes of an option that is one of several in a message; they are in units of 8.
const LONG_OPTION: usize = 512;
/// Most messages of all routers together. Beyond that are hundreds of routes, which a guest takes from nobody.
const MAX_MESSAGES: usize = 32;

const PREFIX: u8 = 3;
const MTU: u8 = 5;
const ROUTE: u8 = 24;
const RESOLVERS: u8 = 25;
const SEARCHES: u8 = 31;
/// Flag of a prefix: on the link.
const ON_LINK: u8 = 0x80;

/// All messages with their sources; checksums are zero as yet.
pub(super) fn messages(nic: &Nic, dns: &Dns, routers: &[Router]) -> Vec<(Ipv6Addr, Vec<u8>)> {
    let mut messages = Vec::new();
    for (place, router) in routers.iter().enumerate() {
        let mut options = Vec::new();
        if nic.mtu as usize >= LEAST_MTU {
            options.push([&[MTU, 1, 0, 0][..], &nic.mtu.to_be_bytes()].concat());
        }
        if place == 0 {
            options.extend(routers::on_link(nic).into_iter().map(prefix));
            options.extend(resolvers(dns));
            options.extend(searches(dns));
        }
        options.extend(router.routes.iter().copied().map(route));
        messages.extend(split(router, options).into_iter().map(|message| (router.address, message)));
    }
    if messages.len() > MAX_MESSAGES {
        tracing::warn!(mac = %nic.mac, "more routes than router advertisements are worth: the last are left out");
        messages.truncate(MAX_MESSAGES);
    }
    messages
}

fn split(router: &Router, options: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let lifetime = if router.default { ROUTER_LIFETIME } else { 0 };
    // Hop limit, reachable time and retransmission timer are the guest's own business.
    let flags = [0, MANAGED | OTHER];
    let header = [&[ROUTER_ADVERTISEMENT, 0, 0, 0], &flags[..], &lifetime.to_be_bytes(), &[0; 8]].concat();
    let mut messages = Vec::new();
    let mut message = header.clone();
    for option in options {
        if message.len() + option.len() > HEADER + ROOM {
            messages.push(std::mem::replace(&mut message, header.clone()));
        }
        message.extend(option);
    }
    messages.push(message);
    messages
}

fn prefix(net: Ipv6Network) -> Vec<u8> {
    [&[PREFIX, 4, net.prefix(), ON_LINK], &FOR_EVER[..], &FOR_EVER, &[0; 4], &net.ip().octets()].concat()
}

fn route(dst: Ipv6Network) -> Vec<u8> {
    // RFC 4191 section 2.3: of the destination only as many units as its prefix touches. Preference is medium.
    let units = dst.prefix().div_ceil(64);
    let octets = dst.ip().octets();
    let significant = octets.into_iter().take(usize::from(units) * 8);
    [ROUTE, 1 + units, dst.prefix(), 0].into_iter().chain(FOR_EVER).chain(significant).collect()
}

fn resolvers(dns: &Dns) -> Vec<Vec<u8>> {
    let v6 = |server: &IpAddr| match server {
        IpAddr::V6(server) => Some(server.octets().to_vec()),
        IpAddr::V4(_) => None,
    };
    lists(RESOLVERS, dns.servers.iter().filter_map(v6))
}

fn searches(dns: &Dns) -> Vec<Vec<u8>> {
    lists(SEARCHES, dns.searches.iter().filter_map(|domain| domain_name(domain)).map(|domain| on_the_wire(&domain)))
}

/// Options of the shape that RFC 8106 gives its two: lifetime, then values, then zeros up to a whole unit.
fn lists(kind: u8, values: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let head = || [&[kind, 0, 0, 0], &FOR_EVER[..]].concat();
    let mut options: Vec<Vec<u8>> = Vec::new();
    for value in values {
        match options.last_mut() {
            Some(option) if option.len() + value.len() <= LONG_OPTION => option.extend(value),
            _ => options.push([head(), value].concat()),
        }
    }
    for option in &mut options {
        option.resize(option.len().next_multiple_of(8), 0);
        // At most LONG_OPTION and a unit, so it fits.
        let units = u8::try_from(option.len() / 8).unwrap_or(u8::MAX);
        if let Some(len) = option.get_mut(1) {
            *len = units;
        }
    }
    options
}
