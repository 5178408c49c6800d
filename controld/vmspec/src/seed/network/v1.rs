//! Version 1 of network-config: routes belong to the subnet that their gateway is in. Made by [`super::config`].

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{Dns, Nic};
use serde::Serialize;

use super::{Told, Way};

#[derive(Debug, Serialize)]
pub(in crate::seed) struct Config {
    version: u8,
    config: Vec<Physical>,
}

#[derive(Debug, Serialize)]
struct Physical {
    r#type: &'static str,
    name: String,
    mac_address: String,
    mtu: u32,
    /// In this version the key is spelled with a hyphen, unlike its neighbours.
    #[serde(rename = "accept-ra", skip_serializing_if = "Option::is_none")]
    accept_ra: Option<bool>,
    subnets: Vec<Subnet>,
}

#[derive(Debug, Default, Serialize)]
struct Subnet {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dns_nameservers: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dns_search: Vec<String>,
}

/// Both keys always: two of cloud-init's renderers fail on a route without a gateway.
#[derive(Debug, Serialize)]
struct Route {
    destination: IpNetwork,
    gateway: IpAddr,
}

// === impl Config ===

impl Config {
    /// The routes that are told all have a gateway in a subnet of their NIC.
    pub(super) fn new(nics: &[(&Nic, Way)], dns: &Dns) -> Self {
        let mut config: Vec<Physical> = nics.iter().map(|(nic, way)| Physical::of(nic, way)).collect();
        let resolving =
            config.get_mut(super::resolver_place(nics, &dns.servers)).and_then(|nic| nic.subnets.first_mut());
        if let Some(subnet) = resolving {
            subnet.dns_nameservers.clone_from(&dns.servers);
            subnet.dns_search.clone_from(&dns.searches);
        }
        Self { version: 1, config }
    }
}

// === impl Physical ===

impl Physical {
    fn of(nic: &Nic, way: &Way) -> Self {
        let subnets = match way {
            Way::Ask => asking(nic, way),
            Way::Told(routes) => told(nic, routes),
        };
        let accept_ra = match way {
            Way::Ask => super::asks(nic, way, IpNetwork::is_ipv6).then_some(true),
            Way::Told(_) => Some(false),
        };
        let (name, mac_address) = (nic.name.to_string(), nic.mac.to_string());
        Self { r#type: "physical", name, mac_address, mtu: nic.mtu, accept_ra, subnets }
    }
}

fn asking(nic: &Nic, way: &Way) -> Vec<Subnet> {
    let families =
        [("dhcp4", super::asks(nic, way, IpNetwork::is_ipv4)), ("dhcp6", super::asks(nic, way, IpNetwork::is_ipv6))];
    or_manual(families.into_iter().filter(|(_, asks)| *asks).map(|(kind, _)| Subnet::new(kind)).collect())
}

fn told(nic: &Nic, routes: &[Told]) -> Vec<Subnet> {
    let subnet = |(place, own): (usize, &IpNetwork)| {
        let mut subnet = Subnet::new(if own.is_ipv4() { "static" } else { "static6" });
        subnet.address = Some(*own);
        for Told { dst, via, .. } in routes.iter().filter(|route| route.neighbour_of == Some(place)) {
            match via {
                Some(via) if dst.prefix() == 0 && subnet.gateway.is_none() => subnet.gateway = Some(*via),
                Some(via) => subnet.routes.push(Route { destination: *dst, gateway: *via }),
                None => {}
            }
        }
        subnet
    };
    or_manual(nic.addresses.iter().enumerate().map(subnet).collect())
}

/// A NIC without subnets is brought up all the same.
fn or_manual(subnets: Vec<Subnet>) -> Vec<Subnet> {
    if subnets.is_empty() { vec![Subnet::new("manual")] } else { subnets }
}

// === impl Subnet ===

impl Subnet {
    fn new(kind: &'static str) -> Self {
        Self { r#type: kind, ..Self::default() }
    }
}
