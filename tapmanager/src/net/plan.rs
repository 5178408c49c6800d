//! What to do to join a pod's links with taps, and what NICs its guest gets: decided from what was seen, without doing.
//!
//! Called by [`crate::net`] between looking ([`super::observe`]) and doing ([`super::apply`]). Pure.
//!
//! The guest is to reach what a process in the namespace would. The prefix length of an address says to a guest "these
//! neighbours are on the link"; to the kernel it is only where the route to them first came from. The `ptp` plugin, for
//! one, sets `10.77.0.2/24` and then replaces the route to `10.77.0.0/24` by one through the gateway. Therefore an
//! address keeps its prefix length only if the kernel still has the route that it implies, and is a host address (/32,
//! /128) otherwise; all other routes of the link go to the guest as they are. A gateway that nothing says how to
//! reach (an `onlink` route) gets a route of its own. Routes on the link come first and default routes last, so that
//! a guest that sets them one by one finds each gateway reachable.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{IfName, MacAddr, Nic, Route};

use super::filter::{Guard, Identity, TooManyAddresses};
use super::observe::Observed;
use super::{Reported, Wish, tap_name};
use crate::sys::link::{Address, Hop, KernelRoute, Link};

/// As many PCI slots as `vmwrapper` has for NICs.
const MAX_NICS: usize = 15;
/// The most that a tap takes (`MAX_MTU` less the Ethernet header in the kernel's `tun.c`). The redirect does not look
/// at a tap's MTU, so frames of a larger link cross none the less.
const TAP_MAX_MTU: u32 = 65_521;

/// What is to be done and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// In this order.
    pub(crate) steps: Vec<Step>,
    /// NIC by NIC, as the guest sees them.
    pub(crate) nics: Vec<Nic>,
}

/// One change of the namespace. Displays as what it tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a persistent tap.
    CreateTap {
        /// Its name.
        tap: IfName,
    },
    /// Set the tap's MTU and silence it.
    ShapeTap {
        /// The tap.
        tap: IfName,
        /// The MTU.
        mtu: u32,
    },
    /// Give a link the queueing discipline for filters.
    AddClsact {
        /// The link.
        link: IfName,
    },
    /// Drop what must not cross.
    AddGuard {
        /// On the ingress side of this link.
        link: IfName,
        /// What is dropped.
        guard: Guard,
    },
    /// Take what comes in on one link out of another.
    AddRedirect {
        /// In here.
        from: IfName,
        /// Out there.
        to: IfName,
    },
    /// Bring a link up that is down.
    Raise {
        /// The link.
        link: IfName,
    },
    /// Open the packet socket for the guest's DHCP.
    Listen {
        /// On this tap.
        tap: IfName,
    },
}

