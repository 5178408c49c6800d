//! Permanent neighbour entries of a namespace.
//!
//! Listed by [`crate::net`]; kept for a link that goes and comes back by [`super::belongings`]. Plugins of clouds (AWS VPC's, Azure's) enter the gateway so, because no station on the
//! link answers for its address; a process in the namespace sends no request.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use proto::tap::MacAddr;
use serde::{Deserialize, Serialize};

use super::family::family_of;
use super::netlink::{Netlink, NetlinkError};

/// A permanent entry of the neighbour table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// Index of the link that it is on.
    pub(crate) link: u32,
    /// Its address.
    pub(crate) ip: IpAddr,
    /// Where it is.
    pub(crate) mac: MacAddr,
}

/// The permanent neighbours of this thread's namespace that are stations, in the kernel's order.
pub(crate) fn permanent(netlink: &mut Netlink) -> Result<Vec<Neighbour>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
    let permanent = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewNeighbour(entry) if entry.header.state == NeighbourState::Permanent => {
            neighbour_of(&entry)
        }
        _ => None,
    });
    Ok(permanent.collect())
}

/// What is kept of a permanent entry of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldNeighbour {
    ip: IpAddr,
    mac: MacAddr,
}

/// The permanent neighbours of one link, in the kernel's order, which means nothing.
pub(super) fn held(netlink: &mut Netlink, link: u32) -> Result<Vec<HeldNeighbour>, NetlinkError> {
    let of_link = permanent(netlink)?.into_iter().filter(|neighbour| neighbour.link == link);
    Ok(of_link.map(|Neighbour { ip, mac, .. }| HeldNeighbour { ip, mac }).collect())
}

/// Enters a neighbour for good, whatever was known of its address.
pub(super) fn enter(netlink: &mut Netlink, link: u32, neighbour: &HeldNeighbour) -> Result<(), NetlinkError> {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(neighbour.ip);
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(neighbour.ip.into()),
        NeighbourAttribute::LinkLayerAddress(neighbour.mac.octets().to_vec()),
    ];
    netlink.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

impl fmt::Display for HeldNeighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neighbour `{}`", self.ip)
    }
}

fn neighbour_of(entry: &NeighbourMessage) -> Option<Neighbour> {
    let (mut ip, mut mac) = (None, None);
    for attribute in &entry.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => ip = Some((*address).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => ip = Some((*address).into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().and_then(|bytes| MacAddr::new(bytes).ok());
            }
            _ => {}
        }
    }
    Some(Neighbour { link: entry.header.ifindex, ip: ip?, mac: mac? })
}
