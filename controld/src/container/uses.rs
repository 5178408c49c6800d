//! What all containers share: settings, records, and the ways to libvirt, tapmanager, images and disks.

use std::sync::Arc;

use common::watch::Watcher;
use proto::tap::QemuUser;

use crate::config::Config;
use crate::container::console::hub::{self, Hub};
use crate::hypervisor::Hypervisor;
use crate::hypervisor::accelerator::AcceleratorChoice;
use crate::images::Images;
use crate::model::Container;
use crate::model::error::Result;
use crate::orphans::Orphans;
use crate::orphans::instance::Instance;
use crate::store::Store;
use crate::store::boot::Boot;
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
    /// AcceleratorChoice of new machines.
    pub accel: AcceleratorChoice,
    /// Marks what this state directory's controld makes, so that another's is left alone.
    pub instance: Arc<Instance>,
    /// What is on no record, and whose disks are.
    pub orphans: Orphans,
    /// The boot of the node that we are in.
    pub boot: Boot,
}

impl Parts {
    /// Who QEMU runs as, who may open the files of images from here on.
    ///
    /// # Errors
    /// When libvirt does not answer, or the images cannot be opened to QEMU.
    pub async fn qemu_user(&self) -> Result<QemuUser> {
        let user = self.hypervisor.qemu_user().await?;
        self.images.serve_to(user.gid).await?;
        Ok(user)
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

    /// The socket that the guest's agent is spoken to through, by libvirt.
    #[must_use]
    pub fn agent_socket(&self, id: crate::model::ContainerId) -> std::path::PathBuf {
        hub::console_dir(&self.config).join(format!("{id}.agent"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// All there is of a node below `dir`, whose libvirt does not answer.
    pub(crate) async fn parts(dir: &Path) -> Parts {
        let mut config = Config { run_dir: dir.join("run"), state_dir: dir.join("state"), ..Config::default() };
        config.libvirt_uri = format!("qemu+unix:///system?socket={}", dir.join("no.sock").display());
        config.streaming.address = "127.0.0.1:0".parse().expect("address");
        for made in [config.state_dir.join("console"), config.run_dir.clone()] {
            std::fs::create_dir_all(made).expect("made");
        }
        let store = Store::open(&config.state_dir.join("meta.redb")).expect("opened");
        let (hypervisor, _events) = Hypervisor::connect(&config.libvirt_uri, Duration::from_secs(1));
        let tap = Tap::new(config.tap_socket(), Duration::from_secs(30));
        let images = Images::open(&config).expect("opened");
        let volumes = Volumes::open(config.state_dir.join("volumes")).expect("opened");
        let instance = Arc::new(Instance::begin(&config.state_dir, &store, &[]).await.expect("begun"));
        let ways = (store.clone(), hypervisor.clone(), tap.clone());
        let orphans = Orphans::new(&config, ways, (images.clone(), volumes.clone()), instance.clone());
        Parts {
            tap,
            hypervisor,
            images,
            volumes,
            watcher: Watcher::start().expect("inotify"),
            hub: Hub::bind(&config).await.expect("bound"),
            accel: AcceleratorChoice::new(&config, store.clone()),
            instance,
            orphans,
            boot: Boot::of_node(&store).await.expect("known"),
            store,
            config,
        }
    }
}