/// Why a pod cannot be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// Nothing to join.
    #[error("the CNI plugins made no link in the pod's namespace; is this a network for pods?")]
    NoLinks,
    /// Nothing but loopback.
    #[error("the CNI plugins made nothing but a loopback link; the network needs a plugin that connects pods")]
    OnlyLoopback,
    /// Not there.
    #[error("link `{name}`, which a CNI plugin reported, is not in the pod's namespace")]
    Missing {
        /// As reported.
        name: IfName,
    },
    /// Too many.
    #[error("the CNI plugins made {count} links, a virtual machine takes {MAX_NICS}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A link of another sort.
    #[error("link `{name}` carries no Ethernet frames, which a virtual machine's NIC needs")]
    NotEthernet {
        /// The link.
        name: IfName,
    },
    /// No station's address.
    #[error("link `{name}` has no MAC address that a virtual machine could take")]
    NoMac {
        /// The link.
        name: IfName,
    },
    /// A kind that would not work.
    #[error("link `{name}` is of kind `{kind}`, which cannot be given to a virtual machine; {advice}")]
    Kind {
        /// The link.
        name: IfName,
        /// Its kind.
        kind: String,
        /// What to use instead.
        advice: &'static str,
    },
    /// An SR-IOV virtual function.
    #[error(
        "link `{name}` is the SR-IOV virtual function `{vf}` (number {number} of `{pf}`), which cannot be passed through \
         yet; use a network without SR-IOV for this pod"
    )]
    VirtualFunction {
        /// The link.
        name: IfName,
        /// Its PCI address.
        vf: sriov::PciAddr,
        /// Its number.
        number: u32,
        /// Its physical function.
        pf: sriov::PciAddr,
    },
    /// Down, so its routes are not there to be read.
    #[error("link `{name}` has addresses but is down; the CNI plugin that made it must bring it up")]
    Down {
        /// The link.
        name: IfName,
    },
    /// A name of ours is taken.
    #[error("a link `{name}` is in the pod's namespace already; a CNI plugin must not use this name")]
    NameTaken {
        /// The name.
        name: IfName,
    },
    /// The kernel does not have what was reported.
    #[error("address `{address}`, which a CNI plugin reported, is on no link of the pod")]
    AddressMissing {
        /// As reported.
        address: IpAddr,
    },
    /// Nowhere an address.
    #[error("no link of the pod has an IP address; does the network's configuration lack `ipam`?")]
    NoAddress,
    /// More addresses than the guest can be held to.
    #[error("link `{name}` has too many addresses")]
    Identity {
        /// The link.
        name: IfName,
        /// How many.
        #[source]
        cause: TooManyAddresses,
    },
    /// A route that DHCP cannot say.
    #[error(
        "route to `{dst}` on link `{name}` goes by another address family or a tunnel, which a guest cannot be told"
    )]
    Route {
        /// The link.
        name: IfName,
        /// The destination.
        dst: IpNetwork,
    },
}

/// Decides how to join the links that the plugins reported; without any, those that have a reported address.
pub(crate) fn plan(observed: &Observed, reported: &[Reported], wish: &Wish) -> Result<Plan, PlanError> {
    let mut links: Vec<(&Link, &Reported)> = Vec::new();
    for network in reported {
        for link in chosen_links(observed, network)? {
            if links.iter().all(|(other, _)| *other != link) {
                links.push((link, network));
            }
        }
    }
    if links.len() > MAX_NICS {
        return Err(PlanError::TooMany { count: links.len() });
    }
    let mut plan = Plan { steps: Vec::new(), nics: Vec::new() };
    for (place, (link, network)) in links.iter().copied().enumerate() {
        let tap = tap_name(place);
        if observed.links.iter().any(|other| other.name == tap) {
            return Err(PlanError::NameTaken { name: tap });
        }
        let mac = usable_mac(observed, link)?;
        let nic = nic(observed, network, link, mac, wish)?;
        let identity = wish.anti_spoof.then(|| identity(&nic)).transpose()?;
        plan.steps.extend(steps(link, mac, &tap, identity));
        plan.nics.push(nic);
    }
    check_addresses(reported, &plan.nics)?;
    Ok(plan)
}

fn chosen_links<'a>(observed: &'a Observed, reported: &Reported) -> Result<Vec<&'a Link>, PlanError> {
    let mut links: Vec<&Link> = Vec::new();
    for name in &reported.links {
        let link = observed.links.iter().find(|link| link.name == *name);
        let link = link.ok_or_else(|| PlanError::Missing { name: name.clone() })?;
        // Chained plugins may report a link once each.
        if !links.contains(&link) {
            links.push(link);
        }
    }
    if reported.links.is_empty() {
        // Results of old plugins name no interfaces.
        let addressed = |link: &&Link| {
            let mut own = observed.addresses.iter().filter(|address| address.link == link.index);
            own.any(|own| reported.addresses.iter().any(|address| address.ip() == own.net.ip()))
        };
        links = observed.links.iter().filter(addressed).collect();
    }
    if links.is_empty() {
        return Err(PlanError::NoLinks);
    }
    links.retain(|link| !link.loopback);
    if links.is_empty() { Err(PlanError::OnlyLoopback) } else { Ok(links) }
}

