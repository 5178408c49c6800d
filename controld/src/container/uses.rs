//! Handles that the container code shares: config, store, libvirt, tapmanager, images, cgroups.

use std::path::PathBuf;
use std::sync::Arc;

use common::watch::Watcher;
use proto::tap::QemuUser;
use uuid::Uuid;
use vmspec::annotations::PodAnnotations;
use vmspec::error::Result;
use vmspec::seed::Objects;
use vmspec::{MachineId, SandboxConfig};

use crate::config::Config;
use crate::container::places::Checkpoints;
use crate::container::reboots::Reboots;
use crate::disks;
use crate::guest::agents::Agents;
use crate::guest::console::hub::{self, Consoles};
use crate::guest::seed::api;
use crate::guest::share::Shares;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::accelerator::AcceleratorChoice;
use crate::hypervisor::cgroup::Cgroups;
use crate::hypervisor::process::Processes;
use crate::images::Images;
use crate::model::Container;
use crate::orphans::Orphans;
use crate::store::Store;
use crate::store::boot::Boot;
use crate::tap::Tap;
use crate::volumes::Volumes;

/// What containers use of the node.
#[derive(Debug)]
pub struct Uses {
    pub config: Arc<Config>,
    pub store: Store,
    pub hypervisor: Hypervisor,
    /// The pods' networks.
    pub tap: Tap,
    pub images: Images,
    pub volumes: Volumes,
    /// Tells when a machine has written to its console's log.
    pub watcher: Watcher,
    pub accel: AcceleratorChoice,
    pub orphans: Orphans,
    /// What runs commands in guests.
    pub agents: Arc<Agents>,
    /// What machines print.
    pub consoles: Arc<Consoles>,
    pub reboots: Arc<Reboots>,
    /// Which processes machines are.
    pub processes: Arc<Processes>,
    /// What shares volumes with guests.
    pub shares: Arc<Shares>,
    /// Who is at work in directories of checkpoints.
    pub checkpoints: Checkpoints,
    /// Disks beside those of `volumes`.
    pub disks: Arc<disks::Uses>,
    /// The boot of the node that controld runs in.
    pub boot: Boot,
    /// Where QEMUs run; `None` on a node without cgroups, where they stay as libvirt starts them.
    pub cgroups: Option<Cgroups>,
    /// This controld's mark, which its machines carry.
    pub instance: Uuid,
}

impl Uses {
    /// Who QEMU runs as, who may open the files of images from here on.
    ///
    /// # Errors
    /// When libvirt does not answer, or the images cannot be opened to QEMU.
    pub async fn qemu_user(&self) -> Result<QemuUser> {
        let user = self.hypervisor.qemu_user().await?;
        self.images.serve_to(user.gid).await?;
        Ok(user)
    }

    /// What a pod's annotations name of the cluster's API.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) async fn objects(&self, sandbox: &SandboxConfig, annotations: &PodAnnotations) -> Result<Objects> {
        api::read(self.config.seed_kubeconfig.as_deref(), &sandbox.namespace, annotations).await
    }

    /// Directory of the console of a container's machine.
    #[must_use]
    pub fn console_dir(&self, container: &Container) -> PathBuf {
        self.config.state_dir.join("console").join(container.machine.id.to_string())
    }

    /// What a machine's UEFI remembered that an earlier release started: later ones keep it with the pod's disks.
    #[must_use]
    pub fn earlier_uefi_variables(&self, id: MachineId) -> PathBuf {
        self.config.state_dir.join("nvram").join(format!("{id}.fd"))
    }

    /// The socket that QEMU's serial port listens on.
    #[must_use]
    pub fn console_socket(&self, id: MachineId) -> PathBuf {
        hub::console_dir(&self.config).join(format!("{id}.sock"))
    }
}
