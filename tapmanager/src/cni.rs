//! CNI runtime: gives a pod the node's default network by running its plugins, and takes it away again.
//!
//! Called by the pod's actor: [`Cni::default_network`] and [`Cni::add`] at Attach, [`Cni::del`] at Detach and when an
//! Attach is undone, [`Cni::check`] on demand. Who called `add` calls `del`, whatever `add` came to. The flow is that of
//! the CNI specification 1.1.0, sections 3 and 4: [`conf`] finds and reads the network, [`plugin`] tells each plugin what
//! to do, [`exec`] runs it within a deadline, [`result`] reads what it answers.
//!
//! Nothing is kept here: the network and the result of ADD live in the journal, so that DEL gets what ADD used even if
//! the files have changed or the daemon was restarted in between.

mod conf;
mod exec;
mod exercise;
mod plugin;
mod result;
mod version;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proto::tap::{IfName, PodId};
use serde_json::{Map, Value};

use crate::spawner::Spawner;

pub use exercise::exercise;

pub(crate) use conf::{ConfError, NetworkList};
pub(crate) use plugin::{Command, PluginError};
pub(crate) use result::ResultView;

use conf::Plugin;
use plugin::Ask;
use version::SpecVersion;

/// Where plugins find `iptables`, `nft` and the like; they get no other variable of the daemon's environment.
const PLUGIN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the plugins of the node.
#[derive(Debug)]
pub(crate) struct Cni {
    conf_dir: PathBuf,
    plugin_dirs: Vec<PathBuf>,
    /// For one command to one plugin.
    deadline: Duration,
    spawner: Spawner,
    plugin_micros: AtomicU64,
}

/// What is joined to a network.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// The pod.
    pub(crate) container_id: &'a PodId,
    /// File of its namespace.
    pub(crate) netns: &'a Path,
    /// Name of the link to make in it.
    pub(crate) ifname: &'a IfName,
    /// For `CNI_ARGS`; `IgnoreUnknown=1` is added.
    pub(crate) args: Vec<(&'static str, String)>,
}

/// What ADD came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Added {
    /// The result of the last plugin as it wrote it: to be kept for [`Cni::del`] and [`Cni::check`].
    pub(crate) raw: Value,
    /// The same for reading.
    pub(crate) view: ResultView,
}

/// Why a network could not be added, removed or checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CniError {
    /// An argument that cannot be told to plugins.
    #[error("`{name}` cannot be told to CNI plugins: it holds `;`, `=` or a control character")]
    Argument {
        /// Name of the argument.
        name: &'static str,
    },
    /// A plugin directory that cannot be told to plugins.
    #[error("the CNI plugin directories cannot be told to plugins")]
    PluginDirs(#[source] env::JoinPathsError),
    /// A plugin failed.
    #[error("CNI plugin `{kind}` of network `{network}` failed at {command}")]
    Plugin {
        /// Name of the network.
        network: String,
        /// File name of the plugin.
        kind: String,
        /// What it was asked to do.
        command: Command,
        /// What came of it.
        #[source]
        cause: PluginError,
    },
    /// Several plugins failed at DEL.
    #[error("{}", Each(.0))]
    Several(Vec<CniError>),
    /// The network names several versions, and no one fits all plugins.
    #[error("the plugins of network `{network}` have no CNI version in common; set one `cniVersion` that all speak")]
    NoCommonVersion {
        /// Name of the network.
        network: String,
    },
    /// The network's version has no CHECK.
    #[error("network `{network}` is of CNI version {version}, which has no CHECK; 0.4.0 and later have")]
    NoCheck {
        /// Name of the network.
        network: String,
        /// Its version.
        version: &'static str,
    },
}

/// What a command is about: a new ADD, or one that was made earlier and came to this result, if to any.
#[derive(Debug, Clone, Copy)]
enum Moment<'a> {
    Add,
    After(Option<&'a Value>),
}

impl Moment<'_> {
    fn version_of_add(self) -> Option<SpecVersion> {
        let Self::After(prev) = self else { return None };
        prev?.get("cniVersion")?.as_str().and_then(SpecVersion::parse)
    }
}

// === impl Cni ===

