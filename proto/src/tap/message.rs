//! The messages of the tap protocol. What each field means is said here and nowhere else.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::{IfName, MacAddr, PodId, Token};

/// What `controld` asks of `tapmanager`.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on its way to the wire")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Introduces the caller and says who QEMU runs as. Answered by [`Reply::Status`].
    Hello(Hello),
    /// Gives a pod its network; repeating it gives the same answer. Answered by [`Reply::Attached`].
    Attach(Attach),
    /// Mints the token of the pod's next machine start, and voids an earlier one. Answered by [`Reply::Armed`].
    Arm(Arm),
    /// Takes a pod's network away; fine if there is none. Answered by [`Reply::Detached`].
    Detach {
        /// The pod.
        pod: PodId,
    },
    /// Takes up a pod that is in trouble again: what stands as it was made is served again, what our side lost (a tap, a
    /// filter) is made again, the guest's addresses stay. Answered by [`Reply::Attached`].
    Recover {
        /// The pod.
        pod: PodId,
    },
    /// Compares a pod with what it was given: the plugins' CHECK, links, filters, servers. Answered by [`Reply::Checked`].
    Check {
        /// The pod.
        pod: PodId,
    },
    /// All that is known of one pod. Answered by [`Reply::Pod`].
    Inspect {
        /// The pod.
        pod: PodId,
    },
    /// Lists pods in the order of their ids. Answered by [`Reply::Pods`].
    List(List),
    /// Counters of the pods' NICs, in the order of the pods' ids. Answered by [`Reply::Stats`].
    Stats(List),
    /// Takes away what belongs to no pod: stale namespaces of ours, CNI state of ours, pods whose Detach is overdue.
    /// Answered by [`Reply::Collected`].
    Collect,
    /// Asks for [`Reply::Status`].
    Status,
}

/// What `tapmanager` answers to a [`Request`] that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The state of the daemon.
    Status(ServerStatus),
    /// The pod has this network now.
    Attached(PodNet),
    /// The token to put into the machine's environment.
    Armed {
        /// One-shot, and worthless after the daemon's `arm_ttl`.
        token: Token,
    },
    /// The pod has no network any more.
    Detached,
    /// What [`Request::Check`] found.
    Checked(CheckReport),
    /// What is known of the pod.
    Pod(Box<PodDetail>),
    /// One page of pods.
    Pods(PodPage),
    /// One page of counters.
    Stats(StatsPage),
    /// What [`Request::Collect`] did.
    Collected(CollectReport),
}

/// What `vmwrapper` asks of `tapmanager`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HandoffRequest {
    /// Trades the token for the pod's descriptors. Consumes the token whatever comes of it.
    Get {
        /// From the environment of the machine.
        token: Token,
    },
}

/// What `tapmanager` answers to a [`HandoffRequest`] that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HandoffReply {
    /// The pod's NICs. The descriptors beside the packet are their queues, then their vhost ones, NIC by NIC.
    Nics(Handoff),
}

/// First words of `controld`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Program and version of the caller, for the log.
    pub client: String,
    /// Who libvirt runs QEMU as. `None` leaves what an earlier `Hello` or the configuration said.
    pub qemu: Option<QemuUser>,
}

/// The user that libvirt gives to QEMU (its DAC base label), which opens `handoff.sock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QemuUser {
    /// Only this uid may `Get`.
    pub uid: u32,
    /// Group of the hand-off socket.
    pub gid: u32,
}

/// A pod that is to have a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Sandbox id; the CNI container id.
    pub pod: PodId,
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
}

impl Attach {
    /// A pod with the node's default network and nothing else said.
    #[must_use]
    pub const fn new(pod: PodId) -> Self {
        Self {
            pod,
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
        }
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
    /// clsact on both: one eBPF program filters, counts and redirects.
    Ebpf,
    /// A bridge in the pod's namespace.
    Bridge,
    /// A macvtap on the link. Its guest cannot be sent DHCP, and is addressed by cloud-init.
    Macvtap,
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
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Name of the link in the pod's namespace, and the name wished for in the guest.
    pub name: IfName,
    /// Name of the CNI network that the link belongs to. Records of the first release have none.
    #[serde(default)]
    pub network: String,
    /// How it is joined with the link. In the first release there was one way.
    #[serde(default)]
    pub data_path: DataPath,
    /// The guest's MAC address: the one that the CNI plugin gave the link.
    pub mac: MacAddr,
    /// MTU in bytes.
    pub mtu: u32,
    /// Queues of the tap, hence descriptors of the hand-off.
    pub queues: u16,
    /// Addresses with the prefix length that the kernel has, in the order of the plugin's result.
    pub addresses: Vec<IpNetwork>,
    /// Routes that the guest gets: those on the link first, default routes last.
    pub routes: Vec<Route>,
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

/// Names the pod of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The pod.
    pub pod: PodId,
}

/// Asks for one page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Only pods after this one; `None` starts at the first.
    pub after: Option<PodId>,
}

