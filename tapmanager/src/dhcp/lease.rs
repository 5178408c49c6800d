//! What one NIC of a guest is told: the network as the kernel has it, put into the words of DHCP. Pure; made by the
//! pod's actor, read by [`super::reply`].

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnetwork::{IpNetwork, Ipv4Network};
use proto::tap::{DhcpOptions, Dns, MacAddr, Nic};

use crate::domain::domain_name;

/// Numbers of options (RFC 2132 sections 8.3, 9.4 and 9.5).
const NTP_SERVERS: u8 = 42;
const TFTP_SERVER: u8 = 66;
const BOOT_FILE: u8 = 67;
/// Identity of the server where there is no gateway to lend its own. A guest cannot reach it, so such a guest's renewals
/// come only when it takes to broadcast, at the second of its two timers.
const LONELY_SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 254, 2);

/// What the client of one MAC address is given. It never ends for the guest: whoever renews gets the same again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The only client that is served.
    pub(crate) mac: MacAddr,
    /// Its address. A prefix of 32 bits means that all others are reached through a gateway.
    pub(crate) address: Ipv4Network,
    /// Who the server says it is.
    pub(crate) server_id: Ipv4Addr,
    /// Next hops of the default route.
    pub(crate) routers: Vec<Ipv4Addr>,
    /// All routes, the default one included; the unspecified address as next hop means on the link. Empty if
    /// `routers` says all there is.
    pub(crate) routes: Vec<(Ipv4Network, Ipv4Addr)>,
    /// In bytes.
    pub(crate) mtu: u16,
    /// Name servers.
    pub(crate) dns: Vec<Ipv4Addr>,
    /// Search domains without trailing dots, each fit for the wire.
    pub(crate) searches: Vec<String>,
    /// Empty if the guest is to choose one.
    pub(crate) hostname: String,
    /// How long a client may go on without asking again.
    pub(crate) lease: Duration,
    /// Options that the pod says, by their numbers; none has more than 255 bytes.
    pub(crate) said: Vec<(u8, Vec<u8>)>,
}

impl Lease {
    /// The lease of `nic`; `None` if it has no IPv4 address.
    pub(crate) fn of(nic: &Nic, dns: &Dns, hostname: &str, lease: Duration) -> Option<Self> {
        let kernels = nic.addresses.iter().find_map(v4_network)?;
        let subnet = (kernels.network(), kernels.prefix());
        let mut routes = Vec::new();
        for route in &nic.routes {
            let Some(dst) = v4_network(&route.dst) else { continue };
            let hop = match route.gateway {
                None => Ipv4Addr::UNSPECIFIED,
                Some(IpAddr::V4(hop)) => hop,
                // A route of IPv4 through a neighbour of IPv6: DHCP has no words for it.
                Some(IpAddr::V6(_)) => continue,
            };
            routes.push((without_host_bits(dst), hop));
        }
        // Where even the own subnet is reached through a gateway (ptp), the address' prefix is not what it seems.
        let via_gateway =
            |(dst, hop): &(Ipv4Network, Ipv4Addr)| (dst.ip(), dst.prefix()) == subnet && !hop.is_unspecified();
        let alone = kernels.prefix() == 32 || routes.iter().any(via_gateway);
        let address = if alone { Ipv4Network::from(kernels.ip()) } else { kernels };
        // The mask says this already.
        routes.retain(|(dst, hop)| alone || (dst.ip(), dst.prefix()) != subnet || !hop.is_unspecified());

        let mut routers: Vec<_> =
            routes.iter().filter(|(dst, hop)| is_default(*dst, *hop)).map(|(_, hop)| *hop).collect();
        routers.dedup();
        let hops: Vec<_> = routes.iter().map(|(_, hop)| *hop).filter(|hop| !hop.is_unspecified()).collect();
        let server_id = routers.first().or(hops.first()).copied().unwrap_or(LONELY_SERVER);
        for hop in hops {
            let near = |network: Ipv4Network| network.contains(hop);
            if !near(address) && !routes.iter().any(|(dst, via)| via.is_unspecified() && near(*dst)) {
                routes.push((Ipv4Network::from(hop), Ipv4Addr::UNSPECIFIED));
            }
        }
        if !alone && routes.iter().all(|(dst, hop)| is_default(*dst, *hop)) {
            routes.clear();
        }
        // A client takes them in order, so what a next hop needs comes first; and what comes last may be cut off.
        routes.sort_by_key(|(dst, hop)| (!hop.is_unspecified(), dst.prefix() != 0));
        routes.dedup();

        Some(Self {
            mac: nic.mac,
            address,
            server_id,
            routers,
            routes,
            mtu: u16::try_from(nic.mtu).unwrap_or(u16::MAX),
            dns: dns.servers.iter().filter_map(v4).collect(),
            searches: dns.searches.iter().filter_map(|domain| domain_name(domain)).collect(),
            hostname: domain_name(hostname).unwrap_or_default(),
            lease,
            said: Vec::new(),
        })
    }

    /// The same, with options that the pod says.
    pub(super) fn telling(self, options: &DhcpOptions) -> Self {
        let DhcpOptions { boot_file, tftp_server, ntp_servers, private } = options;
        let servers = ntp_servers.iter().flat_map(Ipv4Addr::octets).collect();
        let text = |text: &String| text.clone().into_bytes();
        let own = private.iter().map(|(number, value)| (*number, text(value)));
        let known = [(TFTP_SERVER, text(tftp_server)), (BOOT_FILE, text(boot_file)), (NTP_SERVERS, servers)];
        Self { said: known.into_iter().chain(own).filter(|(_, data)| !data.is_empty()).collect(), ..self }
    }
}

fn is_default(dst: Ipv4Network, hop: Ipv4Addr) -> bool {
    dst.prefix() == 0 && !hop.is_unspecified()
}

fn v4(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    }
}

fn v4_network(network: &IpNetwork) -> Option<Ipv4Network> {
    match network {
        IpNetwork::V4(network) => Some(*network),
        IpNetwork::V6(_) => None,
    }
}

fn without_host_bits(network: Ipv4Network) -> Ipv4Network {
    // The prefix is that of a network, so it is in range.
    Ipv4Network::new(network.network(), network.prefix()).unwrap_or(network)
}

#[cfg(test)]
mod tests;