impl Cni {
    /// A runtime that looks for networks in `conf_dir` and for plugins in `plugin_dirs`, and gives each plugin
    /// `deadline` for each command.
    pub(crate) fn new(conf_dir: PathBuf, plugin_dirs: Vec<PathBuf>, deadline: Duration, spawner: Spawner) -> Self {
        Self { conf_dir, plugin_dirs, deadline, spawner, plugin_micros: AtomicU64::new(0) }
    }

    /// Reads the node's default network: the first *.conflist, *.conf or *.json in lexical order.
    pub(crate) fn default_network(&self) -> Result<NetworkList, ConfError> {
        conf::default_network(&self.conf_dir)
    }

    /// Whether all plugins of the network are installed. Runs none of them.
    pub(crate) fn installed(&self, list: &NetworkList) -> Result<(), CniError> {
        for plugin in list.plugins() {
            plugin::find(&plugin.kind, &self.plugin_dirs)
                .map_err(|cause| failure(list, plugin, Command::Add, cause))?;
        }
        Ok(())
    }

    /// Joins `target` to the network. On failure it is half joined: [`Self::del`] is the caller's next step.
    pub(crate) async fn add(&self, list: &NetworkList, target: &Target<'_>) -> Result<Added, CniError> {
        let env = self.environment(target)?;
        let version = self.version_for(list, &env, Moment::Add).await?;
        let mut last: Option<(Value, ResultView)> = None;
        for plugin in list.plugins() {
            let fail = |cause| failure(list, plugin, Command::Add, cause);
            let prev = last.as_ref().map(|(raw, _)| raw);
            let conf = plugin::request(plugin, list.name(), version, &Map::new(), prev);
            let raw = self.ask(Command::Add, plugin, &env, &conf).await.map_err(fail)?;
            let raw = raw.ok_or_else(|| fail(PluginError::silent(Command::Add)))?;
            // Read after each plugin, so that the one that wrote a bad result is the one that is named.
            let raw = result::convert(raw, version).map_err(|cause| fail(PluginError::Result(cause)))?;
            let view = ResultView::of(&raw).map_err(|cause| fail(PluginError::Result(cause)))?;
            last = Some((raw, view));
        }
        let (raw, view) = last.unwrap_or_default(); // a list has at least one plugin
        Ok(Added { raw, view })
    }

    /// Takes `target` out of the network, with the last plugin first. `prev` is the result of ADD, if there was one. All
    /// plugins are run, whether or not an earlier one failed.
    pub(crate) async fn del(
        &self,
        list: &NetworkList,
        target: &Target<'_>,
        prev: Option<&Value>,
    ) -> Result<(), CniError> {
        let env = self.environment(target)?;
        let version = self.version_for(list, &env, Moment::After(prev)).await?;
        let prev = prev.filter(|_| version.has_check());
        let mut errors = Vec::new();
        for plugin in list.plugins().iter().rev() {
            let conf = plugin::request(plugin, list.name(), version, &Map::new(), prev);
            if let Err(cause) = self.ask(Command::Del, plugin, &env, &conf).await {
                errors.push(failure(list, plugin, Command::Del, cause));
            }
        }
        match errors.len() {
            0 => Ok(()),
            1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(CniError::Several(errors)),
        }
    }

    /// Asks all plugins whether the network is still as `prev`, the result of ADD, says. Fine without asking if the
    /// network's author disabled it.
    #[cfg_attr(not(test), expect(dead_code, reason = "no request of the tap protocol asks for it yet"))]
    pub(crate) async fn check(&self, list: &NetworkList, target: &Target<'_>, prev: &Value) -> Result<(), CniError> {
        if list.check_disabled() {
            return Ok(());
        }
        let env = self.environment(target)?;
        let version = self.version_for(list, &env, Moment::After(Some(prev))).await?;
        if !version.has_check() {
            return Err(CniError::NoCheck { network: list.name().to_owned(), version: version.as_str() });
        }
        for plugin in list.plugins() {
            let conf = plugin::request(plugin, list.name(), version, &Map::new(), Some(prev));
            let answer = self.ask(Command::Check, plugin, &env, &conf).await;
            answer.map_err(|cause| failure(list, plugin, Command::Check, cause))?;
        }
        Ok(())
    }

    /// Wall time spent inside plugins, each from its start to its end, in microseconds.
    pub(crate) fn plugin_micros(&self) -> u64 {
        self.plugin_micros.load(Ordering::Relaxed)
    }

