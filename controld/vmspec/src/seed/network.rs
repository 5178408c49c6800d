//! The guest's network-config: which of its NICs ask for their addresses, which are told them, and in which version.
//!
//! Called by [`super::assemble`]. Pure.
//!
//! tapmanager answers DHCP and sends router advertisements on each tap, but the file is written all the same: it covers
//! every NIC rather than the first, and networkd takes neither the MTU nor the search domains from DHCP by default. The
//! guest of a macvtap, or of a virtual function, cannot be sent anything, so it is told its addresses whatever the pod says. DHCP has one address of
//! IPv4, so a NIC of several is told unless the pod says otherwise.
//!
//! | the file holds | version | why |
//! |---|---|---|
//! | only NICs that ask | 2 ([`v2`]) | every renderer of cloud-init gets it right |
//! | NICs that are told, each gateway in a subnet of its NIC | 1 ([`v1`]) | the same |
//! | a gateway outside of them, or a route on the link | 2 | version 1 cannot say it; of version 2's renderers only netplan heeds `on-link` |
//!
//! A route on the link has no gateway. The renderers `eni` and `sysconfig` end at such a route and write nothing, so that no NIC of
//! the guest comes up. It is left out where the NIC has the pod's only default route of the family, by a gateway outside of the subnets: that
//! gateway is on the link and takes what the route would have taken. So does a router of IPv6 with a link-local address, which is such a gateway.

mod openstack;
mod v1;
mod v2;

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{DataPath, IfName, Nic, NicKind, PodNet, Tap};
use serde::Serialize;

use crate::seed_kind::NetworkConfig;

/// A network-config in the one version that can say it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Config {
    V1(v1::Config),
    V2(v2::Config),
}

/// How a guest comes by the addresses of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// It asks tapmanager.
    Ask,
    /// The file tells it, and which way its routes go.
    Told(Vec<Told>),
}

/// A route that the file tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    dst: IpNetwork,
    /// `None`: the destination is on the link.
    via: Option<IpAddr>,
    /// Which of the NIC's addresses has the gateway as a neighbour.
    neighbour_of: Option<usize>,
}

/// The network-config of a pod's NICs; `None` if the pod wants none.
pub(super) fn config(net: &PodNet, wish: NetworkConfig) -> Option<Config> {
    if wish == NetworkConfig::None {
        return None;
    }
    let nics = ways(net, wish);
    let all_ask = nics.iter().all(|(_, way)| *way == Way::Ask);
    Some(if all_ask || !off_subnet(net, wish).is_empty() {
        Config::V2(v2::Config::new(&nics, &net.dns))
    } else {
        Config::V1(v1::Config::new(&nics, &net.dns))
    })
}

/// The same for OpenStack's drive.
pub(super) fn network_data(net: &PodNet, wish: NetworkConfig) -> Option<openstack::NetworkData> {
    (wish != NetworkConfig::None).then(|| openstack::NetworkData::new(&ways(net, wish), &net.dns))
}

/// The NICs with addresses that no DHCP can bring.
pub(super) fn without_dhcp(net: &PodNet) -> impl Iterator<Item = &IfName> {
    net.nics.iter().filter(|nic| is_deaf(nic) && !nic.addresses.is_empty()).map(|nic| &nic.name)
}

/// The NICs that are told a route which not every guest can be told: its gateway is outside of the NIC's subnets, or it is on the link. Of cloud-init's
/// renderers only netplan's heeds such a gateway, and [`network_data`] leaves the route out.
pub fn off_subnet(net: &PodNet, wish: NetworkConfig) -> Vec<String> {
    that_are_told(net, wish, |route| route.neighbour_of.is_none())
}

/// Those of [`off_subnet`] that are told a route on the link, for which some of cloud-init's renderers set up no NIC at all.
pub fn on_link(net: &PodNet, wish: NetworkConfig) -> Vec<String> {
    that_are_told(net, wish, |route| route.via.is_none())
}

fn that_are_told(net: &PodNet, wish: NetworkConfig, such: impl Fn(&Told) -> bool) -> Vec<String> {
    if wish == NetworkConfig::None {
        return Vec::new();
    }
    let is_told = |way: &Way| way.routes().iter().any(&such);
    ways(net, wish).iter().filter(|(_, way)| is_told(way)).map(|(nic, _)| nic.name.to_string()).collect()
}

