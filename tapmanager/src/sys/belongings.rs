//! What goes with a link when it leaves its namespace: read before, put back after.
//!
//! Called by [`crate::vf`], for a VF that goes to a guest and comes back, inside the pod's namespace. Its values are plain and
//! serialize, as they lie in a note meanwhile. Equal state gives equal values.
//!
//! | kept | not kept |
//! |---|---|
//! | IP addresses that do not lapse | those of the kernel's own making: link-local, by router advertisements; those that lapse |
//! | routes over the link, of all tables, with metrics, source, and several next hops on it | the kernel's own (a subnet's), those learned, those that share their traffic with other links, encapsulation, next-hop objects, expiry |
//! | permanent neighbours | learned and proxied ones |
//! | its alias, by which the plugin `host-device` knows its name in the host | alternative names |
//!
//! Settings of the link itself (sysctls, queueing disciplines, filters, membership of a bridge or VRF, multicast groups) are
//! not kept either; nor are policy rules, which stay as they name links and do not go with them.
//!
//! Putting back adds what is missing and takes nothing away. Nothing of another link is replaced.

mod address;
mod route;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::route::RouteMessage;
use serde::{Deserialize, Serialize};

pub(crate) use self::address::HeldAddress;
pub(crate) use self::route::HeldRoute;
use super::neighbour::{self, HeldNeighbour};
use super::netlink::{Netlink, NetlinkError};
use super::{link, netdev};

/// What a link has in its namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Belongings {
    /// Its addresses in the kernel's order, which says which is the first of a subnet.
    pub(crate) addresses: Vec<HeldAddress>,
    /// Its routes, those to stations on the link first: the others are reached by them.
    pub(crate) routes: Vec<HeldRoute>,
    /// Its permanent neighbours.
    pub(crate) neighbours: Vec<HeldNeighbour>,
    /// Its alias (`ip link set alias`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alias: Option<String>,
}

/// Why something is not back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutBackError {
    /// It cannot be looked at.
    #[error("failed to list what the link has")]
    List(#[source] NetlinkError),
    /// The kernel refuses it.
    #[error("failed to put back {what}")]
    Refused {
        /// What.
        what: String,
        /// Its word.
        #[source]
        cause: NetlinkError,
    },
    /// It was put back, and is not there or otherwise.
    #[error("{what} is not as it was after it was put back; see what else changes addresses and routes there")]
    Differs {
        /// What.
        what: String,
    },
}

// === impl Belongings ===

impl Belongings {
    /// What the link of this index has in this thread's namespace.
    pub(crate) fn of(netlink: &mut Netlink, link: u32) -> Result<Self, NetlinkError> {
        let all = netlink.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let addresses = all.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(address) if address.header.index == link => address::held(&address),
            _ => None,
        });
        let addresses = addresses.collect();
        let all = netlink.dump(&RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
        let routes = all.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route) => route::held(&route, link),
            _ => None,
        });
        let mut routes: Vec<HeldRoute> = routes.collect();
        routes.sort();
        let mut neighbours = neighbour::held(netlink, link)?;
        neighbours.sort();
        Ok(Self { addresses, routes, neighbours, alias: link::alias(netlink, link)? })
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty() && self.neighbours.is_empty() && self.alias.is_none()
    }

    /// Gives the link of this index what of it is missing there. The link is up if there are routes.
    pub(crate) fn put_back(&self, netlink: &mut Netlink, link: u32) -> Result<(), PutBackError> {
        let there = Self::of(netlink, link).map_err(PutBackError::List)?;
        for address in address::in_order(self.addresses.iter().filter(|held| !there.addresses.contains(held))) {
            let refused = |cause| PutBackError::Refused { what: address.to_string(), cause };
            for message in address.messages(link) {
                let message = RouteNetlinkMessage::NewAddress(message);
                netlink.request(message, NLM_F_CREATE | NLM_F_REPLACE).map_err(refused)?;
            }
        }
        for route in self.routes.iter().filter(|held| !there.routes.contains(held)) {
            let refused = |cause| PutBackError::Refused { what: route.to_string(), cause };
            // Never to replace: it might be another link's.
            let message = RouteNetlinkMessage::NewRoute(route.message(link));
            netlink.request(message, NLM_F_CREATE | NLM_F_EXCL).map_err(refused)?;
        }
        for neighbour in self.neighbours.iter().filter(|held| !there.neighbours.contains(held)) {
            let refused = |cause| PutBackError::Refused { what: neighbour.to_string(), cause };
            neighbour::enter(netlink, link, neighbour).map_err(refused)?;
        }
        if let Some(alias) = self.alias.as_ref().filter(|alias| there.alias.as_ref() != Some(alias)) {
            let refused = |cause| PutBackError::Refused { what: format!("alias `{alias}`"), cause };
            netdev::set_alias(netlink, link, alias).map_err(refused)?;
        }
        let there = Self::of(netlink, link).map_err(PutBackError::List)?;
        self.expect_in(&there)
    }

    fn expect_in(&self, there: &Self) -> Result<(), PutBackError> {
        let differs = |what| PutBackError::Differs { what };
        let missing = |what: Option<String>| what.map_or(Ok(()), |what| Err(differs(what)));
        missing(self.addresses.iter().find(|held| !there.addresses.contains(held)).map(ToString::to_string))?;
        missing(self.routes.iter().find(|held| !there.routes.contains(held)).map(ToString::to_string))?;
        missing(self.neighbours.iter().find(|held| !there.neighbours.contains(held)).map(ToString::to_string))?;
        let alias = self.alias.as_ref().filter(|held| there.alias.as_ref() != Some(held));
        missing(alias.map(|alias| format!("alias `{alias}`")))
    }
}

#[cfg(test)]
mod tests;
