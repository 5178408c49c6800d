//! Links, addresses and routes of a namespace as the kernel has them, and the few changes we make to links.
//!
//! Called by [`crate::net`] and by [`super::netns`] (loopback). The lists are plain values of our own types, so that
//! what decides on them is pure. `/sys/class/net` is not used: it shows the namespace of whoever mounted it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType,
    LinkMessage, Prop, Stats64,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteNextHop, RouteProtocol, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use proto::tap::{IfName, MacAddr};

use super::family::ip_of;
use super::netlink::{Netlink, NetlinkError};

/// Index of the loopback link in every namespace (`LOOPBACK_IFINDEX`).
pub(crate) const LOOPBACK: u32 = 1;

/// The routing table that is looked through when no rule leads elsewhere (`RT_TABLE_MAIN`).
pub(crate) const MAIN_TABLE: u32 = 254;
/// The kernel's own table of local addresses (`RT_TABLE_LOCAL`).
pub(super) const LOCAL_TABLE: u32 = 255;

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Its index in the namespace.
    pub(crate) index: u32,
    /// Its name.
    pub(crate) name: IfName,
    /// What made it, such as `veth`; `None` for hardware and loopback.
    pub(crate) kind: Option<String>,
    /// Whether it carries Ethernet frames.
    pub(crate) ethernet: bool,
    /// Whether it is a loopback link.
    pub(crate) loopback: bool,
    /// Whether it is administratively up.
    pub(crate) up: bool,
    /// Whether it has a carrier; a tap has one while a program holds it.
    pub(crate) carrier: bool,
    /// Index of the bridge, VRF or other link that it is a member of.
    pub(crate) controller: Option<u32>,
    /// Index of the link that it lies on; of no meaning if that is in another namespace.
    pub(crate) lower: Option<u32>,
    /// The routing table that it stands for, if it is a VRF.
    pub(crate) vrf_table: Option<u32>,
    /// Its address, if it is one that a station may have.
    pub(crate) mac: Option<MacAddr>,
    /// Its MTU.
    pub(crate) mtu: u32,
    /// Address of the PCI device that it is a port of.
    pub(crate) pci: Option<String>,
}

/// A link's name and what it counted.
pub(crate) type Counted = (IfName, Stats64);

/// An IP address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// Index of the link.
    pub(crate) link: u32,
    /// The address, and the subnet that the kernel thinks is on the link; the address alone if it has a peer.
    pub(crate) net: IpNetwork,
    /// Valid beyond the link, and not going to lapse by itself.
    pub(crate) lasting: bool,
}

/// A route to stations, or to nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelRoute {
    /// Index of the link.
    pub(crate) link: u32,
    /// The routing table that it stands in: [`MAIN_TABLE`], or one that a VRF or a policy rule leads to.
    pub(crate) table: u32,
    /// Destination.
    pub(crate) dst: IpNetwork,
    /// Next hop.
    pub(crate) next_hop: NextHop,
    /// Metric: of two routes to one destination the kernel takes the lower.
    pub(crate) metric: u32,
    /// The most that may be sent this way in one packet, if the route says so.
    pub(crate) mtu: Option<u32>,
    /// The most of TCP's data that the other side may send in one packet, if the route says so.
    pub(crate) advmss: Option<u32>,
    /// How many next hops share the traffic, this one included.
    pub(crate) hops: usize,
}

/// Where a route sends packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// The destination is on the link.
    OnLink,
    /// To this neighbour.
    Gateway(IpAddr),
    /// To a neighbour of another address family, or encapsulated: DHCP cannot express it.
    Unsupported,
    /// Nowhere (blackhole), or back with an error (unreachable, prohibit, throw). Such a route has no link.
    Unreachable,
}

/// The links of this thread's namespace, in the kernel's order. One whose name is none is left out.
pub(crate) fn links(netlink: &mut Netlink) -> Result<Vec<Link>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let links = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => link_of(link),
        _ => None,
    });
    Ok(links.collect())
}

/// All names of links in this thread's namespace, which no other link there can have: alternative ones, too.
pub(crate) fn names(netlink: &mut Netlink) -> Result<BTreeSet<String>, NetlinkError> {
    let mut names = BTreeSet::new();
    for message in netlink.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
        let RouteNetlinkMessage::NewLink(found) = message else { continue };
        for attribute in found.attributes {
            match attribute {
                LinkAttribute::IfName(name) => drop(names.insert(name)),
                LinkAttribute::PropList(others) => names.extend(others.into_iter().filter_map(|other| match other {
                    Prop::AltIfName(name) => Some(name),
                    _ => None,
                })),
                _ => {}
            }
        }
    }
    Ok(names)
}

