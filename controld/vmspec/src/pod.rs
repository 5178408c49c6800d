//! What kubelet says of a pod and of a container, in words of our own. Whoever hears it in others (CRI, a manifest) turns it into these.

use std::collections::BTreeMap;

use proto::agent::Start;
use proto::tap::{Dns, HostPort};
use serde::{Deserialize, Serialize};

use crate::{MountOptions, Resources};

/// kubelet's annotation of a container, see its `newContainerAnnotations`.
pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";

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

    /// A command as it is to be started.
    #[must_use]
    pub fn start(&self, argv: Vec<String>) -> Start {
        let Self { env, working_dir, user, groups } = self.clone();
        Start { argv, env, cwd: working_dir, user, groups, ..Start::default() }
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
    /// What is to hold where it is mounted.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub options: MountOptions,
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

impl SandboxConfig {
    /// See [`Sandbox::key`].
    #[must_use]
    pub fn key(&self) -> (&str, &str, &str, u32) {
        (&self.namespace, &self.name, &self.uid, self.attempt)
    }
}
