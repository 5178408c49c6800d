//! Whether a pod could be given the node's default network now.
//!
//! Called by the daemon, whenever kubelet asks for the node's state. What plugins answer to STATUS is remembered
//! ([`super::ready`]), and they are asked again behind the answer.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Map;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::ask::Negotiation;
use super::ready::{CachedStatus, PATIENCE};
use super::{Cni, CniError, Command, ConfError, NetworkList, Ready, Unready, plugin};
use crate::blocking::off_reactor;

impl Cni {
    /// Whether a pod could be given the default network now, as its plugins last said. Reads files if they changed, and
    /// waits for plugins only where there is nothing to go by, and not for long.
    pub(crate) async fn ready(self: &Arc<Self>) -> Ready {
        if self.spawner.is_gone() {
            return Ready::no(Unready::NoSpawner);
        }
        let network = match self.default_as_it_is().await {
            Ok(network) => network,
            Err(error) => return Ready::no(Unready::Conf(Arc::new(error))),
        };
        let mut answers = self.ready.answers();
        match self.ready.look(&network, Instant::now()) {
            CachedStatus::Fresh(ready) => return ready,
            CachedStatus::Stale(ready) => {
                self.ask_behind();
                return ready;
            }
            CachedStatus::Missing => self.ask_behind(),
        }
        // Both ends of it are this runtime's; an answer that is late is for the next question.
        let _ = timeout(PATIENCE, answers.changed()).await;
        self.known()
    }

    /// [`Self::ready`] without asking anybody anything.
    pub(crate) fn known(&self) -> Ready {
        self.ready.known(Instant::now())
    }

    fn ask_behind(self: &Arc<Self>) {
        self.ready.ask(Instant::now(), |network| {
            let cni = Arc::clone(self);
            AbortOnDropHandle::new(tokio::spawn(async move {
                let outcome = cni.status(&network).await;
                cni.ready.answered(&network, outcome);
            }))
        });
    }

    /// The default network, without a thread for it if no file has changed.
    async fn default_as_it_is(self: &Arc<Self>) -> Result<NetworkList, ConfError> {
        let quiet = self.conf.try_lock().ok().and_then(|mut conf| Some((conf.unchanged()?, conf.dir().to_owned())));
        match quiet {
            Some((networks, dir)) => networks.default_network(&dir),
            None => {
                let cni = Arc::clone(self);
                off_reactor(move || cni.default_network()).await
            }
        }
    }

    /// Asks whether a pod could be given the network now: its plugins are installed, and those that can be asked say so.
    pub(crate) async fn status(&self, list: &NetworkList) -> Result<(), CniError> {
        self.installed(list)?;
        let version = self.version_for(list, Negotiation::New).await?;
        if !version.has_status_and_gc() {
            return Ok(());
        }
        let env = self.plain_environment()?;
        for (place, plugin) in list.plugins().iter().enumerate() {
            let conf = plugin::request(plugin, list.name(), version, &Map::new(), None);
            let answer = self.ask(Command::Status, plugin, &env, &conf).await;
            answer.map_err(|cause| CniError::plugin(list, place, Command::Status, cause))?;
        }
        Ok(())
    }

    /// Whether all plugins of the network are installed, in a way that they are started. Runs none of them.
    pub(crate) fn installed(&self, list: &NetworkList) -> Result<(), CniError> {
        for (place, kind) in list.kinds().enumerate() {
            let installed = plugin::is_installed(kind, &self.plugin_dirs, &self.allowed);
            installed.map_err(|cause| CniError::plugin(list, place, Command::Add, cause))?;
        }
        Ok(())
    }
}