/// The alias of the link of this index, if it has one.
pub(crate) fn alias(netlink: &mut Netlink, link: u32) -> Result<Option<String>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    Ok(all.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(found) if found.header.index == link => {
            found.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfAlias(alias) => Some(alias),
                _ => None,
            })
        }
        _ => None,
    }))
}

/// The addresses of this thread's namespace, in the kernel's order.
pub(crate) fn addresses(netlink: &mut Netlink) -> Result<Vec<Address>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let addresses = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(address) => address_of(&address),
        _ => None,
    });
    Ok(addresses.collect())
}

/// The routes of this thread's namespace that a sender's choice depends on, of all tables, in the kernel's order.
pub(crate) fn routes(netlink: &mut Netlink) -> Result<Vec<KernelRoute>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
    let routes = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) => Some(routes_of(&route)),
        _ => None,
    });
    Ok(routes.flatten().collect())
}

/// Brings a link up.
pub(crate) fn set_up(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    set_state(netlink, link, true)
}

/// Brings a link down.
pub(crate) fn set_down(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    set_state(netlink, link, false)
}

/// Gives a tap its MTU, and keeps the namespace's own IPv6 from speaking on it: what comes out of it is the guest's.
pub(crate) fn shape_tap(netlink: &mut Netlink, tap: u32, mtu: u32) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = tap;
    message.attributes = vec![LinkAttribute::Mtu(mtu)];
    let mut silenced = message.clone();
    silenced.attributes.push(silent());
    match netlink.request(RouteNetlinkMessage::NewLink(silenced), 0) {
        Err(error) if has_no_ipv6(&error) => netlink.request(RouteNetlinkMessage::NewLink(message), 0),
        done => done,
    }
}

/// Makes a link that `message` describes, without an IPv6 address of its own, which the kernel refuses to be told in the
/// same breath. It is gone again if that fails; `EEXIST` if a link of that name is there.
pub(super) fn create_silent(
    netlink: &mut Netlink,
    name: &IfName,
    mut message: LinkMessage,
) -> Result<(), NetlinkError> {
    let named = LinkAttribute::IfName(name.to_string());
    message.attributes.push(named.clone());
    netlink.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)?;
    let mut quiet = LinkMessage::default();
    quiet.attributes = vec![named.clone(), silent()];
    let silenced = match netlink.request(RouteNetlinkMessage::NewLink(quiet), 0) {
        Err(error) if has_no_ipv6(&error) => Ok(()),
        done => done,
    };
    if silenced.is_err() {
        let mut made = LinkMessage::default();
        made.attributes = vec![named];
        // What counts is why it was not silenced.
        let _ = netlink.request(RouteNetlinkMessage::DelLink(made), 0);
    }
    silenced
}

/// The attribute that gives a link no IPv6 address of its own, not even a link-local one.
fn silent() -> LinkAttribute {
    let no_address = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    LinkAttribute::AfSpecUnspec(vec![no_address])
}

/// Whether [`silent`] was refused because there is nothing to silence: the kernel runs no IPv6 on a link with an MTU below
/// 1280, and none at all if it was started with `ipv6.disable=1`.
fn has_no_ipv6(refused: &NetlinkError) -> bool {
    refused.errno() == Some(Errno::EAFNOSUPPORT)
}

/// Makes a link a member of another, or of none with 0.
pub(crate) fn set_master(netlink: &mut Netlink, link: u32, controller: u32) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = link;
    message.attributes = vec![LinkAttribute::Controller(controller)];
    netlink.request(RouteNetlinkMessage::NewLink(message), 0)
}

/// Removes a link; fine if it is gone. Waits for the kernel, 16 to 36 ms.
pub(crate) fn delete(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = link;
    match netlink.request(RouteNetlinkMessage::DelLink(message), 0) {
        Err(error) if error.is_absent() => Ok(()),
        done => done,
    }
}

/// What the links of this thread's namespace counted since they were made, by index.
pub(crate) fn counters(netlink: &mut Netlink) -> Result<BTreeMap<u32, Counted>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let counted = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => counted_of(link),
        _ => None,
    });
    Ok(counted.collect())
}

fn set_state(netlink: &mut Netlink, link: u32, up: bool) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = link;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    netlink.request(RouteNetlinkMessage::NewLink(message), 0)
}

