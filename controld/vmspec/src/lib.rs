//! What a pod's virtual machine is to be, from what Kubernetes says of the pod. Pure: nothing here asks a node, a cluster or libvirt, and
//! nothing is made.

#![forbid(unsafe_code)]

mod accelerator;
pub mod agent;
pub mod annotations;
pub mod draft;
pub mod error;
pub mod explain;
pub mod flexvolume;
pub mod host;
pub mod ids;
pub mod manifest;
mod mount_options;
mod offer;
pub mod plan;
mod pod;
pub mod pod_dir;
mod resources;
pub mod seed;
mod seed_kind;
pub mod settings;
mod words;
pub mod yaml;

pub use self::accelerator::Accelerator;
pub use self::ids::{ContainerId, MachineId};
pub use self::mount_options::MountOptions;
pub use self::offer::Offer;
pub use self::plan::Applied;
pub use self::pod::{
    CommandConfig, ContainerConfig, Device, Mount, MountImage, NamespaceOptions, ProcessConfig, SandboxConfig,
    TERMINATION_PATH,
};
pub use self::resources::{HugePages, Resources};