fn usable_mac(observed: &Observed, link: &Link) -> Result<MacAddr, PlanError> {
    let name = || link.name.clone();
    if let Some(vf) = observed.vfs.get(&link.name) {
        return Err(PlanError::VirtualFunction { name: name(), vf: vf.addr, number: vf.number, pf: vf.pf });
    }
    let refuse = |kind: &str, advice| Err(PlanError::Kind { name: name(), kind: kind.to_owned(), advice });
    match link.kind.as_deref() {
        // Its pods share one MAC address, so the guard would take each other's frames for reflections.
        Some(kind @ "ipvlan") => return refuse(kind, "use macvlan, bridge or ptp"),
        Some(kind @ "tun") => return refuse(kind, "use a plugin that makes an ordinary pod link"),
        _ => {}
    }
    if !link.ethernet {
        return Err(PlanError::NotEthernet { name: name() });
    }
    link.mac.ok_or_else(|| PlanError::NoMac { name: name() })
}

/// Both ends get their filters before either is up for the guest, so no frame crosses unjudged.
fn steps(link: &Link, mac: MacAddr, tap: &IfName, identity: Option<Identity>) -> Vec<Step> {
    let name = || link.name.clone();
    let tap = || tap.clone();
    let mut steps = vec![
        Step::CreateTap { tap: tap() },
        Step::ShapeTap { tap: tap(), mtu: link.mtu.min(TAP_MAX_MTU) },
        Step::AddClsact { link: tap() },
        Step::AddGuard { link: tap(), guard: Guard::FromGuest(identity) },
        Step::AddRedirect { from: tap(), to: name() },
        Step::AddClsact { link: name() },
        Step::AddGuard { link: name(), guard: Guard::ToGuest(mac) },
        Step::AddRedirect { from: name(), to: tap() },
    ];
    if !link.up {
        steps.push(Step::Raise { link: name() });
    }
    steps.push(Step::Raise { link: tap() });
    steps.push(Step::Listen { tap: tap() });
    steps
}

fn nic(observed: &Observed, reported: &Reported, link: &Link, mac: MacAddr, wish: &Wish) -> Result<Nic, PlanError> {
    let routes: Vec<&KernelRoute> = observed.routes.iter().filter(|route| route.link == link.index).collect();
    let own = own_addresses(observed, reported, link);
    if !link.up && !own.is_empty() {
        return Err(PlanError::Down { name: link.name.clone() });
    }
    let addresses: Vec<IpNetwork> = own
        .into_iter()
        .map(|net| if routes.iter().any(|route| implies(net, route)) { net } else { host(net.ip()) })
        .collect();
    let routes = guest_routes(&link.name, &addresses, &routes)?;
    let (name, network) = (link.name.clone(), reported.network.clone());
    Ok(Nic { name, network, data_path: wish.data_path, mac, mtu: link.mtu, queues: 1, addresses, routes })
}

/// Who a guest with this NIC is.
fn identity(nic: &Nic) -> Result<Identity, PlanError> {
    let addresses: Vec<IpAddr> = nic.addresses.iter().map(IpNetwork::ip).collect();
    let gateways: Vec<IpAddr> = nic.routes.iter().filter_map(|route| route.gateway).collect();
    let tell = |cause| PlanError::Identity { name: nic.name.clone(), cause };
    Identity::new(nic.mac, &addresses, &gateways).map_err(tell)
}

/// Addresses in the order of the plugins' result, then other lasting ones in the kernel's.
fn own_addresses(observed: &Observed, reported: &Reported, link: &Link) -> Vec<IpNetwork> {
    let own: Vec<&Address> = observed.addresses.iter().filter(|address| address.link == link.index).collect();
    let is_reported = |own: &Address| reported.addresses.iter().any(|address| address.ip() == own.net.ip());
    let first = reported.addresses.iter().filter_map(|address| own.iter().find(|own| own.net.ip() == address.ip()));
    let others = own.iter().filter(|own| own.lasting && !is_reported(own));
    let mut addresses: Vec<IpNetwork> = Vec::new();
    for address in first.chain(others) {
        if !addresses.contains(&address.net) {
            addresses.push(address.net);
        }
    }
    addresses
}

