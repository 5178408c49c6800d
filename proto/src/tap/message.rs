//! The messages of the tap protocol. What each field means is said here and nowhere else.

use serde::{Deserialize, Serialize};

use super::{MacAddr, NetnsName, OLDEST, PciAddress, PodId, Token, VERSION};

mod handoff;
mod pod;
mod report;
mod vf;

pub use pod::{
    Attach, Bandwidth, DataPath, DataPathError, DhcpOptions, Dns, HostPort, NetworkAsk, Nic, NicKind, PodNet,
    PortProtocol, Route, Tap, Vfio,
};
pub use report::{
    CheckReport, CollectReport, List, NicStats, PodDetail, PodPage, PodPhase, PodStats, PodSummary, ServerStatus,
    StatsPage,
};
pub use vf::{PfSummary, VfClaim, VfDetail, VfHolder, VfPage, VfRequest, VfStep, VfSummary};

/// A message, and the first version of the protocol in which it can be said.
///
/// A packet is of that version, and not of the newest that its sender speaks: so two releases understand each other in
/// all that both know, and only that.
pub trait Versioned {
    /// The version.
    fn since(&self) -> u16;
}

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
    /// Takes away, on a person's word, what no record that is understood tells of. Answered by [`Reply::Collected`].
    Forget(Forget),
    /// Asks for [`Reply::Status`].
    Status,
    /// Asks which process took the pod's descriptors last. Answered by [`Reply::Machine`].
    Machine {
        /// The pod.
        pod: PodId,
    },
    /// About virtual functions of the node.
    Vf(VfRequest),
}

impl Request {
    /// One word for it, for messages to people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Attach(_) => "attach",
            Self::Arm(_) => "arm",
            Self::Detach { .. } => "detach",
            Self::Recover { .. } => "recover",
            Self::Check { .. } => "check",
            Self::Inspect { .. } => "inspect",
            Self::List(_) => "list",
            Self::Stats(_) => "stats",
            Self::Collect => "collect",
            Self::Forget(_) => "forget",
            Self::Status => "status",
            Self::Machine { .. } => "machine",
            Self::Vf(VfRequest::List { .. }) => "sriov-list",
            Self::Vf(VfRequest::Explain { .. }) => "sriov-explain",
            Self::Vf(VfRequest::Claim(_)) => "sriov-claim",
            Self::Vf(VfRequest::Release { .. }) => "sriov-release",
            Self::Vf(VfRequest::Repair) => "sriov-repair",
        }
    }
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
        /// Of the pod's NICs, those that are passed through and that libvirt has to give to QEMU, as the hand-off cannot.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hostdevs: Vec<PciAddress>,
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
    /// What [`Request::Collect`], [`Request::Forget`], or giving back virtual functions did.
    Collected(CollectReport),
    /// One page of virtual functions.
    Vfs(VfPage),
    /// What is known of one.
    Vf(Box<VfDetail>),
    /// vmwrapper's process, which goes on as QEMU. `None` if nobody took the pod's descriptors since this daemon was started.
    Machine(Option<ProcessId>),
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

/// A process of the node. Its number is another's one day, and both together never are in one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessId {
    /// As the process namespace of the daemon that tells of it has it.
    pub pid: i32,
    /// When it was started, in clock ticks since the boot: `starttime` of proc_pid_stat(5).
    pub started: u64,
}

/// What is to be forgotten. Nothing that is on record and can be detached is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Forget {
    /// A pod whose record is not understood or lost, or whose networks cannot be given back.
    Pod(PodId),
    /// A namespace whose owner is unknown, by the name of its file, as [`Reply::Collected`] has it.
    Namespace(NetnsName),
}

/// Names the pod of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The pod.
    pub pod: PodId,
    /// Who libvirt runs QEMU as, taken up as [`Hello::qemu`] is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<QemuUser>,
    /// Whether the machine's QEMU takes devices by their descriptors (`-object iommufd`, QEMU 9.0). Matters for NICs that
    /// are passed through, and is said for a pod that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommufd: Option<bool>,
}

/// The descriptors of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    /// In the order that the guest sees them.
    pub nics: Vec<HandoffNic>,
    /// Whether the first descriptor is one of `/dev/iommu`, for all NICs that come as the descriptor of their device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub iommufd: bool,
}

/// What QEMU must know of a NIC. One that is a tap is written as it was before there were others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "handoff::Form", into = "handoff::Form")]
pub enum HandoffNic {
    /// A tap.
    Tap(HandoffTap),
    /// A virtual function.
    Vfio {
        /// How it comes.
        vfio: HandoffVfio,
    },
}

/// How a virtual function comes to QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffVfio {
    /// As the descriptor of its device (`/dev/vfio/devices/vfioN`).
    Descriptor,
    /// By libvirt: it is in the domain.
    Hostdev,
}

/// What QEMU must know of a tap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffTap {
    /// The guest's MAC address.
    pub mac: MacAddr,
    /// MTU in bytes, for `host_mtu`.
    pub mtu: u32,
    /// How many of the descriptors are this NIC's queues, at least 1.
    pub queues: u16,
    /// How many descriptors of `/dev/vhost-net` follow the queues: none, or one for each queue.
    pub vhost: u16,
}

impl Handoff {
    /// How many descriptors come with it.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        usize::from(self.iommufd) + self.nics.iter().map(HandoffNic::descriptors).sum::<usize>()
    }
}

impl HandoffNic {
    /// How many of the descriptors are its own.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Tap(tap) => usize::from(tap.queues) + usize::from(tap.vhost),
            Self::Vfio { vfio: HandoffVfio::Descriptor } => 1,
            Self::Vfio { vfio: HandoffVfio::Hostdev } => 0,
        }
    }
}

// === impl Versioned ===

/// Before 4, every NIC was a tap.
const VFIO: u16 = 4;
/// Before 5, nobody was told whom descriptors were handed to.
const MACHINE: u16 = 5;
const _: () = assert!(VFIO < MACHINE && MACHINE <= VERSION);

impl Versioned for Request {
    fn since(&self) -> u16 {
        match self {
            Self::Arm(Arm { iommufd: Some(_), .. }) | Self::Vf(_) => VFIO,
            Self::Machine { .. } => MACHINE,
            _ => OLDEST,
        }
    }
}

impl Versioned for Reply {
    fn since(&self) -> u16 {
        let of_net = |net: &PodNet| if net.vfio().next().is_some() { VFIO } else { OLDEST };
        match self {
            Self::Attached(net) => of_net(net),
            Self::Pod(pod) => pod.net.as_ref().map_or(OLDEST, of_net),
            Self::Armed { hostdevs, .. } if !hostdevs.is_empty() => VFIO,
            Self::Vfs(_) | Self::Vf(_) => VFIO,
            Self::Machine(_) => MACHINE,
            _ => OLDEST,
        }
    }
}

impl Versioned for HandoffRequest {
    fn since(&self) -> u16 {
        OLDEST
    }
}

impl Versioned for HandoffReply {
    fn since(&self) -> u16 {
        let Self::Nics(Handoff { nics, iommufd }) = self;
        let all_taps = nics.iter().all(|nic| matches!(nic, HandoffNic::Tap(_)));
        if all_taps && !iommufd { OLDEST } else { VFIO }
    }
}

/// Of a reply that is an error, whatever was asked.
impl Versioned for () {
    fn since(&self) -> u16 {
        OLDEST
    }
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
