//! CNI runtime: runs the plugins that give a pod its networks, and those that take them back.
//!
//! The pod's actor calls [`Cni::default_network`], [`Cni::network`] and [`Cni::add`] at Attach, [`Cni::del`] at Detach
//! and when an Attach is undone, and [`Cni::check`] on demand. The daemon calls [`Cni::ready`] for its readiness, and
//! [`Cni::gc`] to collect. A caller of `add` has to call `del`, whatever the result of `add`.
//!
//! The steps are those of the CNI specification 1.1.0, sections 3 and 4. [`conf`] finds and reads networks. [`ask`]
//! gives one command to one plugin, in the version that [`negotiate`] chooses. [`result`] reads the answer. [`cache`]
//! stores it where other runtimes look for it. [`turns`] has few plugins run at a time. [`status`] asks plugins whether they
//! are ready; [`failures`] says what that cannot tell.
//!
//! The journal has the network and the result of each ADD, so that DEL gets what ADD used even if files have changed or
//! the daemon was restarted in between; the cache is read if the journal has no result. Any number of pods may be
//! worked on at once. The caller makes sure that there is one command at a time for each pod.

mod ask;
mod cache;
mod capability;
mod collect;
mod conf;
mod device;
mod error;
mod exec;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod failures;
mod multus;
mod negotiate;
mod plugin;
mod ready;
mod result;
mod status;
mod survey;
mod turns;
mod version;

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::Chain;
use proto::tap::{IfName, PodId};
use serde_json::{Map, Value};
use tracing::warn;

use crate::blocking::off_reactor;
use crate::spawner::{Allowed, Spawner};

#[cfg(any(test, feature = "exercise"))]
pub use device::exercise as exercise_device;
#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;

pub(crate) use capability::{CapabilityArgs, settle_macs};
pub(crate) use collect::{Leftover, Writer};
pub(crate) use conf::NetworkList;
pub(crate) use conf::dir::{ConfError, Networks, read as read_network, read_named as read_network_named};
pub(crate) use device::{Device, Said};
pub(crate) use error::CniError;
pub(crate) use exec::Gate;
pub(crate) use multus::Delegated;
pub(crate) use plugin::{Command, PluginError};
pub(crate) use ready::{Ready, Unready};
pub(crate) use result::{ResultView, Route};
pub(crate) use survey::{Survey, plugin_in_trouble};

use ask::{Env, Negotiation};
use cache::{Cache, Entry, Key};
use conf::watch::ConfWatch;
use failures::Failures;
use negotiate::VersionCache;
use ready::StatusCache;
use turns::Turns;

/// Where things are on the node.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Network configurations.
    pub(crate) conf_dir: PathBuf,
    /// Plugins; the first directory that has one wins.
    pub(crate) plugin_dirs: Vec<PathBuf>,
    /// The result cache.
    pub(crate) cache_dir: PathBuf,
    /// Whose entries of it are ours.
    pub(crate) instance: String,
}

/// Runs the plugins of the node.
#[derive(Debug)]
pub(crate) struct Cni {
    conf: Mutex<ConfWatch>,
    plugin_dirs: Vec<PathBuf>,
    /// What the spawner starts.
    allowed: Allowed,
    cache: Cache,
    instance: String,
    /// For one command to one plugin.
    deadline: Duration,
    spawner: Spawner,
    turns: Turns,
    spoken: VersionCache,
    ready: StatusCache,
    failures: Failures,
    plugin_micros: AtomicU64,
}

/// What is joined to a network.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// The pod.
    pub(crate) container_id: &'a PodId,
    /// File of its namespace; empty if it is gone.
    pub(crate) netns: &'a Path,
    /// Name of the link to make in it.
    pub(crate) ifname: &'a IfName,
    /// For `CNI_ARGS`; `IgnoreUnknown=1` is added.
    pub(crate) args: Vec<(&'static str, String)>,
    /// For the plugins that declare them.
    pub(crate) capabilities: CapabilityArgs,
}

/// What ADD came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Added {
    /// The result of the last plugin as it wrote it: to be kept for [`Cni::del`] and [`Cni::check`].
    pub(crate) raw: Value,
    /// The same for reading.
    pub(crate) view: ResultView,
}

// === impl Cni ===

