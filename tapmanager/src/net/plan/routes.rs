//! Which routes a guest gets for one of its NICs.
//!
//! Those of the main table; then those of other tables, which a VRF or a policy rule leads to (the `vrf` and `sbr`
//! plugins move a link's routes there). A guest has one table only, and DHCP has no word for rules: a route of another
//! table is left out where the main table has one to the same destination on the link, and a default route of another
//! table wherever the pod has one in the main table.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{IfName, Route};

use super::PlanError;
use crate::net::observe::Observed;
use crate::sys::link::{KernelRoute, Link, MAIN_TABLE, NextHop};

/// What every link carries: RFC 791, and RFC 8200 section 5.
const IPV4_LEAST_MTU: u32 = 68;
const IPV6_LEAST_MTU: u32 = 1280;

/// The routes of a link that count for its guest.
pub(crate) fn of_link<'a>(observed: &'a Observed, link: &Link) -> Vec<&'a KernelRoute> {
    let is_main = |route: &&KernelRoute| route.table == MAIN_TABLE;
    let (mut own, others): (Vec<&KernelRoute>, Vec<&KernelRoute>) =
        observed.routes.iter().filter(|route| route.link == link.index).partition(is_main);
    let has_default = |v6: bool| {
        let mut main = observed.routes.iter().filter(is_main);
        main.any(|route| route.dst.prefix() == 0 && route.dst.is_ipv6() == v6)
    };
    let others = others.into_iter().filter(|route| {
        let known = own.iter().any(|main| main.dst == route.dst);
        let default_elsewhere = route.dst.prefix() == 0 && has_default(route.dst.is_ipv6());
        !(known || default_elsewhere)
    });
    let others: Vec<_> = others.collect();
    own.extend(others);
    best(&own)
}

/// Of several routes to a destination the one that the kernel takes: that with the lowest metric, the first of equals.
fn best<'a>(routes: &[&'a KernelRoute]) -> Vec<&'a KernelRoute> {
    let mut best: Vec<&KernelRoute> = Vec::new();
    for route in routes {
        match best.iter_mut().find(|known| known.dst == route.dst) {
            Some(known) if route.metric < known.metric => *known = route,
            Some(_) => {}
            None => best.push(route),
        }
    }
    best
}

/// The MTU that the guest is told: the link's, or the least of its routes if that is less, as tunnels have it whose packets
/// grow on the way. It never takes IPv6 from a guest that has an address of it.
pub(crate) fn guest_mtu(of_link: u32, addresses: &[IpNetwork], of_routes: impl Iterator<Item = Option<u32>>) -> u32 {
    let least = if addresses.iter().any(IpNetwork::is_ipv6) { IPV6_LEAST_MTU } else { IPV4_LEAST_MTU };
    of_routes.flatten().min().map_or(of_link, |mtu| mtu.max(least).min(of_link))
}

/// Addresses with the prefix length that the guest is told.
pub(crate) fn with_prefixes(own: Vec<IpNetwork>, routes: &[&KernelRoute]) -> Vec<IpNetwork> {
    let told = |net| if routes.iter().any(|route| implies(net, route)) { net } else { host(net.ip()) };
    own.into_iter().map(told).collect()
}

/// Those routes as the guest is told them.
pub(crate) fn guest_routes(
    name: &IfName,
    addresses: &[IpNetwork],
    routes: &[&KernelRoute],
) -> Result<Vec<Route>, PlanError> {
    let mut chosen: Vec<Route> = Vec::new();
    for route in routes {
        if is_for_every_host(route.dst) {
            continue;
        }
        let gateway = match route.next_hop {
            NextHop::OnLink if addresses.iter().any(|net| implies(*net, route) || host(net.ip()) == route.dst) => {
                continue;
            }
            NextHop::OnLink => None,
            NextHop::Gateway(gateway) => Some(gateway),
            // Of no link.
            NextHop::Unreachable => continue,
            NextHop::Unsupported => return Err(PlanError::Route { name: name.clone(), dst: route.dst }),
        };
        chosen.push(Route { dst: route.dst, gateway });
    }
    for gateway in chosen.iter().filter_map(|route| route.gateway).collect::<Vec<_>>() {
        let by_address = addresses.iter().any(|net| net.contains(gateway));
        // Default routes come last, so not even one without a gateway makes another's reachable in time.
        let before = |route: &Route| route.gateway.is_none() && route.dst.prefix() > 0 && route.dst.contains(gateway);
        let by_route = chosen.iter().any(before);
        if !by_address && !by_route && !is_link_local(gateway) {
            chosen.push(Route { dst: host(gateway), gateway: None });
        }
    }
    chosen.sort_by_key(|route| (route.dst.prefix() == 0, route.gateway.is_some()));
    Ok(chosen)
}

/// Whether `route` is the one that a guest makes by itself for an address with this prefix length.
fn implies(net: IpNetwork, route: &KernelRoute) -> bool {
    route.next_hop == NextHop::OnLink && route.dst.ip() == net.network() && route.dst.prefix() == net.prefix()
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