    /// The version that a network's plugins are spoken to in. Where the configuration leaves a choice, plugins are asked.
    /// After an ADD its version holds, and a plugin that cannot tell its versions does not keep the others from being run.
    async fn version_for(
        &self,
        list: &NetworkList,
        env: &[(&'static str, OsString)],
        moment: Moment<'_>,
    ) -> Result<SpecVersion, CniError> {
        let mut choice = list.versions().to_vec();
        if let Some(used) = moment.version_of_add().filter(|used| choice.contains(used)) {
            return Ok(used);
        }
        let newest = choice.last().copied();
        if choice.len() > 1 {
            let mut asked = BTreeSet::new();
            for plugin in list.plugins().iter().filter(|plugin| asked.insert(&plugin.kind)) {
                match (self.versions_of(plugin, env).await, moment) {
                    (Ok(spoken), _) => choice.retain(|version| spoken.contains(version)),
                    (Err(_), Moment::After(_)) => {}
                    (Err(cause), Moment::Add) => return Err(failure(list, plugin, Command::Version, cause)),
                }
            }
        }
        let common = match moment {
            Moment::Add => choice.last().copied(),
            Moment::After(_) => choice.last().copied().or(newest),
        };
        common.ok_or_else(|| CniError::NoCommonVersion { network: list.name().to_owned() })
    }

    async fn versions_of(
        &self,
        plugin: &Plugin,
        env: &[(&'static str, OsString)],
    ) -> Result<Vec<SpecVersion>, PluginError> {
        let newest = SpecVersion::V110.as_str();
        let conf = Map::from_iter([("cniVersion".to_owned(), newest.into())]);
        let answer = self.ask(Command::Version, plugin, env, &conf).await?;
        let spoken = answer.as_ref().and_then(|answer| answer.get("supportedVersions")).and_then(Value::as_array);
        let spoken = spoken.ok_or_else(|| PluginError::silent(Command::Version))?;
        Ok(spoken.iter().filter_map(|version| SpecVersion::parse(version.as_str()?)).collect())
    }

    async fn ask(
        &self,
        command: Command,
        plugin: &Plugin,
        env: &[(&'static str, OsString)],
        conf: &Map<String, Value>,
    ) -> Result<Option<Value>, PluginError> {
        let started = Instant::now();
        let ask = Ask {
            command,
            kind: &plugin.kind,
            dirs: &self.plugin_dirs,
            env: env.to_vec(),
            conf,
            limit: self.deadline,
            spawner: &self.spawner,
        };
        let answer = plugin::ask(ask).await;
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.plugin_micros.fetch_add(micros, Ordering::Relaxed);
        answer
    }

    /// What all commands for `target` have in common.
    fn environment(&self, target: &Target<'_>) -> Result<Vec<(&'static str, OsString)>, CniError> {
        let path = env::join_paths(&self.plugin_dirs).map_err(CniError::PluginDirs)?;
        let mut args = "IgnoreUnknown=1".to_owned();
        for (name, value) in &target.args {
            // The list has no way to quote.
            if value.contains(|c: char| c == ';' || c == '=' || c.is_control()) {
                return Err(CniError::Argument { name });
            }
            args.extend([";", name, "=", value]);
        }
        Ok(vec![
            ("CNI_CONTAINERID", target.container_id.as_str().into()),
            ("CNI_NETNS", target.netns.into()),
            ("CNI_IFNAME", target.ifname.as_str().into()),
            ("CNI_ARGS", args.into()),
            ("CNI_PATH", path),
            ("PATH", PLUGIN_PATH.into()),
        ])
    }
}

// === impl CniError ===

impl CniError {
    /// Whether a plugin's deadline is the cause, or one of the causes.
    pub(crate) fn is_deadline(&self) -> bool {
        match self {
            Self::Plugin { cause, .. } => cause.is_deadline(),
            Self::Several(errors) => errors.iter().any(Self::is_deadline),
            _ => false,
        }
    }
}

fn failure(list: &NetworkList, plugin: &Plugin, command: Command, cause: PluginError) -> CniError {
    CniError::Plugin { network: list.name().to_owned(), kind: plugin.kind.clone(), command, cause }
}

/// Several errors with their causes: a chain of sources has room for one only.
struct Each<'a>(&'a [CniError]);

impl fmt::Display for Each<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "; and " })?;
            write!(f, "{error}")?;
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
