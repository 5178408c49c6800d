//! What there is of pods and containers: the records of the database and of memory. What Kubernetes says of them is [`vmspec`]'s.
//!
//! Generated CRI types are turned into these at [`crate::api::cri`] and never come further. What CRI wants echoed back
//! verbatim (labels, annotations, mounts, namespace options) is kept as it came.

pub mod domain;
pub mod span;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use common::now_nanos;
use proto::pause::Pause;
use proto::tap::{MacAddr, PodId, PodNet, ProcessId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vmspec::plan::MachinePlan;
use vmspec::{Applied, ContainerConfig, ContainerId, SandboxConfig};

/// Version of a sandbox's record on disk.
pub const SANDBOX_VERSION: u32 = 1;

/// Version of a container's record on disk. Version 1 had no id of the machine: it was the container's. Up to version 2 there
/// was no plan of the machine, but some of its fields. Up to version 3 no plan had a share: an earlier release would start such a machine
/// without its volumes. Up to version 4 none had disks beside the root disk. Up to version 5 no root disk was a volume, and nothing was
/// passed through: an earlier release would start such a machine from a fresh disk, or without its devices. Up to version 6 no disk was an
/// image, or of a flexvolume. Up to version 7 no mount had options: an earlier release would have the guest mount a volume without them. Up to
/// version 8 no disk was in a volume that kubelet mounts: an earlier release would boot from a fresh disk.
pub const CONTAINER_VERSION: u32 = 9;

/// A pod sandbox: a network, and a place for one machine at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// [`SANDBOX_VERSION`].
    pub version: u32,
    pub id: PodId,
    /// Where it stands.
    pub state: SandboxState,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// As kubelet wants it.
    pub config: SandboxConfig,
    /// Its network, once it has one.
    pub net: Option<PodNet>,
    /// Boot of the node that its network was made in; empty in records of releases that did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
}

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// Intent: its network is being made. Found after a crash, it is undone.
    Creating,
    /// Has its network.
    Ready,
    /// Stopped, or its network was lost.
    NotReady,
}

/// A container: one virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// [`CONTAINER_VERSION`].
    pub version: u32,
    pub id: ContainerId,
    pub sandbox: PodId,
    /// As kubelet wants it.
    pub config: ContainerConfig,
    /// Id of the image, `sha256:...`.
    pub image_id: String,
    /// Runtime handler that the image was pulled for. Empty in records of a time when there was but one.
    #[serde(default)]
    pub image_handler: String,
    /// What the machine is made of.
    pub machine: MachinePlan,
    /// The pod's annotations when the container was made; the seed is assembled from them at the start.
    pub machine_annotations: BTreeMap<String, String>,
    /// Where it stands.
    pub state: ContainerState,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// Nanoseconds since the epoch; 0 until then.
    pub started_at: i64,
    /// What its running machine has been given since; `None` is what it was planned with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// Boot of the node that its machine was started in; empty until then, and in records of the first release.
    #[serde(default)]
    pub boot: String,
    /// The process of its machine, as tapmanager saw it take the pod's NICs. `None` until then, in records of earlier releases, and
    /// where tapmanager did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// How many processes in its pod's cgroup the kernel had killed for want of memory when its machine was started, if it has a
    /// scope.
    #[serde(default)]
    pub pod_oom_kills: u64,
    /// How it ended, once it has.
    pub exit: Option<Exit>,
    /// The checkpoint that is made of its machine. Noted before the guest is paused for that: whoever finds it lets the guest go on, and
    /// removes what is there. A release that does not know it shows such a guest as paused, and a person lets it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointNote>,
    /// The checkpoint that its guest is to go on from, until it has its NICs again. A release that does not know it boots the machine from its
    /// disk, as that was at the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreNote>,
    /// What its pod has to do with warm starts, if its guest waits at the gate for us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Warm>,
    /// Why its running machine is paused, if it is. Not on disk: libvirt knows.
    #[serde(skip)]
    pub pause: Option<Pause>,
}

/// A checkpoint that is being made, or of which something is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointNote {
    /// The directory that the caller has named.
    pub dir: PathBuf,
    /// What is there is of this checkpoint if it has this name in it.
    pub id: Uuid,
    /// Whether the guest is known to go on. Then files are all that may be left.
    #[serde(default)]
    pub goes_on: bool,
}

/// A checkpoint that a guest is to go on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreNote {
    /// The directory that it came from, for people: all of it is in the pod's folder.
    pub dir: PathBuf,
    /// Whether it was another pod's: the guest is another machine from now on.
    pub is_clone: bool,
    /// MAC addresses by which the guest knows NICs, each with the one that it has to learn as its network has given that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learns: Vec<(MacAddr, MacAddr)>,
    /// Whether the guest waits at the gate there, and so has nothing of that pod.
    #[serde(default)]
    pub is_warm: bool,
}

