//! What a pod's network is to be, and what it is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::super::{IfName, MacAddr, OwnerId, PciAddress, PodId, unfit_for_pod};

mod nic;

/// A pod that is to have a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Sandbox id; the CNI container id.
    pub pod: PodId,
    /// Who asks, and whom lists show as the pod's owner. `None`: a person, or a program that keeps no records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Kubernetes namespace, for `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// Pod name, for `K8S_POD_NAME`.
    pub name: String,
    /// Pod UID, for `K8S_POD_UID`.
    pub uid: String,
    /// Host name that DHCP offers (option 12); empty offers none.
    pub hostname: String,
    /// DNS as kubelet wants it; replaces what the CNI plugins say.
    pub dns: Option<Dns>,
    /// The networks of the pod, in the order of the guest's NICs. Empty: the node's default network alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkAsk>,
    /// How links and taps are joined. `None`: as the node is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_path: Option<DataPath>,
    /// Most queues that a NIC may have, which is the machine's number of CPUs. `None`: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Whether the guest is held to its own MAC and IP addresses. `None`: as the node is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_spoof: Option<bool>,
    /// Ports of the node that lead to the pod, for the CNI capability `portMappings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// For the CNI capability `bandwidth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Settings of the pod's namespace, each of `net.`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// The pod's cgroup, for the CNI capability `cgroupPath`; empty says none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cgroup: String,
    /// What DHCP tells the guest on a link beside what the network has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dhcp: BTreeMap<IfName, DhcpOptions>,
}

impl Attach {
    /// A pod with the node's default network and nothing else said.
    #[must_use]
    pub const fn new(pod: PodId) -> Self {
        Self {
            pod,
            owner: None,
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
            hostname: String::new(),
            dns: None,
            networks: Vec::new(),
            data_path: None,
            queues: None,
            anti_spoof: None,
            host_ports: Vec::new(),
            bandwidth: None,
            sysctls: BTreeMap::new(),
            cgroup: String::new(),
            dhcp: BTreeMap::new(),
        }
    }
}

/// Options of DHCP (RFC 2132) beside those that a network has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DhcpOptions {
    /// Option 67; empty says none, as does an empty one of the others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot_file: String,
    /// Option 66.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tftp_server: String,
    /// Option 42.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<Ipv4Addr>,
    /// Options of [`DhcpOptions::PRIVATE`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub private: BTreeMap<u8, String>,
}

impl DhcpOptions {
    /// Numbers of options that are a site's own (RFC 3942).
    pub const PRIVATE: std::ops::RangeInclusive<u8> = 224..=254;
    /// Most servers of a kind.
    pub const MAX_SERVERS: usize = 16;
    /// Most bytes of a text, which is all that one option has.
    pub const MAX_TEXT: usize = 255;

    /// Whether a text can be an option.
    #[must_use]
    pub fn is_text(text: &str) -> bool {
        text.len() <= Self::MAX_TEXT && !text.chars().any(char::is_control)
    }
}

/// A network that a pod asks for, by the name that its configuration has. The default asks for the node's default network
/// and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkAsk {
    /// `name` of the network configuration; `None` is the node's default network.
    pub network: Option<String>,
    /// Name of the link. `None`: `eth0` for the first network, `net1`, `net2` and so on for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<IfName>,
    /// For the CNI capability `mac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Whether the network may give another address if none of its plugins has that capability.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mac_is_wish: bool,
    /// For the CNI capability `ips`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpNetwork>,
    /// For the CNI capability `deviceID`: a PCI address as a device plugin names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// For the CNI capability `aliases`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

/// How a link of a CNI plugin and the guest's NIC are joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPath {
    /// clsact on both: classic BPF filters, then mirred redirect.
    #[default]
    Tc,
    /// Of pods that an earlier release attached, as their records and answers have it. A request that names it is refused.
    Ebpf,
    /// A bridge in the pod's namespace.
    Bridge,
    /// A macvtap on the link. Its guest cannot be sent DHCP, and is addressed by cloud-init.
    Macvtap,
}

/// Why a name is no data path that can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataPathError {
    /// An earlier release had it.
    #[error("data path `{0}` is no longer supported; use `tc`")]
    Removed(&'static str),
    /// No release has it.
    #[error("`{0}` is no data path; use `tc`, `bridge` or `macvtap`")]
    Unknown(String),
}

impl DataPath {
    /// Those that can be asked for, the default first.
    pub const ALL: [Self; 3] = [Self::Tc, Self::Bridge, Self::Macvtap];

    /// As configurations, annotations and packets call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::Ebpf => "ebpf",
            Self::Bridge => "bridge",
            Self::Macvtap => "macvtap",
        }
    }
}

impl FromStr for DataPath {
    type Err = DataPathError;

    /// One that can be asked for, by its name.
    fn from_str(name: &str) -> Result<Self, DataPathError> {
        const REMOVED: &str = DataPath::Ebpf.name();
        let offered = Self::ALL.into_iter().find(|path| path.name() == name);
        offered.ok_or_else(|| match name {
            REMOVED => DataPathError::Removed(REMOVED),
            _ => DataPathError::Unknown(name.to_owned()),
        })
    }
}

