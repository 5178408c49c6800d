//! The guest's network as OpenStack's `network_data.json` says it. Made by [`super::network_data`].
//!
//! It has no words for search domains, nor for a gateway outside of its NIC's subnet. Resolvers stand at a network of their family, where it
//! says addresses, beside the list for the whole guest: of that list cloud-init's renderer `eni` leaves out those of IPv6 since version 25.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use proto::tap::{Dns, Nic};
use serde::Serialize;

use super::{Told, Way};

#[derive(Debug, Serialize)]
pub(in crate::seed) struct NetworkData {
    links: Vec<Link>,
    networks: Vec<Network>,
    services: Vec<Service>,
}

#[derive(Debug, Serialize)]
struct Link {
    id: String,
    r#type: &'static str,
    ethernet_mac_address: String,
    mtu: u32,
}

#[derive(Debug, Serialize)]
struct Network {
    id: String,
    network_id: String,
    link: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netmask: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    services: Vec<Service>,
}

#[derive(Debug, Serialize)]
struct Route {
    network: IpAddr,
    netmask: IpAddr,
    gateway: IpAddr,
}

#[derive(Debug, Serialize)]
struct Service {
    r#type: &'static str,
    address: IpAddr,
}

// === impl NetworkData ===

impl NetworkData {
    pub(super) fn new(nics: &[(&Nic, Way)], dns: &Dns) -> Self {
        let resolving = super::resolver_place(nics, &dns.servers);
        let mut networks = Vec::new();
        for (place, (nic, way)) in nics.iter().enumerate() {
            let link = nic.name.to_string();
            match way {
                Way::Ask => {
                    let families = [
                        ("ipv4_dhcp", super::asks(nic, way, IpNetwork::is_ipv4)),
                        ("ipv6_dhcp", super::asks(nic, way, IpNetwork::is_ipv6)),
                    ];
                    for (kind, _) in families.into_iter().filter(|(_, asks)| *asks) {
                        networks.push(Network::new(networks.len(), &link, kind));
                    }
                }
                Way::Told(routes) => {
                    let servers = if place == resolving { &dns.servers[..] } else { &[] };
                    for (address, own) in nic.addresses.iter().enumerate() {
                        let services = servers.iter().filter(|server| server.is_ipv4() == own.is_ipv4());
                        let services = services.map(Service::dns).collect();
                        let told = Network::told(networks.len(), &link, *own, address, routes);
                        networks.push(Network { services, ..told });
                    }
                }
            }
        }
        let links = nics.iter().map(|(nic, _)| Link {
            id: nic.name.to_string(),
            r#type: "phy",
            ethernet_mac_address: nic.mac.to_string(),
            mtu: nic.mtu,
        });
        Self { links: links.collect(), networks, services: dns.servers.iter().map(Service::dns).collect() }
    }
}

// === impl Network ===

impl Network {
    fn new(place: usize, link: &str, kind: &'static str) -> Self {
        let id = format!("net-{place}");
        Self {
            network_id: id.clone(),
            id,
            link: link.to_owned(),
            r#type: kind,
            ip_address: None,
            netmask: None,
            routes: Vec::new(),
            services: Vec::new(),
        }
    }

    fn told(place: usize, link: &str, own: IpNetwork, address: usize, routes: &[Told]) -> Self {
        let routes = routes.iter().filter(|route| route.neighbour_of == Some(address));
        let route = |route: &Told| {
            Some(Route { network: route.dst.network(), netmask: mask_of(route.dst), gateway: route.via? })
        };
        Self {
            ip_address: Some(own.ip()),
            netmask: Some(mask_of(own)),
            routes: routes.filter_map(route).collect(),
            ..Self::new(place, link, if own.is_ipv4() { "ipv4" } else { "ipv6" })
        }
    }
}

// === impl Service ===

impl Service {
    const fn dns(address: &IpAddr) -> Self {
        Self { r#type: "dns", address: *address }
    }
}

/// The mask of a prefix, spelled out.
fn mask_of(net: IpNetwork) -> IpAddr {
    match net {
        IpNetwork::V4(net) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(net.prefix())).unwrap_or_default();
            Ipv4Addr::from(bits).into()
        }
        IpNetwork::V6(net) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(net.prefix())).unwrap_or_default();
            Ipv6Addr::from(bits).into()
        }
    }
}
