//! Version 2 of network-config, which is netplan's: routes belong to the NIC. Made by [`super::config`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{Dns, Nic};
use serde::Serialize;

use super::{Told, Way};

#[derive(Debug, Serialize)]
pub(in crate::seed) struct Config {
    version: u8,
    ethernets: BTreeMap<String, Ethernet>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Ethernet {
    r#match: Match,
    /// The same as the key: networkd's renderer looks for a link of the key's name beside the MAC address.
    set_name: String,
    mtu: u32,
    dhcp4: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dhcp6: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    accept_ra: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpNetwork>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<Nameservers>,
}

#[derive(Debug, Serialize)]
struct Match {
    macaddress: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Route {
    /// Not `default`, which most of cloud-init's renderers know only since version 25.3.
    to: IpNetwork,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<IpAddr>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    on_link: bool,
    /// netplan wants a gateway for any wider scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Nameservers {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search: Vec<String>,
}

// === impl Config ===

impl Config {
    pub(super) fn new(nics: &[(&Nic, Way)], dns: &Dns) -> Self {
        let resolving = super::resolver_place(nics, &dns.servers);
        let ethernet = |(place, (nic, way)): (usize, &(&Nic, Way))| {
            let nameservers = if place == resolving { nameservers(dns) } else { None };
            (nic.name.to_string(), Ethernet::of(nic, way, nameservers))
        };
        Self { version: 2, ethernets: nics.iter().enumerate().map(ethernet).collect() }
    }
}

fn nameservers(dns: &Dns) -> Option<Nameservers> {
    let Dns { servers, searches, .. } = dns;
    let said = !servers.is_empty() || !searches.is_empty();
    said.then(|| Nameservers { addresses: servers.clone(), search: searches.clone() })
}

// === impl Ethernet ===

impl Ethernet {
    fn of(nic: &Nic, way: &Way, nameservers: Option<Nameservers>) -> Self {
        let dhcp6 = super::asks(nic, way, IpNetwork::is_ipv6);
        let (accept_ra, addresses) = match way {
            Way::Ask => (dhcp6.then_some(true), Vec::new()),
            Way::Told(_) => (Some(false), nic.addresses.clone()),
        };
        Self {
            r#match: Match { macaddress: nic.mac.to_string() },
            set_name: nic.name.to_string(),
            mtu: nic.mtu,
            dhcp4: super::asks(nic, way, IpNetwork::is_ipv4),
            dhcp6,
            accept_ra,
            addresses,
            routes: way.routes().iter().map(Route::of).collect(),
            nameservers,
        }
    }
}

// === impl Route ===

impl Route {
    fn of(told: &Told) -> Self {
        let on_link = told.via.is_some() && told.neighbour_of.is_none();
        let scope = if told.via.is_none() { Some("link") } else { None };
        Self { to: told.dst, via: told.via, on_link, scope }
    }
}
