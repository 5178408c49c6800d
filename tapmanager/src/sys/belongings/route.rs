//! Routes over one link, with all that whoever made them said.
//!
//! Called by [`super`]. [`crate::sys::link`] has what a guest is told of them; these here are to be made again.
//!
//! Kernel ABI: `include/uapi/linux/rtnetlink.h`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{DefaultNla, Nla as _};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop, RouteNextHopFlags,
    RoutePreference, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use serde::{Deserialize, Serialize};

use crate::sys::family::{family_of, ip_of};
use crate::sys::link::LOCAL_TABLE;

/// Name of a congestion control, the one metric that is no number (`RTAX_CC_ALGO`).
const CC_ALGO: u16 = 16;

/// A route over a link. Ordered such that each may need those before it: a gateway is reached over a subnet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldRoute {
    /// Whether there is a gateway.
    beyond: bool,
    table: u32,
    dst: Prefix,
    metric: u32,
    /// Of the sender, for routes by source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    src: Option<Prefix>,
    tos: u8,
    /// Who made it, by number.
    protocol: u8,
    scope: u8,
    /// Where its packets go, all of it over this link.
    hops: Vec<Hop>,
    /// The address that packets of the node's own are sent from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<IpAddr>,
    /// Numbers of what packets may be and connections do, as in `linux/rtnetlink.h`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metrics: BTreeMap<u16, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    congestion: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preference: Option<u8>,
}

/// An address and how many bits of it count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefix {
    ip: IpAddr,
    len: u8,
}

/// One of the ways that a route's packets may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hop {
    /// To this neighbour; `None`: to whom it is for.
    gateway: Option<IpAddr>,
    /// The neighbour is on the link although no subnet says so.
    onlink: bool,
    /// How much of the traffic, less one.
    weight: u8,
}

/// The route, if it is one over `link` alone that is kept.
pub(super) fn held(message: &RouteMessage, link: u32) -> Option<HeldRoute> {
    let header = &message.header;
    let none = match header.address_family {
        AddressFamily::Inet => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let learned = matches!(header.protocol, RouteProtocol::Kernel | RouteProtocol::IcmpRedirect | RouteProtocol::Ra);
    if learned || header.kind != RouteType::Unicast || header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let mut route = HeldRoute {
        beyond: false,
        table: header.table.into(),
        dst: Prefix { ip: none, len: header.destination_prefix_length },
        metric: 0,
        src: None,
        tos: header.tos,
        protocol: header.protocol.into(),
        scope: header.scope.into(),
        hops: Vec::new(),
        from: None,
        metrics: BTreeMap::new(),
        congestion: None,
        preference: None,
    };
    let mut single = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => route.dst.ip = ip_of(address)?,
            RouteAttribute::Source(address) => {
                route.src = Some(Prefix { ip: ip_of(address)?, len: header.source_prefix_length });
            }
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::PrefSource(address) => route.from = Some(ip_of(address)?),
            RouteAttribute::Preference(value) => route.preference = Some(u8::from(*value)).filter(|value| *value != 0),
            RouteAttribute::Metrics(metrics) => keep(&mut route, metrics),
            RouteAttribute::Oif(index) => single = Some(*index),
            RouteAttribute::MultiPath(hops) => {
                for hop in hops {
                    let onlink = hop.flags.contains(RouteNextHopFlags::Onlink);
                    let over = Some(hop.interface_index).filter(|index| *index == link)?;
                    route.hops.extend(hop_of(over, link, &hop.attributes, onlink, hop.hops));
                }
            }
            RouteAttribute::Encap(_) | RouteAttribute::Expires(_) => return None,
            _ => {}
        }
    }
    if let Some(index) = single {
        let onlink = header.flags.contains(RouteFlags::Onlink);
        route.hops = vec![hop_of(index, link, &message.attributes, onlink, 0)?];
    }
    route.hops.sort();
    route.beyond = route.hops.iter().any(|hop| hop.gateway.is_some());
    let kept = route.table != LOCAL_TABLE && !route.hops.is_empty();
    kept.then_some(route)
}