pub(super) fn link_of(message: LinkMessage) -> Option<Link> {
    let flags = message.header.flags;
    let (mut name, mut kind, mut mac, mut mtu, mut parent, mut bus) = (None, None, None, 0, None, None);
    let (mut controller, mut lower, mut vrf_table) = (None, None, None);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name = value.parse().ok(),
            LinkAttribute::Address(bytes) => {
                mac = <[u8; 6]>::try_from(bytes).ok().and_then(|bytes| MacAddr::new(bytes).ok());
            }
            LinkAttribute::Mtu(value) => mtu = value,
            LinkAttribute::ParentDevName(value) => parent = Some(value),
            LinkAttribute::ParentDevBusName(value) => bus = Some(value),
            LinkAttribute::Controller(index) => controller = Some(index).filter(|index| *index != 0),
            LinkAttribute::Link(index) => lower = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(value) => kind = Some(value.to_string()),
                        LinkInfo::Data(InfoData::Vrf(data)) => vrf_table = table_of(&data),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(Link {
        index: message.header.index,
        name: name?,
        kind,
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        loopback: flags.contains(LinkFlags::Loopback),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        controller,
        lower,
        vrf_table,
        mac,
        mtu,
        pci: parent.filter(|_| bus.as_deref() == Some("pci")),
    })
}

fn table_of(data: &[InfoVrf]) -> Option<u32> {
    data.iter().find_map(|info| match info {
        InfoVrf::TableId(table) => Some(*table),
        _ => None,
    })
}

fn counted_of(message: LinkMessage) -> Option<(u32, Counted)> {
    let (mut name, mut stats) = (None, None);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(value) => name = value.parse().ok(),
            LinkAttribute::Stats64(value) => stats = Some(value),
            _ => {}
        }
    }
    Some((message.header.index, (name?, stats?)))
}

fn address_of(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut address, mut flags) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(value) => flags = Some(*value),
            _ => {}
        }
    }
    // With a peer, IFA_LOCAL is the own address and IFA_ADDRESS the peer's, whose subnet the prefix is of.
    let own = local.or(address)?;
    let has_peer = local.is_some() && address.is_some_and(|address| address != own);
    let full = if own.is_ipv4() { 32 } else { 128 };
    let prefix = if has_peer { full } else { message.header.prefix_len };
    let wide = matches!(message.header.scope, AddressScope::Universe | AddressScope::Site);
    let permanent = flags.is_some_and(|flags| flags.contains(AddressFlags::Permanent));
    Some(Address { link: message.header.index, net: IpNetwork::new(own, prefix).ok()?, lasting: wide && permanent })
}

/// A route with several next hops gives several.
fn routes_of(message: &RouteMessage) -> Vec<KernelRoute> {
    let header = &message.header;
    let unspecified: IpAddr = match header.address_family {
        AddressFamily::Inet => [0; 4].into(),
        AddressFamily::Inet6 => [0_u16; 8].into(),
        _ => return Vec::new(),
    };
    let (mut dst, mut link, mut metric, mut table) = (unspecified, None, 0, u32::from(header.table));
    let (mut mtu, mut advmss) = (None, None);
    let mut several = &[][..];
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => dst = ip_of(address).unwrap_or(dst),
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::Table(value) => table = *value,
            RouteAttribute::MultiPath(hops) => several = hops,
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(mtu_of);
                advmss = metrics.iter().find_map(advmss_of);
            }
            _ => {}
        }
    }
    let Ok(dst) = IpNetwork::new(dst, header.destination_prefix_length) else { return Vec::new() };
    if table == LOCAL_TABLE {
        return Vec::new();
    }
    match header.kind {
        RouteType::Unicast => {}
        // The kernel's own, where a table is empty.
        _ if header.protocol == RouteProtocol::Kernel => return Vec::new(),
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
            return vec![KernelRoute {
                link: 0,
                table,
                dst,
                next_hop: NextHop::Unreachable,
                metric,
                mtu: None,
                advmss: None,
                hops: 0,
            }];
        }
        _ => return Vec::new(),
    }
    let single = link.map(|link| (link, next_hop_of(&message.attributes)));
    let several =
        several.iter().map(|next_hop: &RouteNextHop| (next_hop.interface_index, next_hop_of(&next_hop.attributes)));
    let ways: Vec<(u32, NextHop)> = single.into_iter().chain(several).collect();
    let hops = ways.len();
    let route = |(link, next_hop)| KernelRoute { link, table, dst, next_hop, metric, mtu, advmss, hops };
    ways.into_iter().map(route).collect()
}

fn mtu_of(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) if *mtu != 0 => Some(*mtu),
        _ => None,
    }
}

fn advmss_of(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Advmss(size) if *size != 0 => Some(*size),
        _ => None,
    }
}

fn next_hop_of(attributes: &[RouteAttribute]) -> NextHop {
    let mut next_hop = NextHop::OnLink;
    for attribute in attributes {
        match attribute {
            RouteAttribute::Gateway(address) => {
                next_hop = ip_of(address).map_or(NextHop::Unsupported, NextHop::Gateway)
            }
            RouteAttribute::Via(RouteVia::Inet(_) | RouteVia::Inet6(_) | RouteVia::Packet(_) | RouteVia::Other(_))
            | RouteAttribute::Encap(_) => return NextHop::Unsupported,
            _ => {}
        }
    }
    next_hop
}

#[cfg(test)]
mod tests;