/// Whether nothing of ours can be sent to the guest on this NIC.
const fn is_deaf(nic: &Nic) -> bool {
    matches!(nic.kind, NicKind::Vfio(_) | NicKind::Tap(Tap { data_path: DataPath::Macvtap, .. }))
}

fn ways(net: &PodNet, wish: NetworkConfig) -> Vec<(&Nic, Way)> {
    net.nics.iter().map(|nic| (nic, Way::of(nic, net, wish))).collect()
}

/// Place of the NIC that the pod's resolver settings stand at: the first that has an address of the family of one of them. At
/// another NIC some of cloud-init's renderers drop them, and resolved asks them where they do not answer.
fn resolver_place(nics: &[(&Nic, Way)], servers: &[IpAddr]) -> usize {
    let reaches = |own: &IpNetwork| servers.iter().any(|server| server.is_ipv4() == own.is_ipv4());
    let near = nics.iter().position(|(nic, _)| nic.addresses.iter().any(reaches));
    near.or_else(|| nics.iter().position(|(nic, _)| !nic.addresses.is_empty())).unwrap_or(0)
}

/// A NIC without addresses of a family gets none by asking, and the guest's boot would wait for it.
fn asks(nic: &Nic, way: &Way, of_family: impl Fn(&IpNetwork) -> bool) -> bool {
    *way == Way::Ask && nic.addresses.iter().any(of_family)
}

// === impl Way ===

impl Way {
    fn of(nic: &Nic, net: &PodNet, wish: NetworkConfig) -> Self {
        let several = nic.addresses.iter().filter(|address| address.is_ipv4()).count() > 1;
        let must_be_told = is_deaf(nic) || (several && wish == NetworkConfig::Auto);
        if must_be_told || wish == NetworkConfig::Static { Self::Told(told_routes(nic, net)) } else { Self::Ask }
    }

    fn routes(&self) -> &[Told] {
        match self {
            Self::Ask => &[],
            Self::Told(routes) => routes,
        }
    }
}

/// The routes that do not follow from the addresses, or from being told that a gateway is on the link; of those on the link, only
/// what no such gateway takes.
fn told_routes(nic: &Nic, net: &PodNet) -> Vec<Told> {
    let implied = |dst: IpNetwork| {
        let by_address = nic.addresses.iter().any(|own| own.network() == dst.network() && own.prefix() == dst.prefix());
        let to_gateway = nic.routes.iter().filter_map(|route| route.gateway).any(|gateway| dst == gateway.into());
        by_address || to_gateway
    };
    let told = |dst: IpNetwork, via: Option<IpAddr>| {
        let neighbour = |gateway: IpAddr| nic.addresses.iter().position(|own| is_neighbour(*own, gateway));
        Told { dst, via, neighbour_of: via.and_then(neighbour) }
    };
    let routes = nic.routes.iter().filter(|route| route.gateway.is_some() || !implied(route.dst));
    let mut routes: Vec<_> = routes.map(|route| told(route.dst, route.gateway)).collect();
    let in_a_subnet = |gateway: IpAddr| nic.addresses.iter().any(|own| own.contains(gateway));
    let covers = |route: &Told| route.dst.prefix() == 0 && route.via.is_some_and(|gateway| !in_a_subnet(gateway));
    // The guest may prefer the default route of another NIC.
    let others = || net.nics.iter().filter(|other| other.name != nic.name).flat_map(|other| &other.routes);
    let has_rival = |is_ipv4| others().any(|route| route.dst.prefix() == 0 && route.dst.is_ipv4() == is_ipv4);
    let covering = routes.iter().filter(|route| covers(route)).map(|route| route.dst.is_ipv4());
    let covered: Vec<_> = covering.filter(|is_ipv4| !has_rival(*is_ipv4)).collect();
    routes.retain(|route| route.via.is_some() || !covered.contains(&route.dst.is_ipv4()));
    routes
}

/// Link-local routers are the neighbours of every address of IPv6.
fn is_neighbour(own: IpNetwork, gateway: IpAddr) -> bool {
    match gateway {
        IpAddr::V6(router) if router.is_unicast_link_local() => own.is_ipv6(),
        _ => own.contains(gateway),
    }
}

#[cfg(test)]
mod tests;
