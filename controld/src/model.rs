//! What a pod and a container are, in this crate's own words: the records of the database and of memory.
//!
//! Generated CRI types are turned into these at [`crate::api::cri`] and never come further. What CRI wants echoed back
//! verbatim (labels, annotations, mounts, namespace options) is kept as it came.

pub mod annotations;
pub mod domain;
pub mod error;
pub mod flexvolume;
pub mod ids;
pub mod plan;
mod resources;
pub mod seed;
pub mod seed_kind;
pub mod span;
pub(crate) mod words;
pub(crate) mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use common::now_nanos;
use proto::pause::Pause;
use proto::tap::{Dns, HostPort, PodId, PodNet};
use serde::{Deserialize, Serialize};

pub use self::ids::{ContainerId, MachineId};
use self::plan::MachinePlan;
pub use self::resources::{HugePages, Resources};

/// Version of a sandbox's record on disk.
pub const SANDBOX_VERSION: u32 = 1;

/// Version of a container's record on disk. Version 1 had no id of the machine: it was the container's. Up to version 2 there
/// was no plan of the machine, but some of its fields. Up to version 3 no plan had a share: an earlier release would start such a machine
/// without its volumes. Up to version 4 none had disks beside the root disk. Up to version 5 no root disk was a volume, and nothing was
/// passed through: an earlier release would start such a machine from a fresh disk, or without its devices. Up to version 6 no disk was an
/// image, or of a flexvolume.
pub const CONTAINER_VERSION: u32 = 7;

/// kubelet's annotation of a container, see its `newContainerAnnotations`.
pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";

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

/// What kubelet says of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxConfig {
    /// Pod name.
    pub name: String,
    /// Pod UID.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// How many sandboxes this pod had before.
    pub attempt: u32,
    /// Host name; may be empty.
    pub hostname: String,
    /// Directory of the containers' logs; may be empty.
    pub log_directory: String,
    /// Resolver settings, if kubelet gave any.
    pub dns: Option<Dns>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Runtime handler; empty is the default one.
    pub runtime_handler: String,
    /// Namespace options, echoed.
    pub namespaces: NamespaceOptions,
    /// Ports of the node that lead to the pod.
    #[serde(default)]
    pub host_ports: Vec<HostPort>,
    /// Settings of the pod's network namespace.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// The pod's cgroup; may be empty.
    #[serde(default)]
    pub cgroup_parent: String,
    /// The pod's CPU limit, rounded up; `None` without one.
    #[serde(default)]
    pub cpus: Option<u16>,
    /// Memory that the pod has beside its containers' limits, in bytes; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_overhead: Option<u64>,
}

/// CRI's numbers of `NamespaceMode`, echoed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceOptions {
    pub network: i32,
    /// Process ids.
    pub pid: i32,
    pub ipc: i32,
    /// Container whose namespaces are meant by mode TARGET.
    pub target_id: String,
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
    /// How many processes in its pod's cgroup the kernel had killed for want of memory when its machine was started, if it has a
    /// scope.
    #[serde(default)]
    pub pod_oom_kills: u64,
    /// How it ended, once it has.
    pub exit: Option<Exit>,
    /// Why its running machine is paused, if it is. Not on disk: libvirt knows.
    #[serde(skip)]
    pub pause: Option<Pause>,
}

/// What a machine has of what it can be given while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Virtual CPUs.
    pub vcpus: u16,
    /// Guest memory in bytes.
    pub memory: u64,
}

/// What kubelet says of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerConfig {
    /// Name within the pod.
    pub name: String,
    /// How many times it was started before.
    pub attempt: u32,
    /// Image as named in the request.
    pub image: String,
    /// Image as the user wrote it; may be empty.
    pub user_image: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Mounts, as they came. The plan has those that the guest sees.
    pub mounts: Vec<Mount>,
    /// Log file under the sandbox's log directory; may be empty.
    pub log_path: String,
    /// Whether attach may send input.
    pub stdin: bool,
    /// Whether the first attached client's end of input is the input's end.
    pub stdin_once: bool,
    /// Whether the console is a terminal to its clients.
    pub tty: bool,
    /// Resources, as they were asked for last and are in force.
    pub resources: Option<Resources>,
    #[serde(default, skip_serializing_if = "ProcessConfig::is_empty")]
    pub process: ProcessConfig,
    /// Device nodes that it was given. The plan has what became of them.
    #[serde(skip)]
    pub devices: Vec<Device>,
    /// Names of CDI devices that it was given. The plan has what became of them, but for their variables.
    #[serde(skip)]
    pub cdi: Vec<String>,
    /// What it would run if it were a process. The plan has it, if the machine is for that.
    #[serde(skip)]
    pub command: CommandConfig,
}

/// A container's own command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandConfig {
    /// Program and arguments; empty if the pod leaves it to the image.
    pub argv: Vec<String>,
    pub read_only_root: bool,
}

/// How commands are started in the guest; the guest itself is told nothing of it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// Variables as `NAME=value`.
    pub env: Vec<String>,
    /// The user's home if empty.
    pub working_dir: String,
    /// As `user`, `uid`, `uid:gid`; root if empty.
    pub user: String,
    /// Groups beside the user's own.
    #[serde(default)]
    pub groups: Vec<u32>,
}

impl ProcessConfig {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Variables come from secrets, too.
impl std::fmt::Debug for ProcessConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { env, working_dir, user, groups } = self;
        let variables = env.len();
        f.debug_struct("ProcessConfig")
            .field("variables", &variables)
            .field("working_dir", working_dir)
            .field("user", user)
            .field("groups", groups)
            .finish()
    }
}

impl MountImage {
    /// The image's name as the user wrote it; as in the request, if kubelet does not tell that.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.user_image.is_empty() { &self.image } else { &self.user_image }
    }
}

impl ContainerConfig {
    /// The image's name as the user wrote it; as in the request, if kubelet does not tell that.
    #[must_use]
    pub fn image_name(&self) -> &str {
        if self.user_image.is_empty() { &self.image } else { &self.user_image }
    }

    /// Where the termination message is in the container, as kubelet tells by an annotation.
    #[must_use]
    pub fn termination_path(&self) -> &str {
        self.annotations.get(TERMINATION_PATH).map_or("/dev/termination-log", String::as_str)
    }
}

/// A mount, echoed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub container_path: String,
    /// Path on the node.
    pub host_path: String,
    /// Read-only.
    pub readonly: bool,
    /// And all that is mounted below it on the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recursive_read_only: bool,
    pub selinux_relabel: bool,
    /// CRI's number of `MountPropagation`.
    pub propagation: i32,
    /// The image that it is of, in place of a path on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<MountImage>,
}

/// An image that is a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountImage {
    /// As named in the request.
    pub image: String,
    /// As the user wrote it; may be empty.
    pub user_image: String,
}

/// A device node of the node, and the path at which the container is to have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// On the node; of a block volume, kubelet's link to it.
    pub host_path: String,
    pub container_path: String,
    pub read_only: bool,
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
}

impl SandboxConfig {
    /// See [`Sandbox::key`].
    #[must_use]
    pub fn key(&self) -> (&str, &str, &str, u32) {
        (&self.namespace, &self.name, &self.uid, self.attempt)
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

/// What runs a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The host's CPU.
    Kvm,
    /// QEMU's own (TCG).
    Qemu,
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

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
        })
    }
}

impl PodName {
    /// The pod of a sandbox.
    #[must_use]
    pub fn of(sandbox: &Sandbox) -> Self {
        let config = &sandbox.config;
        Self { uid: config.uid.clone(), namespace: config.namespace.clone(), name: config.name.clone() }
    }
}
