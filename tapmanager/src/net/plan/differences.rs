//! Where the guest's network would differ from the network of a process in the namespace: which differences make a
//! network unfit for a guest, and which are only reported.
//!
//! DHCP and router advertisements cannot express several next hops of one route, the MTU or the segment size of one route, or a
//! route that leads nowhere. All but the last are reported: the guest reaches the same destinations, and the least MTU of its
//! routes is that of its NIC. The last is refused if the guest has a route around it: the guest would send what the network's
//! author keeps from leaving.

use ipnetwork::IpNetwork;
use proto::tap::Nic;

use super::{PlanError, routes};
use crate::net::observe::Observed;
use crate::net::{RouteSize, path};
use crate::sys::link::{KernelRoute, Link, MAIN_TABLE, NextHop};

/// Refuses a link whose network its guest would misunderstand.
pub(super) fn refuse(observed: &Observed, link: &Link, nic: &Nic) -> Result<(), PlanError> {
    let name = || nic.name.clone();
    let taken = routes::of_link(observed, link);
    let nowhere =
        observed.routes.iter().filter(|route| route.next_hop == NextHop::Unreachable && route.table == MAIN_TABLE);
    for KernelRoute { dst, metric, .. } in nowhere.copied() {
        // Of two routes to one destination the lower metric counts.
        let passed_over = taken.iter().any(|route| route.dst == dst && route.metric <= metric);
        let of_guest = nic.routes.iter().map(|route| route.dst).chain(nic.addresses.iter().copied());
        let around = of_guest.filter(|wide| covers(*wide, dst)).max_by_key(IpNetwork::prefix);
        if let Some(instead) = around.filter(|_| !passed_over) {
            return Err(PlanError::Nowhere { name: name(), dst, instead });
        }
    }
    if !path::of(nic.kind).hears_guest() {
        let neighbours = observed.neighbours_of(link);
        let mut gateways = nic.routes.iter().filter_map(|route| route.gateway);
        if let Some(gateway) = gateways.find(|gateway| neighbours.iter().any(|known| known.ip == *gateway)) {
            return Err(PlanError::Neighbour { name: name(), gateway });
        }
    }
    Ok(())
}

/// What differs, in lines for people.
pub(super) fn notes(observed: &Observed, link: &Link, nic: &Nic) -> Vec<String> {
    let name = &nic.name;
    let taken = routes::of_link(observed, link);
    let size = |route: &&KernelRoute| RouteSize {
        dst: route.dst,
        priority: Some(route.metric),
        mtu: route.mtu,
        advmss: route.advmss,
    };
    let mut notes = sizes(nic, link.mtu, taken.iter().map(size));
    for route in taken {
        let KernelRoute { dst, next_hop, hops, .. } = route;
        if *hops > 1 {
            let way = match next_hop {
                NextHop::Gateway(gateway) => format!("{gateway} alone"),
                NextHop::OnLink | NextHop::Unsupported | NextHop::Unreachable => "this link alone".to_owned(),
            };
            notes.push(format!("nic `{name}`: route {dst} has {hops} next hops; its guest goes by {way}"));
        }
    }
    if path::of(nic.kind).hears_guest() {
        let told = observed.neighbours_of(link).into_iter().map(|known| {
            format!("nic `{name}`: {} is at {} for good; its guest is answered so in the pod", known.ip, known.mac)
        });
        notes.extend(told);
    }
    notes
}

/// What differs in the size of packets, on a link of this MTU.
pub(super) fn sizes(nic: &Nic, of_link: u32, routes: impl Iterator<Item = RouteSize>) -> Vec<String> {
    let name = &nic.name;
    let mut notes = Vec::new();
    if nic.mtu != of_link {
        notes.push(format!("nic `{name}`: mtu {} is the least of its routes; the link has {of_link}", nic.mtu));
    }
    for RouteSize { dst, mtu, advmss, .. } in routes {
        if let Some(mtu) = mtu.filter(|mtu| *mtu < nic.mtu) {
            let why = "which its guest is not told: it could not use IPv6, or IP at all";
            notes.push(format!("nic `{name}`: route {dst} has the mtu {mtu}, {why}"));
        }
        if let Some(advmss) = advmss {
            notes.push(format!("nic `{name}`: route {dst} has the advmss {advmss}, which its guest cannot be told"));
        }
    }
    notes
}

fn covers(wide: IpNetwork, narrow: IpNetwork) -> bool {
    wide.is_ipv4() == narrow.is_ipv4() && wide.prefix() <= narrow.prefix() && wide.contains(narrow.ip())
}

#[cfg(test)]
mod tests;