/// What a pod has to do with warm starts. Of each the guest waits at the gate, as its machine tells it to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warm {
    /// It leaves a checkpoint there, of this name, and has its seed afterwards.
    Leaves(String),
    /// It has begun with the checkpoint of this name.
    Begins(String),
}

/// Where a container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Intent: being started.
    Starting,
    /// Its machine runs.
    Running,
    /// It was being started, and whether its machine is there is not known. On disk it is the intent still.
    #[serde(rename = "starting", skip_deserializing)]
    Uncertain,
    /// Its machine has ended.
    Exited,
}

impl ContainerState {
    /// Whether there may be a machine of it that runs.
    #[must_use]
    pub const fn may_run(self) -> bool {
        match self {
            Self::Starting | Self::Running | Self::Uncertain => true,
            Self::Created | Self::Exited => false,
        }
    }
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 0 is success.
    pub code: i32,
    /// One word for programs.
    pub reason: ExitReason,
    /// A sentence for people; may be empty.
    pub message: String,
    /// Nanoseconds since the epoch.
    pub finished_at: i64,
}

/// Why a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// The guest powered off.
    Completed,
    /// Destroyed at the deadline of a stop.
    Error,
    /// The guest's kernel panicked.
    GuestPanicked,
    QemuDied,
    /// The kernel killed QEMU for want of memory.
    #[serde(rename = "OOMKilled")]
    OomKilled,
    /// virtiofsd ended under a machine that ran.
    VirtiofsdDied,
    /// Could not be started.
    StartError,
    /// Ended while the node was down.
    NodeRebooted,
    /// Ended in a way nobody saw.
    Unknown,
}

// === impl Sandbox ===

impl Sandbox {
    /// What kubelet's retries agree on: two sandboxes of one key are one.
    #[must_use]
    pub fn key(&self) -> (&str, &str, &str, u32) {
        self.config.key()
    }

    /// The addresses that it is known by, while it is ready: at most one of each family.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let net = self.net.as_ref().filter(|_| self.state == SandboxState::Ready);
        net.map(PodNet::addresses).unwrap_or_default()
    }
}

// === impl Container ===

impl Container {
    /// What its machine has, or boots with.
    #[must_use]
    pub fn applied(&self) -> Applied {
        let (cpus, memory) = (self.machine.cpus, self.machine.memory);
        self.applied.unwrap_or(Applied { vcpus: cpus.boot, memory: memory.boot })
    }

    /// Whether its guest may be paused for a checkpoint, which is nobody else's affair.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|note| !note.goes_on)
    }

    /// Absolute path of the log, if it has one.
    #[must_use]
    pub fn log_path(&self, sandbox: &SandboxConfig) -> Option<PathBuf> {
        if sandbox.log_directory.is_empty() || self.config.log_path.is_empty() {
            return None;
        }
        Some(PathBuf::from(&sandbox.log_directory).join(&self.config.log_path))
    }
}

// === impl ExitReason ===

impl ExitReason {
    /// As CRI shows it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Error => "Error",
            Self::GuestPanicked => "GuestPanicked",
            Self::QemuDied => "QemuDied",
            Self::OomKilled => "OOMKilled",
            Self::VirtiofsdDied => "VirtiofsdDied",
            Self::StartError => "StartError",
            Self::NodeRebooted => "NodeRebooted",
            Self::Unknown => "Unknown",
        }
    }

    /// The exit code that goes with it (kubelet only asks whether it is zero).
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Completed => 0,
            Self::StartError => 128,
            Self::VirtiofsdDied => 133,
            Self::GuestPanicked => 134,
            Self::Error | Self::OomKilled | Self::NodeRebooted => 137,
            Self::QemuDied | Self::Unknown => 255,
        }
    }
}

impl Exit {
    /// An end at this moment.
    #[must_use]
    pub fn now(reason: ExitReason, message: impl Into<String>) -> Self {
        Self { code: reason.code(), reason, message: message.into(), finished_at: now_nanos() }
    }
}

/// A pod, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodName {
    /// UID; may be empty.
    pub uid: String,
    /// Namespace; may be empty.
    pub namespace: String,
    /// Name; may be empty.
    pub name: String,
}

impl PodName {
    /// The pod of a sandbox.
    #[must_use]
    pub fn of(sandbox: &Sandbox) -> Self {
        let config = &sandbox.config;
        Self { uid: config.uid.clone(), namespace: config.namespace.clone(), name: config.name.clone() }
    }
}
