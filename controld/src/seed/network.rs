//! The guest's network-config, version 2, in its DHCP form.
//!
//! tapmanager answers DHCP on each tap, but the file is written all the same: it covers every NIC rather than the first,
//! and networkd takes neither the MTU nor the search domains from DHCP by default.

use std::collections::BTreeMap;

use proto::tap::{Nic, PodNet};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct NetworkConfig {
    version: u8,
    ethernets: BTreeMap<String, Ethernet>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Ethernet {
    r#match: Match,
    /// The same as the key: networkd's renderer looks for a link of the key's name beside the MAC address.
    set_name: String,
    mtu: u32,
    dhcp4: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<Nameservers>,
}

#[derive(Serialize)]
struct Match {
    macaddress: String,
}

#[derive(Serialize)]
struct Nameservers {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search: Vec<String>,
}

/// The network-config of a pod's NICs. The resolver settings are the pod's, so they stand at its first NIC.
pub(super) fn config(net: &PodNet) -> NetworkConfig {
    let ethernet = |(index, nic): (usize, &Nic)| {
        let nameservers = if index == 0 { nameservers(net) } else { None };
        (nic.name.to_string(), Ethernet::of(nic, nameservers))
    };
    NetworkConfig { version: 2, ethernets: net.nics.iter().enumerate().map(ethernet).collect() }
}

fn nameservers(net: &PodNet) -> Option<Nameservers> {
    if net.dns.servers.is_empty() && net.dns.searches.is_empty() {
        return None;
    }
    let addresses = net.dns.servers.iter().map(ToString::to_string).collect();
    Some(Nameservers { addresses, search: net.dns.searches.clone() })
}

impl Ethernet {
    fn of(nic: &Nic, nameservers: Option<Nameservers>) -> Self {
        Self {
            r#match: Match { macaddress: nic.mac.to_string() },
            set_name: nic.name.to_string(),
            mtu: nic.mtu,
            // A NIC without an IPv4 address gets no lease, and the guest's boot would wait for one.
            dhcp4: nic.addresses.iter().any(ipnetwork::IpNetwork::is_ipv4),
            nameservers,
        }
    }
}
