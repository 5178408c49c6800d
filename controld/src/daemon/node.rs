//! Opens what the services of a node use, and gives each service its own of it.

use std::sync::Arc;

use common::Chain;
use common::watch::Watcher;
use tokio::sync::broadcast::Receiver;

use super::metrics;
use crate::api::cri::runtime;
use crate::api::sessions::Sessions;
use crate::config::Config;
use crate::container::Reboots;
use crate::guest::agents::{self, Agents};
use crate::guest::console::hub::Consoles;
use crate::guest::share::Shares;
use crate::hypervisor::accelerator::AcceleratorChoice;
use crate::hypervisor::cgroup::Cgroups;
use crate::hypervisor::emulator::Emulator;
use crate::hypervisor::process::Processes;
use crate::hypervisor::{HvEvent, Hypervisor};
use crate::images::Images;
use crate::orphans::instance::Instance;
use crate::orphans::{self, Orphans};
use crate::store::Store;
use crate::store::boot::Boot;
use crate::tap::Tap;
use crate::volumes::Volumes;
use crate::{container, disks, sandbox};

/// What is open, once for all services.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Store,
    pub(crate) hypervisor: Hypervisor,
    pub(crate) tap: Tap,
    pub(crate) images: Images,
    pub(crate) accel: AcceleratorChoice,
    pub(crate) orphans: Orphans,
    emulator: Emulator,
    pub(crate) agents: Arc<Agents>,
    pub(crate) consoles: Arc<Consoles>,
    reboots: Arc<Reboots>,
    checkpoints: container::Tally,
    instance: Arc<Instance>,
    volumes: Volumes,
    watcher: Watcher,
    boot: Boot,
    cgroups: Option<Cgroups>,
}

impl Node {
    /// Opens database, volumes and image store, and begins to connect to libvirt, whose events come with the node. `comes_to` hears
    /// what is opened next.
    ///
    /// # Errors
    /// When the database, the image store or a file of the state directory cannot be opened.
    pub(crate) async fn open(
        config: Arc<Config>,
        comes_to: impl Fn(String),
    ) -> anyhow::Result<(Self, Receiver<HvEvent>)> {
        let database = super::database(&config);
        comes_to(format!("its database `{}`", database.display()));
        let store = Store::open(&database)?;
        for unread in store.unread() {
            tracing::error!(%unread, "record left alone");
        }
        comes_to(format!("the disks of pods below `{}`", config.state_dir.display()));
        let volumes = Volumes::open(super::volumes_dir(&config))?;
        volumes.refuse_newer()?;
        let owners: Vec<_> = volumes.look()?.into_iter().filter_map(|found| found.owner.ok().flatten()).collect();
        let instance = Arc::new(Instance::begin(&config.state_dir, &store, &owners).await?);
        if let Some(doubt) = instance.doubt() {
            tracing::error!(doubt, "records may be missing; nothing that is on no record is removed");
        }
        let boot = Boot::of_node(&store).await?;
        comes_to(format!("its image store `{}`", config.images_dir().display()));
        let images = Images::open(&config)?;
        let (hypervisor, events) = Hypervisor::connect(&config.libvirt_uri, config.machine.start_deadline);
        let tap = Tap::new(config.tap_socket(), config.tap_deadline);
        let orphans = Orphans::new(orphans::Uses {
            config: config.clone(),
            store: store.clone(),
            hypervisor: hypervisor.clone(),
            tap: tap.clone(),
            images: images.clone(),
            volumes: volumes.clone(),
            instance: instance.clone(),
        });
        let accel = AcceleratorChoice::new(&config, store.clone());
        let watcher = Watcher::start();
        let cgroups = Cgroups::find().inspect_err(|error| {
            tracing::error!(error = %Chain(error), "no limits for machines: they stay in libvirt's cgroups, or in none");
        });
        let cgroups = cgroups.ok();
        let emulator = Emulator::new(config.emulator.clone());
        let agents = Arc::new(Agents::new(agents::dir(&config)).noting(store.moments().clone()));
        let consoles = Arc::new(Consoles::new(&config));
        let node = Self {
            config,
            store,
            hypervisor,
            tap,
            images,
            accel,
            orphans,
            emulator,
            agents,
            consoles,
            reboots: Arc::default(),
            checkpoints: container::Tally::default(),
            instance,
            volumes,
            watcher,
            boot,
            cgroups,
        };
        Ok((node, events))
    }

    pub(crate) fn for_containers(&self) -> Arc<container::Uses> {
        let processes = Arc::new(Processes::default());
        let shares = Shares::new(self.config.clone(), self.store.clone(), self.hypervisor.clone(), processes.clone());
        Arc::new(container::Uses {
            config: self.config.clone(),
            store: self.store.clone(),
            hypervisor: self.hypervisor.clone(),
            tap: self.tap.clone(),
            images: self.images.clone(),
            volumes: self.volumes.clone(),
            watcher: self.watcher.clone(),
            accel: self.accel.clone(),
            orphans: self.orphans.clone(),
            agents: self.agents.clone(),
            consoles: self.consoles.clone(),
            reboots: self.reboots.clone(),
            processes,
            shares: Arc::new(shares),
            checkpoints: container::Checkpoints::new(self.checkpoints.clone()),
            disks: Arc::new(disks::Uses::new(
                self.store.clone(),
                self.hypervisor.clone(),
                self.images.clone(),
                self.instance.id(),
            )),
            boot: self.boot.clone(),
            cgroups: self.cgroups.clone(),
            instance: self.instance.id(),
        })
    }

    pub(crate) fn for_sandboxes(&self) -> sandbox::Uses {
        sandbox::Uses {
            store: self.store.clone(),
            tap: self.tap.clone(),
            orphans: self.orphans.clone(),
            boot: self.boot.clone(),
            instance: self.instance.id(),
            config: self.config.clone(),
        }
    }

    pub(crate) fn for_calls(&self, sessions: Arc<Sessions>, version: &'static str) -> runtime::Uses {
        runtime::Uses {
            version,
            config: self.config.clone(),
            store: self.store.clone(),
            hypervisor: self.hypervisor.clone(),
            tap: self.tap.clone(),
            images: self.images.clone(),
            accel: self.accel.clone(),
            emulator: self.emulator.clone(),
            orphans: self.orphans.known().clone(),
            instance: self.instance.clone(),
            watcher: self.watcher.clone(),
            sessions,
        }
    }

    pub(crate) fn for_metrics(&self, version: &'static str) -> metrics::Sources {
        metrics::Sources {
            version,
            images: self.images.clone(),
            records: self.store.clone(),
            accel: self.accel.clone(),
            reboots: self.reboots.clone(),
            checkpoints: self.checkpoints.clone(),
            orphans: self.orphans.known().clone(),
            hypervisor: self.hypervisor.clone(),
            tap: self.tap.clone(),
            functions: metrics::Functions::default(),
            networks: metrics::Networks::default(),
            filesystems: metrics::FileSystems::new(self.config.images_dir(), self.config.state_dir.clone()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// A node below `dir`, whose libvirt does not answer.
    pub(crate) async fn node(dir: &Path) -> Node {
        let mut config = Config { run_dir: dir.join("run"), state_dir: dir.join("state"), ..Config::default() };
        config.libvirt_uri = format!("qemu+unix:///system?socket={}", dir.join("no.sock").display());
        for made in [config.state_dir.join("console"), config.run_dir.clone()] {
            std::fs::create_dir_all(made).expect("made");
        }
        let (node, _events) = Node::open(Arc::new(config), |_| {}).await.expect("opened");
        node
    }
}
