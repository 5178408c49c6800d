//! Where the guest's network would differ from the network of a process in the namespace: which differences make a
//! network unfit for a guest, and which are only reported.
//!
//! DHCP and router advertisements cannot express several next hops of one route, the MTU of one route, or a route that
//! leads nowhere. The first two are reported: the guest reaches the same destinations. The last is refused if the guest
//! has a route around it: the guest would send what the network's author keeps from leaving.

use ipnetwork::IpNetwork;
use proto::tap::Nic;

use super::{PlanError, routes};
use crate::net::observe::Observed;
use crate::net::path;
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
    let mut notes = Vec::new();
    if nic.mtu != link.mtu {
        notes.push(format!("nic `{name}`: mtu {} is that of its default route; the link has {}", nic.mtu, link.mtu));
    }
    for route in routes::of_link(observed, link) {
        let KernelRoute { dst, next_hop, mtu, hops, .. } = route;
        if let Some(mtu) = mtu.filter(|mtu| *mtu < nic.mtu) {
            notes.push(format!("nic `{name}`: route {dst} has the mtu {mtu}, which its guest is not told"));
        }
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

fn covers(wide: IpNetwork, narrow: IpNetwork) -> bool {
    wide.is_ipv4() == narrow.is_ipv4() && wide.prefix() <= narrow.prefix() && wide.contains(narrow.ip())
}

#[cfg(test)]
mod tests;
