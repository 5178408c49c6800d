//! IP addresses of a link, with all that whoever gave them said.
//!
//! Called by [`super`]. [`crate::sys::link`] has those that a guest gets; these here are to be given again.
//!
//! Kernel ABI: `include/uapi/linux/if_addr.h`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use serde::{Deserialize, Serialize};

use crate::sys::family::family_of;

/// Flags that say how an address was given. The others say how it fares.
const GIVEN: AddressFlags = AddressFlags::Nodad
    .union(AddressFlags::Homeaddress)
    .union(AddressFlags::Managetempaddr)
    .union(AddressFlags::Noprefixroute)
    .union(AddressFlags::Mcautojoin);
/// A time that does not end (`INFINITY_LIFE_TIME`).
const FOR_EVER: u32 = u32::MAX;

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldAddress {
    ip: IpAddr,
    /// Length of its subnet's prefix, or of its peer's.
    prefix: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broadcast: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    scope: u8,
    /// As in `linux/if_addr.h`.
    flags: u32,
    /// Of the route to its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metric: Option<u32>,
    /// Who gave it, by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<u8>,
    /// Not for new connections.
    deprecated: bool,
}

/// The address, if it is one that is kept.
pub(super) fn held(message: &AddressMessage) -> Option<HeldAddress> {
    let header = &message.header;
    let (mut local, mut address, mut broadcast, mut label) = (None, None, None, None);
    let (mut flags, mut metric, mut protocol) = (AddressFlags::empty(), None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Broadcast(ip) => broadcast = Some(*ip),
            AddressAttribute::Label(text) => label = Some(text.clone()),
            AddressAttribute::Flags(value) => flags = *value,
            AddressAttribute::RoutePriority(value) => metric = Some(*value).filter(|metric| *metric != 0),
            // The kernel gives these again.
            AddressAttribute::Protocol(
                AddressProtocol::Loopback | AddressProtocol::RouterAnnouncement | AddressProtocol::LinkLocal,
            ) => return None,
            AddressAttribute::Protocol(value) => protocol = Some(u8::from(*value)).filter(|protocol| *protocol != 0),
            _ => {}
        }
    }
    if !flags.contains(AddressFlags::Permanent) {
        return None;
    }
    let ip = local.or(address)?;
    Some(HeldAddress {
        ip,
        prefix: header.prefix_len,
        peer: address.filter(|peer| *peer != ip),
        broadcast,
        label,
        scope: header.scope.into(),
        flags: flags.intersection(GIVEN).bits(),
        metric,
        protocol,
        deprecated: flags.contains(AddressFlags::Deprecated),
    })
}

/// The order in which they are given, so that the kernel has them in the order of its list: it puts a new IPv6 address before
/// those of the same scope.
pub(super) fn in_order<'a>(addresses: impl Iterator<Item = &'a HeldAddress>) -> impl Iterator<Item = &'a HeldAddress> {
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.partition(|address| address.ip.is_ipv4());
    v4.into_iter().chain(v6.into_iter().rev())
}

// === impl HeldAddress ===

impl HeldAddress {
    /// The requests that give it to a link, one after the other.
    ///
    /// An IPv6 address is not asked about on the link (DAD): it was this pod's all the time, and a route may need it at
    /// once. Whoever gave it may have left that open, so the flag is taken off again.
    pub(super) fn messages(&self, link: u32) -> Vec<AddressMessage> {
        let flags = AddressFlags::from_bits_retain(self.flags);
        let last = self.message(link, flags);
        if self.ip.is_ipv4() || flags.contains(AddressFlags::Nodad) {
            return vec![last];
        }
        vec![self.message(link, flags | AddressFlags::Nodad), last]
    }

    fn message(&self, link: u32, flags: AddressFlags) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = family_of(self.ip);
        message.header.prefix_len = self.prefix;
        message.header.scope = AddressScope::from(self.scope);
        message.header.index = link;
        let mut attributes = vec![
            AddressAttribute::Local(self.ip),
            AddressAttribute::Address(self.peer.unwrap_or(self.ip)),
            AddressAttribute::Flags(flags),
        ];
        attributes.extend(self.broadcast.map(AddressAttribute::Broadcast));
        attributes.extend(self.label.clone().map(AddressAttribute::Label));
        attributes.extend(self.metric.map(AddressAttribute::RoutePriority));
        attributes.extend(self.protocol.map(|number| AddressAttribute::Protocol(AddressProtocol::from(number))));
        if self.deprecated {
            let mut lives = CacheInfo::default();
            (lives.ifa_preferred, lives.ifa_valid) = (0, FOR_EVER);
            attributes.push(AddressAttribute::CacheInfo(lives));
        }
        message.attributes = attributes;
        message
    }
}

impl fmt::Display for HeldAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address `{}/{}`", self.ip, self.prefix)
    }
}