fn guest_routes(name: &IfName, addresses: &[IpNetwork], routes: &[&KernelRoute]) -> Result<Vec<Route>, PlanError> {
    // Of several routes to a destination the kernel takes the one with the lowest metric, the first of equals.
    let mut best: BTreeMap<(bool, IpAddr, u8), u32> = BTreeMap::new();
    let key = |dst: IpNetwork| (dst.is_ipv6(), dst.network(), dst.prefix());
    for route in routes {
        let lowest = best.entry(key(route.dst)).or_insert(route.metric);
        *lowest = route.metric.min(*lowest);
    }
    let mut chosen: Vec<Route> = Vec::new();
    for route in routes {
        let seen = chosen.iter().any(|route_| route_.dst == route.dst);
        if seen || best.get(&key(route.dst)) != Some(&route.metric) || is_for_every_host(route.dst) {
            continue;
        }
        let gateway = match route.hop {
            Hop::OnLink if addresses.iter().any(|net| implies(*net, route) || host(net.ip()) == route.dst) => continue,
            Hop::OnLink => None,
            Hop::Gateway(gateway) => Some(gateway),
            Hop::Unspeakable => return Err(PlanError::Route { name: name.clone(), dst: route.dst }),
        };
        chosen.push(Route { dst: route.dst, gateway });
    }
    for gateway in chosen.iter().filter_map(|route| route.gateway).collect::<Vec<_>>() {
        let by_address = addresses.iter().any(|net| net.contains(gateway));
        let by_route = chosen.iter().any(|route| route.gateway.is_none() && route.dst.contains(gateway));
        if !by_address && !by_route && !is_link_local(gateway) {
            chosen.push(Route { dst: host(gateway), gateway: None });
        }
    }
    chosen.sort_by_key(|route| (route.dst.prefix() == 0, route.gateway.is_some()));
    Ok(chosen)
}

fn check_addresses(reported: &[Reported], nics: &[Nic]) -> Result<(), PlanError> {
    let has = |ip: IpAddr| nics.iter().any(|nic| nic.addresses.iter().any(|net| net.ip() == ip));
    // The loopback plugin reports its own, which no guest needs to be given.
    let mut expected =
        reported.iter().flat_map(|network| &network.addresses).map(IpNetwork::ip).filter(|ip| !ip.is_loopback());
    if let Some(address) = expected.find(|ip| !has(*ip)) {
        return Err(PlanError::AddressMissing { address });
    }
    if nics.iter().all(|nic| nic.addresses.is_empty()) { Err(PlanError::NoAddress) } else { Ok(()) }
}

/// Whether `route` is the one that a guest makes by itself for an address with this prefix length.
fn implies(net: IpNetwork, route: &KernelRoute) -> bool {
    route.hop == Hop::OnLink && route.dst.ip() == net.network() && route.dst.prefix() == net.prefix()
}

/// Destinations that every host has routes to without being told: IPv6 link-local and multicast.
fn is_for_every_host(dst: IpNetwork) -> bool {
    is_link_local(dst.ip()) || dst.ip().is_multicast()
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn host(ip: IpAddr) -> IpNetwork {
    ip.into()
}

// === impl Step ===

impl Step {
    /// What to call the step when it is done.
    pub(crate) fn done(&self) -> &'static str {
        match self {
            Self::CreateTap { .. } => "tap created",
            Self::ShapeTap { .. } => "tap shaped",
            Self::AddClsact { .. } => "clsact added",
            Self::AddGuard { .. } => "guard added",
            Self::AddRedirect { .. } => "redirect added",
            Self::Raise { .. } => "link up",
            Self::Listen { .. } => "packet socket opened",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTap { tap } => write!(f, "create tap `{tap}`"),
            Self::ShapeTap { tap, mtu } => write!(f, "set tap `{tap}` to MTU {mtu}"),
            Self::AddClsact { link } => write!(f, "add the clsact qdisc to `{link}`"),
            Self::AddGuard { link, guard: Guard::FromGuest(_) } => write!(f, "filter what the guest sends on `{link}`"),
            Self::AddGuard { link, guard: Guard::ToGuest(mac) } => write!(f, "filter what `{link}` gets for `{mac}`"),
            Self::AddRedirect { from, to } => write!(f, "redirect from `{from}` to `{to}`"),
            Self::Raise { link } => write!(f, "bring up `{link}`"),
            Self::Listen { tap } => write!(f, "open a packet socket on `{tap}`"),
        }
    }
}

#[cfg(test)]
mod tests;