impl Cni {
    /// A runtime that gives each plugin `deadline` for each command, and has `at_once` work for pods at a time, or as many as
    /// fit this machine.
    pub(crate) fn new(places: Places, deadline: Duration, at_once: Option<u16>, spawner: Spawner) -> Self {
        Self {
            conf: Mutex::new(ConfWatch::new(places.conf_dir)),
            allowed: Allowed::new(&places.plugin_dirs),
            plugin_dirs: places.plugin_dirs,
            cache: Cache::new(places.cache_dir),
            instance: places.instance,
            deadline,
            spawner,
            turns: Turns::new(at_once),
            spoken: VersionCache::default(),
            ready: StatusCache::new(),
            failures: Failures::default(),
            plugin_micros: AtomicU64::new(0),
        }
    }

    /// The networks of the node as they are configured now. Like the two below it blocks on the disk if they changed.
    pub(crate) fn networks(&self) -> Result<Arc<Networks>, ConfError> {
        self.conf.lock().unwrap_or_else(PoisonError::into_inner).networks()
    }

    /// The node's default network: the first good *.conflist, *.conf or *.json in lexical order.
    pub(crate) fn default_network(&self) -> Result<NetworkList, ConfError> {
        let mut conf = self.conf.lock().unwrap_or_else(PoisonError::into_inner);
        conf.networks()?.default_network(conf.dir())
    }

    /// The network of this name.
    pub(crate) fn network(&self, name: &str) -> Result<NetworkList, ConfError> {
        let mut conf = self.conf.lock().unwrap_or_else(PoisonError::into_inner);
        conf.networks()?.named(name, conf.dir())
    }

    /// Joins `target` to the network, with nothing done before `gate` opens. On failure it is half joined: [`Self::del`] is
    /// the caller's next step.
    pub(crate) async fn add(
        &self,
        list: &NetworkList,
        target: &Target<'_>,
        gate: Option<Gate<'_>>,
    ) -> Result<Added, CniError> {
        let added = self.add_unnoted(list, target, gate).await;
        match &added {
            Ok(_) => self.failures.well(list.name()),
            Err(error) if error.is_of_plugin() => {
                self.failures.failed(list.name(), &Chain(error).to_string(), Instant::now());
            }
            Err(_) => {}
        }
        added
    }

    /// A line for each network whose last ADD failed.
    pub(crate) fn failed_adds(&self) -> Vec<String> {
        self.failures.told(Instant::now())
    }

    async fn add_unnoted(
        &self,
        list: &NetworkList,
        target: &Target<'_>,
        mut gate: Option<Gate<'_>>,
    ) -> Result<Added, CniError> {
        target.capabilities.fit(list)?;
        let offered = target.capabilities.offered();
        let env = self.environment(&target.key(list), target.netns, &target.told())?;
        let version = self.version_for(list, Negotiation::New).await?;
        let mut last: Option<(Value, ResultView)> = None;
        for (place, plugin) in list.plugins().iter().enumerate() {
            let fail = |cause| CniError::plugin(list, place, Command::Add, cause);
            let prev = last.as_ref().map(|(raw, _)| raw);
            let conf = plugin::request(plugin, list.name(), version, &offered, prev);
            let raw = self.ask_after(gate.take(), Command::Add, plugin, &env, &conf).await.map_err(fail)?;
            let raw = raw.ok_or_else(|| fail(PluginError::silent(Command::Add)))?;
            // Read after each plugin, so that the one that wrote a bad result is the one that is named.
            let raw = result::convert(raw, version).map_err(|cause| fail(PluginError::Result(cause)))?;
            let view = ResultView::of(&raw).map_err(|cause| fail(PluginError::Result(cause)))?;
            last = Some((raw, view));
        }
        let (raw, view) = last.unwrap_or_default(); // a list has at least one plugin
        let mut entry = Entry::ours(target.key(list), list);
        entry.instance.clone_from(&self.instance);
        entry.netns = target.netns.to_string_lossy().into_owned();
        entry.cni_args = target.told();
        entry.capability_args = offered;
        entry.result = raw.clone();
        let cache = self.cache.clone();
        off_reactor(move || cache.write(&entry)).await.map_err(CniError::Cache)?;
        Ok(Added { raw, view })
    }