fn hop_of(index: u32, link: u32, attributes: &[RouteAttribute], onlink: bool, weight: u8) -> Option<Hop> {
    let mut gateway = None;
    for attribute in attributes {
        match attribute {
            RouteAttribute::Gateway(address) => gateway = Some(ip_of(address)?),
            RouteAttribute::Via(RouteVia::Inet(ip)) => gateway = Some((*ip).into()),
            RouteAttribute::Via(RouteVia::Inet6(ip)) => gateway = Some((*ip).into()),
            RouteAttribute::Via(_) | RouteAttribute::Encap(_) => return None,
            _ => {}
        }
    }
    (index == link).then_some(Hop { gateway, onlink, weight })
}

fn keep(route: &mut HeldRoute, metrics: &[RouteMetric]) {
    for metric in metrics {
        if let RouteMetric::CcAlgo(name) = metric {
            route.congestion = Some(name.clone());
            continue;
        }
        let mut value = vec![0; metric.value_len()];
        metric.emit_value(&mut value);
        if let Ok(bytes) = <[u8; 4]>::try_from(value) {
            route.metrics.insert(metric.kind(), u32::from_ne_bytes(bytes));
        }
    }
}

// === impl HeldRoute ===

impl HeldRoute {
    /// The request that makes it over a link.
    pub(super) fn message(&self, link: u32) -> RouteMessage {
        let mut flags = RouteFlags::empty();
        let mut attributes = vec![RouteAttribute::Table(self.table)];
        if self.dst.len > 0 {
            attributes.push(RouteAttribute::Destination(self.dst.ip.into()));
        }
        attributes.extend(self.src.map(|src| RouteAttribute::Source(src.ip.into())));
        attributes.extend(Some(self.metric).filter(|metric| *metric != 0).map(RouteAttribute::Priority));
        attributes.extend(self.from.map(|ip| RouteAttribute::PrefSource(ip.into())));
        attributes.extend(self.preference.map(|value| RouteAttribute::Preference(RoutePreference::from(value))));
        attributes.extend(self.metrics());
        if let [hop] = self.hops.as_slice() {
            if hop.onlink {
                flags = RouteFlags::Onlink;
            }
            attributes.push(RouteAttribute::Oif(link));
            attributes.extend(self.gateway(hop));
        } else {
            let hops = self.hops.iter().map(|hop| {
                let mut next = RouteNextHop::default();
                next.interface_index = link;
                next.hops = hop.weight;
                next.flags = if hop.onlink { RouteNextHopFlags::Onlink } else { RouteNextHopFlags::empty() };
                next.attributes = self.gateway(hop).into_iter().collect();
                next
            });
            attributes.push(RouteAttribute::MultiPath(hops.collect()));
        }
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family_of(self.dst.ip),
            destination_prefix_length: self.dst.len,
            source_prefix_length: self.src.map_or(0, |src| src.len),
            tos: self.tos,
            // A table of more than 8 bits is told by its attribute alone.
            table: u8::try_from(self.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            protocol: RouteProtocol::from(self.protocol),
            scope: RouteScope::from(self.scope),
            kind: RouteType::Unicast,
            flags,
        };
        message.attributes = attributes;
        message
    }

    fn gateway(&self, hop: &Hop) -> Option<RouteAttribute> {
        let gateway = hop.gateway?;
        Some(match gateway {
            IpAddr::V6(ip) if self.dst.ip.is_ipv4() => RouteAttribute::Via(RouteVia::Inet6(ip)),
            ip => RouteAttribute::Gateway(ip.into()),
        })
    }

    fn metrics(&self) -> Option<RouteAttribute> {
        let number =
            |(kind, value): (&u16, &u32)| RouteMetric::Other(DefaultNla::new(*kind, value.to_ne_bytes().to_vec()));
        let mut metrics: Vec<RouteMetric> =
            self.metrics.iter().filter(|(kind, _)| **kind != CC_ALGO).map(number).collect();
        metrics.extend(self.congestion.clone().map(RouteMetric::CcAlgo));
        (!metrics.is_empty()).then_some(RouteAttribute::Metrics(metrics))
    }
}

impl fmt::Display for HeldRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route to `{}/{}` of table {}", self.dst.ip, self.dst.len, self.table)
    }
}
