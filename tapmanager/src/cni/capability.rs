//! The capability arguments of CNI: what a pod asks of a network in addition to the network's configuration.
//!
//! The pod's actor makes them of a request; each plugin that declares the capability gets them. Names and forms are
//! those of the CNI project's CONVENTIONS.md, section "Dynamic Plugin specific fields (Capabilities / Runtime
//! Configuration)". What a pod asks for by name (a port, a rate, an address) must reach a plugin, so a network without
//! one that declares the capability is refused before anything is made; what every pod has (resolver settings, a
//! cgroup), and a MAC address that is only a wish, is an offer.

use ipnetwork::IpNetwork;
use proto::tap::{Attach, Bandwidth, Dns, HostPort, MacAddr, NetworkAsk, PortProtocol};
use serde_json::{Map, Value, json};

use super::{CniError, NetworkList};

/// The bandwidth plugin wants a burst with each rate, and takes no more bits than this. Kubernetes knows no bursts, and
/// runtimes give as good as no limit.
const ANY_BURST: u64 = u32::MAX as u64;

/// Settles MAC addresses that are wishes, of `request` for its `networks`: what takes none is asked for none. Again is fine.
pub(crate) fn settle_macs<'a>(request: &mut Attach, networks: impl IntoIterator<Item = &'a NetworkList>) {
    for (ask, network) in request.networks.iter_mut().zip(networks).filter(|(ask, _)| ask.mac_is_wish) {
        ask.mac = ask.mac.filter(|_| network.declares("mac"));
        ask.mac_is_wish = false;
    }
}

/// Arguments for the plugins of one network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CapabilityArgs {
    /// `portMappings`.
    pub(crate) port_mappings: Vec<HostPort>,
    /// `bandwidth`.
    pub(crate) bandwidth: Option<Bandwidth>,
    /// `ips`.
    pub(crate) ips: Vec<IpNetwork>,
    /// `mac`.
    pub(crate) mac: Option<MacAddr>,
    /// Whether no plugin needs to take that.
    pub(crate) mac_is_wish: bool,
    /// `dns`.
    pub(crate) dns: Option<Dns>,
    /// `ipRanges`: sets of subnets, of each of which the pod gets one address.
    pub(crate) ip_ranges: Vec<Vec<IpNetwork>>,
    /// `deviceID`.
    pub(crate) device_id: Option<String>,
    /// `aliases`.
    pub(crate) aliases: Vec<String>,
    /// `cgroupPath`; empty says none.
    pub(crate) cgroup_path: String,
}

impl CapabilityArgs {
    /// What `request` wants of the network `ask`. Ports and rates are the pod's, and go to its first network.
    pub(crate) fn of(request: &Attach, ask: &NetworkAsk, is_first: bool) -> Self {
        Self {
            port_mappings: if is_first { request.host_ports.clone() } else { Vec::new() },
            bandwidth: request.bandwidth.clone().filter(|_| is_first),
            ips: ask.ips.clone(),
            mac: ask.mac,
            mac_is_wish: ask.mac_is_wish,
            dns: request.dns.clone(),
            ip_ranges: Vec::new(),
            device_id: ask.device_id.clone(),
            aliases: ask.aliases.clone(),
            cgroup_path: request.cgroup.clone(),
        }
    }

    /// Refuses a network none of whose plugins declares a capability that is needed.
    pub(crate) fn fit(&self, list: &NetworkList) -> Result<(), CniError> {
        let needed = [
            ("portMappings", "host ports", !self.port_mappings.is_empty()),
            ("bandwidth", "bandwidth limits", self.bandwidth.as_ref().is_some_and(limits)),
            ("ips", "IP addresses", !self.ips.is_empty()),
            ("mac", "MAC address", self.mac.is_some() && !self.mac_is_wish),
            ("ipRanges", "address ranges", !self.ip_ranges.is_empty()),
            ("deviceID", "device", self.device_id.is_some()),
            ("aliases", "aliases", !self.aliases.is_empty()),
        ];
        match needed.into_iter().find(|(capability, _, needed)| *needed && !list.declares(capability)) {
            Some((capability, what, _)) => {
                Err(CniError::Incapable { network: list.name().to_owned(), capability, what })
            }
            None => Ok(()),
        }
    }

    /// All that there is, by capability, in the form that plugins read.
    pub(super) fn offered(&self) -> Map<String, Value> {
        let Self { port_mappings, bandwidth, ips, mac, dns, ip_ranges, device_id, aliases, cgroup_path, .. } = self;
        let mut offered = Map::new();
        let mut offer = |capability: &str, value: Value, given: bool| {
            if given {
                offered.insert(capability.to_owned(), value);
            }
        };
        let ports: Vec<_> = port_mappings.iter().map(port_mapping).collect();
        offer("portMappings", Value::Array(ports), !port_mappings.is_empty());
        if let Some(bandwidth) = bandwidth {
            offer("bandwidth", rates(bandwidth), limits(bandwidth));
        }
        let addresses: Vec<_> = ips.iter().map(ToString::to_string).collect();
        offer("ips", addresses.into(), !ips.is_empty());
        offer("mac", mac.map(|mac| mac.to_string()).into(), mac.is_some());
        if let Some(Dns { servers, searches, options }) = dns {
            let value = json!({"servers": servers, "searches": searches, "options": options});
            offer("dns", value, !(servers.is_empty() && searches.is_empty() && options.is_empty()));
        }
        let set = |set: &Vec<IpNetwork>| set.iter().map(|range| json!({"subnet": range.to_string()})).collect();
        let sets: Vec<Value> = ip_ranges.iter().map(set).collect();
        offer("ipRanges", Value::Array(sets), !ip_ranges.is_empty());
        offer("deviceID", device_id.clone().into(), device_id.is_some());
        offer("aliases", aliases.clone().into(), !aliases.is_empty());
        offer("cgroupPath", cgroup_path.clone().into(), !cgroup_path.is_empty());
        offered
    }
}

const fn limits(bandwidth: &Bandwidth) -> bool {
    bandwidth.ingress_rate.is_some() || bandwidth.egress_rate.is_some()
}

fn port_mapping(port: &HostPort) -> Value {
    let protocol = match port.protocol {
        PortProtocol::Tcp => "tcp",
        PortProtocol::Udp => "udp",
        PortProtocol::Sctp => "sctp",
    };
    let mut mapping = json!({"hostPort": port.host_port, "containerPort": port.container_port, "protocol": protocol});
    if let Some(address) = port.host_ip {
        mapping["hostIP"] = address.to_string().into();
    }
    mapping
}

fn rates(bandwidth: &Bandwidth) -> Value {
    let Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst } = bandwidth;
    let mut rates = Map::new();
    for (rate_name, burst_name, rate, burst) in [
        ("ingressRate", "ingressBurst", ingress_rate, ingress_burst),
        ("egressRate", "egressBurst", egress_rate, egress_burst),
    ] {
        if let Some(rate) = rate {
            rates.insert(rate_name.to_owned(), (*rate).into());
            rates.insert(burst_name.to_owned(), burst.unwrap_or(ANY_BURST).into());
        }
    }
    Value::Object(rates)
}

#[cfg(test)]
mod tests;
