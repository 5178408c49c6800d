//! What all containers share: settings, records, and the ways to libvirt, tapmanager, images and disks.

use proto::tap::QemuUser;
use uuid::Uuid;

use crate::accelerator::Accelerator;
use crate::blocking;
use crate::config::Config;
use crate::console::hub::{self, Hub};
use crate::console::watch::Watcher;
use crate::error::{Chain, Result};
use crate::hypervisor::Hypervisor;
use crate::images::Images;
use crate::model::Container;
use crate::store::Store;
use crate::tap::Tap;
use crate::volumes::Volumes;

/// The parts.
#[derive(Debug)]
pub struct Parts {
    /// Settings.
    pub config: Config,
    /// Records.
    pub store: Store,
    /// libvirt.
    pub hypervisor: Hypervisor,
    /// The pods' networks.
    pub tap: Tap,
    /// Images.
    pub images: Images,
    /// Disks.
    pub volumes: Volumes,
    /// Console logs.
    pub watcher: Watcher,
    /// Attached clients.
    pub hub: Hub,
    /// Accelerator of new machines.
    pub accel: Accelerator,
    /// Marks the machines of this state directory, so that another controld's are left alone.
    pub instance: Uuid,
    /// Whether the node was restarted since the last controld ran.
    pub node_rebooted: bool,
}

impl Parts {
    /// Who QEMU runs as.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn qemu_user(&self) -> Result<QemuUser> {
        self.hypervisor.qemu_user().await
    }

    /// Directory of a container's console.
    #[must_use]
    pub fn console_dir(&self, container: &Container) -> std::path::PathBuf {
        self.config.state_dir.join("console").join(container.id.to_string())
    }

    /// The socket that QEMU's serial port listens on.
    #[must_use]
    pub fn console_socket(&self, id: crate::model::ContainerId) -> std::path::PathBuf {
        hub::console_dir(&self.config).join(format!("{id}.sock"))
    }

    /// Gives up the disks of a pod, and its hold on the image, unless a sandbox or container still needs them.
    pub async fn drop_disks_unless_used(&self, pod_uid: &str) {
        let of_pod = |sandbox: &crate::model::Sandbox| sandbox.config.uid == pod_uid;
        let used =
            self.store.sandboxes().iter().filter(|s| of_pod(s)).any(|s| !self.store.containers_of(&s.id).is_empty());
        if !used {
            self.drop_disks(pod_uid).await;
        }
    }

    /// Gives up the disks of a pod, and its hold on the image.
    pub async fn drop_disks(&self, pod_uid: &str) {
        let (volumes, uid) = (self.volumes.clone(), pod_uid.to_owned());
        // Freeing gigabytes takes a file system its time.
        if let Err(error) = blocking::run(move || volumes.remove(&uid)).await {
            tracing::error!(uid = pod_uid, error = %Chain(&error), "disks of a pod that is gone not removed");
            return;
        }
        if let Err(error) = self.images.release(pod_uid).await {
            tracing::error!(uid = pod_uid, error = %Chain(&error), "hold on an image not released");
        }
    }
}