/// One page of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodPage {
    /// At most [`MAX_PAGE`](super::MAX_PAGE), in the order of their ids.
    pub pods: Vec<PodSummary>,
    /// Whether there are pods after the last of these.
    pub more: bool,
}

/// One pod of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodSummary {
    /// The pod.
    pub pod: PodId,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Where it stands.
    pub phase: PodPhase,
    /// First address, if it has one.
    pub ip: Option<IpAddr>,
    /// Why it is of no use although it is attached, or why it cannot be taken away; cut to
    /// [`MAX_TROUBLE`](super::MAX_TROUBLE) bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// All that is known of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodDetail {
    /// As in a list.
    pub summary: PodSummary,
    /// What was asked for.
    pub request: Attach,
    /// What it was given; there while it is attached.
    pub net: Option<PodNet>,
    /// What each of its NICs became and why, and what the guest is told: lines for people.
    pub explanation: Vec<String>,
}

/// Whether a pod is as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckReport {
    /// What is not as it should be; empty when all is well.
    pub findings: Vec<String>,
    /// What was looked at.
    pub checked: Vec<String>,
}

/// One page of counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatsPage {
    /// At most [`MAX_STATS_PAGE`](super::MAX_STATS_PAGE), in the order of their ids; only attached pods.
    pub pods: Vec<PodStats>,
    /// Whether there are pods after the last of these.
    pub more: bool,
}

/// Counters of a pod's NICs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodStats {
    /// The pod.
    pub pod: PodId,
    /// In the order that the guest sees them.
    pub nics: Vec<NicStats>,
}

/// Counters of a NIC since it was made, from the guest's point of view: `rx` is what the guest received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicStats {
    /// The NIC.
    pub name: IfName,
    /// Bytes that the guest received.
    pub rx_bytes: u64,
    /// Packets that the guest received.
    pub rx_packets: u64,
    /// Towards the guest.
    pub rx_errors: u64,
    /// Towards the guest, those that its NIC had no room for.
    pub rx_dropped: u64,
    /// Bytes that the guest sent.
    pub tx_bytes: u64,
    /// Packets that the guest sent.
    pub tx_packets: u64,
    /// From the guest.
    pub tx_errors: u64,
    /// From the guest, those that the filters refused included.
    pub tx_dropped: u64,
}

/// What was collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectReport {
    /// What was taken away: lines for people.
    pub removed: Vec<String>,
    /// What was not taken away although it belongs to no pod, and why.
    pub kept: Vec<String>,
}

/// Where a pod's network stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodPhase {
    /// Being made, or left half made by a crash and waiting to be undone.
    Attaching,
    /// Whole.
    Attached,
    /// Being taken away, or waiting for another try.
    Detaching,
}

/// State of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerStatus {
    /// Program and version.
    pub server: String,
    /// Whether a pod could be given a network now.
    pub ready: bool,
    /// Why not; when ready, what else is worth knowing, and mostly empty.
    pub reason: String,
    /// Pods on record.
    pub pods: u64,
    /// Tokens handed in that were unknown, used or lapsed, or came from the wrong peer.
    pub tokens_refused: u64,
    /// Time spent inside CNI plugin processes since the start, in microseconds.
    pub plugin_micros: u64,
}

/// The descriptors of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    /// In the order that the guest sees them.
    pub nics: Vec<HandoffNic>,
}

/// What QEMU must know of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandoffNic {
    /// The guest's MAC address.
    pub mac: MacAddr,
    /// MTU in bytes, for `host_mtu`.
    pub mtu: u32,
    /// How many of the descriptors are this NIC's queues, at least 1.
    pub queues: u16,
    /// How many descriptors of `/dev/vhost-net` follow the queues: none, or one for each queue.
    #[serde(default)]
    pub vhost: u16,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{message}")]
pub struct ErrorBody {
    /// What a program does about it.
    pub code: ErrorCode,
    /// What a person reads: what failed, why, and what to do.
    pub message: String,
}

/// Classes of failure, each with one right reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The peer speaks another version of the protocol.
    Version,
    /// The message is malformed, or a value in it is.
    BadRequest,
    /// No such pod.
    NotFound,
    /// The pod is in a state that does not allow it.
    Conflict,
    /// The peer, or its token, may not do this.
    Denied,
    /// The node's network is not configured, or a plugin says it is not ready.
    Unavailable,
    /// A named wait ran out, e.g. for a CNI plugin.
    Deadline,
    /// Disk or descriptors ran out.
    Exhausted,
    /// Anything else, a plugin's own error included.
    Internal,
}
