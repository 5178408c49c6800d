//! Which routes a guest gets for one of its NICs.
//!
//! Those of the main table; then those of other tables, which a VRF or a policy rule leads to (the `vrf` and `sbr`
//! plugins move a link's routes there). A guest has one table only, and DHCP has no word for rules: a route of another
//! table is left out where the main table has one to the same destination on the link, and a default route of another
//! table wherever the pod has one in the main table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{IfName, Route};

use super::PlanError;
use crate::net::observe::Observed;
use crate::sys::link::{Hop, KernelRoute, Link, MAIN_TABLE};

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
    own
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