    /// Takes `target` out of the network, with the last plugin first. `prev` is the result of ADD; without it the cache
    /// is asked. All plugins are run, whether or not an earlier one failed.
    pub(crate) async fn del(
        &self,
        list: &NetworkList,
        target: &Target<'_>,
        prev: Option<&Value>,
    ) -> Result<(), CniError> {
        let key = target.key(list);
        let env = self.environment(&key, target.netns, &target.told())?;
        let offered = target.capabilities.offered();
        let prev = match prev {
            Some(prev) => Some(prev.clone()),
            None => self.cached(&key).await,
        };
        self.del_by(list, &env, &offered, prev.as_ref()).await?;
        self.forget(&key).await
    }

    /// Asks all plugins whether the network is still as `prev`, the result of ADD, says. Fine without asking if the
    /// network's author disabled it.
    pub(crate) async fn check(&self, list: &NetworkList, target: &Target<'_>, prev: &Value) -> Result<(), CniError> {
        if list.check_disabled() {
            return Ok(());
        }
        let env = self.environment(&target.key(list), target.netns, &target.told())?;
        let version = self.version_for(list, Negotiation::Earlier(Some(prev))).await?;
        if !version.has_check() {
            return Err(CniError::NoCheck { network: list.name().to_owned(), version: version.as_str() });
        }
        let offered = target.capabilities.offered();
        for (place, plugin) in list.plugins().iter().enumerate() {
            let conf = plugin::request(plugin, list.name(), version, &offered, Some(prev));
            let answer = self.ask(Command::Check, plugin, &env, &conf).await;
            answer.map_err(|cause| CniError::plugin(list, place, Command::Check, cause))?;
        }
        Ok(())
    }

    /// What Multus gave to `target` besides what it reported, from its directory `dir`; nothing if the network is not
    /// Multus'.
    pub(crate) async fn delegated(
        &self,
        list: &NetworkList,
        target: &Target<'_>,
        dir: &Path,
    ) -> Result<Vec<Delegated>, CniError> {
        if !list.is_multus() {
            return Ok(Vec::new());
        }
        let (dir, pod, main) = (dir.to_owned(), target.container_id.clone(), target.ifname.clone());
        off_reactor(move || multus::delegated(&dir, &pod, &main)).await.map_err(CniError::Multus)
    }

    /// Wall time spent on plugins, each from the wait for its turn to its end, in microseconds.
    pub(crate) fn plugin_micros(&self) -> u64 {
        self.plugin_micros.load(Ordering::Relaxed)
    }

    async fn del_by(
        &self,
        list: &NetworkList,
        env: &Env,
        offered: &Map<String, Value>,
        prev: Option<&Value>,
    ) -> Result<(), CniError> {
        let version = self.version_for(list, Negotiation::Earlier(prev)).await?;
        let prev = prev.filter(|_| version.has_check());
        let mut errors = Vec::new();
        for (place, plugin) in list.plugins().iter().enumerate().rev() {
            let conf = plugin::request(plugin, list.name(), version, offered, prev);
            if let Err(cause) = self.ask(Command::Del, plugin, env, &conf).await {
                errors.push(CniError::plugin(list, place, Command::Del, cause));
            }
        }
        CniError::all(errors)
    }

    /// The result of an ADD that the journal does not know. A bad entry keeps no DEL from being made.
    async fn cached(&self, key: &Key) -> Option<Value> {
        let (cache, key) = (self.cache.clone(), key.clone());
        match off_reactor(move || cache.read(&key)).await {
            Ok(entry) => Some(entry?.result),
            Err(error) => {
                warn!(error = %Chain(&error), "DEL is made without the result of ADD");
                None
            }
        }
    }

    async fn forget(&self, key: &Key) -> Result<(), CniError> {
        let (cache, key) = (self.cache.clone(), key.clone());
        off_reactor(move || cache.remove(&key)).await.map_err(CniError::Cache)
    }
}

impl Target<'_> {
    /// For `CNI_ARGS`, as plugins and the cache get them.
    fn told(&self) -> Vec<(String, String)> {
        let args = self.args.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        iter::once(("IgnoreUnknown".to_owned(), "1".to_owned())).chain(args).collect()
    }

    fn key(&self, list: &NetworkList) -> Key {
        Key {
            network: list.name().to_owned(),
            container: self.container_id.as_str().to_owned(),
            link: self.ifname.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
