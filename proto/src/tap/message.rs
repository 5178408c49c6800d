//! The messages of the tap protocol. What each field means is said here and nowhere else.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::{IfName, MacAddr, PodId, Token};

/// What `controld` asks of `tapmanager`.
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
    /// Lists pods in the order of their ids. Answered by [`Reply::Pods`].
    List(List),
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
    /// One page of pods.
    Pods(PodPage),
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
    /// The pod's NICs. The descriptors beside the packet are their queues, NIC by NIC.
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
    /// How many of the descriptors are this NIC's, at least 1.
    pub queues: u16,
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