/// A port of the node that leads to the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPort {
    /// Address of the node; `None` is every address.
    pub host_ip: Option<IpAddr>,
    /// The node's port.
    pub host_port: u16,
    /// The guest's port.
    pub container_port: u16,
    /// Of which transport.
    pub protocol: PortProtocol,
}

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Limits of a pod's traffic. Rates are in bits per second, bursts in bits; ingress is towards the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Towards the pod.
    pub ingress_rate: Option<u64>,
    /// Towards the pod.
    pub ingress_burst: Option<u64>,
    /// From the pod.
    pub egress_rate: Option<u64>,
    /// From the pod.
    pub egress_burst: Option<u64>,
}

/// Resolver settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    /// Name servers in the order of preference.
    pub servers: Vec<IpAddr>,
    /// Search domains in order.
    pub searches: Vec<String>,
    /// Resolver options such as `ndots:5`.
    pub options: Vec<String>,
}

/// The network of a pod, as the kernel has it: what the guest is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodNet {
    /// File that the pod's network namespace is mounted on.
    pub netns: PathBuf,
    /// In the order that the guest sees them.
    pub nics: Vec<Nic>,
    /// Resolver settings that hold for the whole pod.
    pub dns: Dns,
}

/// One network interface of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "nic::Form", into = "nic::Form")]
pub struct Nic {
    /// Name of the link in the pod's namespace, and the name wished for in the guest.
    pub name: IfName,
    /// Name of the CNI network that the link belongs to. Records of the first release have none.
    pub network: String,
    /// The guest's MAC address: the one that the CNI plugin gave the link.
    pub mac: MacAddr,
    /// MTU in bytes.
    pub mtu: u32,
    /// What it is on the node.
    pub kind: NicKind,
    /// Addresses with the prefix length that the kernel has, in the order of the plugin's result.
    pub addresses: Vec<IpNetwork>,
    /// Routes that the guest gets: those on the link first, default routes last.
    pub routes: Vec<Route>,
}

/// What a guest's NIC is on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicKind {
    /// A tap.
    Tap(Tap),
    /// An SR-IOV virtual function, which the guest drives itself.
    Vfio(Vfio),
}

/// A NIC that is a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tap {
    /// How it is joined with the link. In the first release there was one way.
    pub data_path: DataPath,
    /// Its queues, hence descriptors of the hand-off.
    pub queues: u16,
}

/// A NIC that is passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vfio {
    /// Where the virtual function is on the node.
    pub device: PciAddress,
}

impl Nic {
    /// The tap that it is; `None` if it is passed through.
    #[must_use]
    pub const fn tap(&self) -> Option<Tap> {
        match self.kind {
            NicKind::Tap(tap) => Some(tap),
            NicKind::Vfio(_) => None,
        }
    }

    /// The virtual function that it is; `None` if it is a tap.
    #[must_use]
    pub const fn vfio(&self) -> Option<Vfio> {
        match self.kind {
            NicKind::Tap(_) => None,
            NicKind::Vfio(vfio) => Some(vfio),
        }
    }
}

impl PodNet {
    /// The addresses that the pod is known by: the first of each family of its first NIC, which is the default network's. A
    /// pod may ask other networks for any address, so what it has there may be somebody else's elsewhere.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut known: Vec<IpAddr> = Vec::new();
        let default = self.nics.first().into_iter().flat_map(|nic| &nic.addresses);
        for ip in default.map(IpNetwork::ip).filter(|ip| unfit_for_pod(*ip).is_none()) {
            if known.iter().all(|other| other.is_ipv4() != ip.is_ipv4()) {
                known.push(ip);
            }
        }
        known
    }

    /// The virtual functions of its NICs, in order.
    pub fn vfio(&self) -> impl Iterator<Item = Vfio> {
        self.nics.iter().filter_map(Nic::vfio)
    }
}

/// A route of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Destination; `/0` is the default route.
    pub dst: IpNetwork,
    /// Next hop; `None` means the destination is on the link.
    pub gateway: Option<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(nics: &[&[&str]]) -> PodNet {
        let nic = |addresses: &&[&str]| Nic {
            name: "eth0".parse().expect("a name"),
            network: "pods".into(),
            mac: "02:00:00:00:00:01".parse().expect("an address"),
            mtu: 1500,
            kind: NicKind::Tap(Tap { data_path: DataPath::Tc, queues: 1 }),
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
            routes: Vec::new(),
        };
        PodNet { netns: "/run/netns/x".into(), nics: nics.iter().map(nic).collect(), dns: Dns::default() }
    }

    #[test]
    fn a_pod_is_known_by_what_its_default_network_gave_it() {
        let known = |nics: &[&[&str]]| net(nics).addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(known(&[&["10.1.0.2/24", "10.1.0.3/24", "fd00::2/64", "fd00::3/64"]]), ["10.1.0.2", "fd00::2"]);
        assert_eq!(known(&[&["fd00::2/64", "10.1.0.2/24"]]), ["fd00::2", "10.1.0.2"]);
        assert_eq!(known(&[&["10.1.0.2/24"], &["192.0.2.1/24", "fd00::2/64"]]), ["10.1.0.2"]);
        assert!(known(&[&[], &["192.0.2.1/24"]]).is_empty());
        let odd = ["127.0.0.1/8", "169.254.7.7/16", "fe80::7/64", "::ffff:127.0.0.1/128", "10.1.0.2/24", "fd00::2/64"];
        assert_eq!(known(&[&odd]), ["10.1.0.2", "fd00::2"]);
        assert!(known(&[]).is_empty());
    }
}
