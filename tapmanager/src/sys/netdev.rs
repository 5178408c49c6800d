//! Changes to a netdev that is hardware: it is not ours to make or remove, and moves between namespaces.
//!
//! Called by [`crate::vf`], with a socket in the namespace where the netdev is.
//!
//! Some drivers change some things of a netdev only while it is down (`EBUSY`). It is taken down for that then, which
//! takes routes away, and brought up again.

use std::os::fd::{AsFd, AsRawFd as _};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use nix::errno::Errno;
use proto::tap::IfName;

use super::link::{self, Link};
use super::netlink::{Netlink, NetlinkError};

/// Gives it an Ethernet address.
pub(crate) fn set_mac(netlink: &mut Netlink, netdev: &Link, mac: [u8; 6]) -> Result<(), NetlinkError> {
    change(netlink, netdev, LinkAttribute::Address(mac.to_vec()))
}

/// Gives it an MTU.
pub(crate) fn set_mtu(netlink: &mut Netlink, netdev: &Link, mtu: u32) -> Result<(), NetlinkError> {
    change(netlink, netdev, LinkAttribute::Mtu(mtu))
}

/// Gives it a name; `EEXIST` if another link has it.
pub(crate) fn rename(netlink: &mut Netlink, netdev: &Link, name: &IfName) -> Result<(), NetlinkError> {
    change(netlink, netdev, LinkAttribute::IfName(name.to_string()))
}

/// Gives the netdev of this index an alias.
pub(crate) fn set_alias(netlink: &mut Netlink, index: u32, alias: &str) -> Result<(), NetlinkError> {
    set(netlink, index, vec![LinkAttribute::IfAlias(alias.to_owned())])
}

/// Moves the netdev of this index into another namespace, where it is down and has this name, and no IP address. `EEXIST` if
/// a link there has the name.
pub(crate) fn move_into(
    netlink: &mut Netlink,
    index: u32,
    netns: impl AsFd,
    name: &IfName,
) -> Result<(), NetlinkError> {
    let there = LinkAttribute::NetNsFd(netns.as_fd().as_raw_fd());
    set(netlink, index, vec![there, LinkAttribute::IfName(name.to_string())])
}

fn change(netlink: &mut Netlink, netdev: &Link, attribute: LinkAttribute) -> Result<(), NetlinkError> {
    match set(netlink, netdev.index, vec![attribute.clone()]) {
        Err(error) if netdev.up && matches!(error.errno(), Some(Errno::EBUSY | Errno::ENOTUNIQ)) => {}
        done => return done,
    }
    link::set_down(netlink, netdev.index)?;
    let done = set(netlink, netdev.index, vec![attribute]);
    // Whatever came of it: it was up.
    let up = link::set_up(netlink, netdev.index);
    done.and(up)
}

fn set(netlink: &mut Netlink, index: u32, attributes: Vec<LinkAttribute>) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    netlink.request(RouteNetlinkMessage::SetLink(message), 0)
}
