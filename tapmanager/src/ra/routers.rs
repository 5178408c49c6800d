//! Who a NIC's routers are, and what each is for. Pure; called by [`super::Server`].

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv6Network};
use proto::tap::Nic;

/// Router of a NIC that has none: its advertisements say what is on the link.
const NOBODY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x7669, 0x7274, 1);

/// A router as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Router {
    /// Link-local: source of its advertisements.
    pub(super) address: Ipv6Addr,
    /// The gateway that it stands in for, if it is no station itself.
    pub(super) gateway: Option<Ipv6Addr>,
    /// Whether a default route leads there.
    pub(super) default: bool,
    /// What else does, without default routes.
    pub(super) routes: Vec<Ipv6Network>,
}

/// The NIC's routers in the order of its routes; one at least.
pub(super) fn of(nic: &Nic) -> Vec<Router> {
    let mut routers: Vec<Router> = Vec::new();
    for route in &nic.routes {
        // A neighbour of IPv4 cannot be said; nor is a group anybody's next hop.
        let (IpNetwork::V6(dst), Some(IpAddr::V6(hop))) = (route.dst, route.gateway) else { continue };
        if hop.is_multicast() || hop.is_unspecified() || hop.is_loopback() {
            continue;
        }
        let gateway = Some(hop).filter(|hop| !hop.is_unicast_link_local());
        let known = |router: &&mut Router| router.gateway.unwrap_or(router.address) == hop;
        let router = match routers.iter_mut().find(known) {
            Some(router) => router,
            None => {
                let address = gateway.map_or(hop, |gateway| free_stand_in(gateway, nic, &routers));
                routers.push(Router { address, gateway, default: false, routes: Vec::new() });
                // Was just put there.
                let Some(router) = routers.last_mut() else { continue };
                router
            }
        };
        if dst.prefix() == 0 {
            router.default = true;
        } else {
            router.routes.push(network(dst));
        }
    }
    if routers.is_empty() {
        routers.push(Router { address: NOBODY, gateway: None, default: false, routes: Vec::new() });
    }
    routers
}

/// Prefixes that are on the link as the kernel has it.
pub(super) fn on_link(nic: &Nic) -> Vec<Ipv6Network> {
    let v6 = |net: &IpNetwork| if let IpNetwork::V6(net) = net { Some(network(*net)) } else { None };
    let via =
        |net: &Ipv6Network| nic.routes.iter().any(|route| route.gateway.is_some() && v6(&route.dst) == Some(*net));
    let of_addresses = nic.addresses.iter().filter_map(v6).filter(|net| net.prefix() < 128 && !via(net));
    let of_routes = nic.routes.iter().filter(|route| route.gateway.is_none()).filter_map(|route| v6(&route.dst));
    let mut prefixes: Vec<Ipv6Network> = Vec::new();
    for prefix in of_addresses.chain(of_routes) {
        // A host has these without being told, and ignores what it is told (RFC 4861 section 6.3.4).
        let known = prefix.ip().is_unicast_link_local() || prefix.ip().is_multicast();
        if !known && !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// Addresses of the NIC that others than its neighbours know it by.
pub(super) fn own_addresses(nic: &Nic) -> Vec<Ipv6Network> {
    let global = |net: &IpNetwork| match net {
        IpNetwork::V6(net) if !net.ip().is_unicast_link_local() => Some(*net),
        IpNetwork::V6(_) | IpNetwork::V4(_) => None,
    };
    nic.addresses.iter().filter_map(global).collect()
}

/// The stand-in of `gateway`, or the next address that is neither another one's nor a gateway itself.
fn free_stand_in(gateway: Ipv6Addr, nic: &Nic, routers: &[Router]) -> Ipv6Addr {
    let mut address = stand_in(gateway);
    let is_taken = |address: Ipv6Addr| {
        let gateway = Some(IpAddr::V6(address));
        routers.iter().any(|router| router.address == address)
            || nic.routes.iter().any(|route| route.gateway == gateway)
    };
    while is_taken(address) {
        address = Ipv6Addr::from_bits(address.to_bits().wrapping_add(1));
    }
    address
}

/// The link-local address that stands for a global one: both halves of it folded into the interface identifier, so that
/// it stays the same for ever and differs from gateway to gateway.
fn stand_in(gateway: Ipv6Addr) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = gateway.segments();
    Ipv6Addr::new(0xfe80, 0, 0, 0, a ^ e, b ^ f, c ^ g, d ^ h)
}

fn network(net: Ipv6Network) -> Ipv6Network {
    // The prefix is that of a network, so it is in range.
    Ipv6Network::new(net.network(), net.prefix()).unwrap_or(net)
}
