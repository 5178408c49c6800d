//! The numbers by which a namespace knows others: which links of it lead to another one, and to which.
//!
//! Called by [`crate::net::way`]. A link's peer or lower link may be in another namespace; the index that the link tells of it counts
//! there, and the number says where that is (rtnetlink(7), `IFLA_LINK_NETNSID`).

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::Parseable as _;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use super::netlink::{Netlink, NetlinkError};

/// What the kernel says of a namespace that it has no number for.
const NONE: i32 = -1;

/// The number by which this thread's namespace knows `other`; `None` if no link of it leads there.
pub(crate) fn of(netlink: &mut Netlink, other: BorrowedFd<'_>) -> Result<Option<i32>, NetlinkError> {
    let mut message = NsidMessage::default();
    message.attributes.push(NsidAttribute::Fd(other.as_raw_fd().cast_unsigned()));
    let answer = netlink.ask(RouteNetlinkMessage::GetNsId(message))?;
    let answer = NsidMessage::parse(answer.as_slice()).map_err(NetlinkError::Malformed)?;
    Ok(answer.attributes.into_iter().find_map(|attribute| match attribute {
        NsidAttribute::Id(id) if id != NONE => Some(id),
        _ => None,
    }))
}

/// Links of this thread's namespace whose peer or lower link is in another one, by their index, with the number of that.
pub(crate) fn elsewhere(netlink: &mut Netlink) -> Result<BTreeMap<u32, i32>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let of = all.into_iter().filter_map(|message| {
        let RouteNetlinkMessage::NewLink(link) = message else { return None };
        let index = link.header.index;
        link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::LinkNetNsId(id) => Some((index, id)),
            _ => None,
        })
    });
    Ok(of.collect())
}
