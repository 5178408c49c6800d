//! Permanent neighbour entries of a namespace.
//!
//! Listed by [`crate::net`]. Plugins of clouds (AWS VPC's, Azure's) enter the gateway so, because no station on the
//! link answers for its address; a process in the namespace sends no request.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use proto::tap::MacAddr;

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
