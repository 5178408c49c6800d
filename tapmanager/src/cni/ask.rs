//! One command to one plugin: in which version, with which environment, when it is its turn, and how long it may take.
//!
//! Called by [`super`] for the commands of an attachment, by [`super::status`] and by [`super::collect`]. The process is
//! [`super::plugin`]'s and [`super::exec`]'s.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::cache::Key;
use super::conf::Plugin;
use super::exec::Gate;
use super::negotiate::{self, Stamp};
use super::plugin::{self, Ask, Command, PluginError};
use super::version::SpecVersion;
use super::{Cni, CniError, NetworkList};

/// Where plugins find `iptables`, `nft` and the like; they get no other variable of the daemon's environment.
const PLUGIN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long one plugin may take to say how it is: kubelet asks for the node's state and waits for it.
const STATUS_WITHIN: Duration = Duration::from_secs(10);

/// Variables of a plugin's environment.
pub(super) type Env = Vec<(&'static str, OsString)>;

/// How the version is found that a network's plugins are spoken to in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Negotiation<'a> {
    /// The newest that all of them speak.
    New,
    /// The one that an earlier ADD was made in, as its result says, if there is one.
    Earlier(Option<&'a Value>),
}

impl Negotiation<'_> {
    fn version_of_add(self) -> Option<SpecVersion> {
        let Self::Earlier(prev) = self else { return None };
        prev?.get("cniVersion")?.as_str().and_then(SpecVersion::parse)
    }
}

impl Cni {
    /// The version that a network's plugins are spoken to in. After an ADD a plugin that cannot tell its versions does not
    /// keep the others from being run.
    pub(super) async fn version_for(
        &self,
        list: &NetworkList,
        negotiation: Negotiation<'_>,
    ) -> Result<SpecVersion, CniError> {
        let choice = list.versions();
        if let Some(used) = negotiation.version_of_add().filter(|used| choice.contains(used)) {
            return Ok(used);
        }
        let mut spoken = Vec::new();
        if choice.len() > 1 {
            let mut asked = BTreeSet::new();
            let plugins = list.plugins().iter().enumerate();
            for (place, plugin) in plugins.filter(|(_, plugin)| asked.insert(&plugin.kind)) {
                match (self.versions_of(plugin).await, negotiation) {
                    (Ok(versions), _) => spoken.push(versions),
                    (Err(_), Negotiation::Earlier(_)) => {}
                    (Err(cause), Negotiation::New) => {
                        return Err(CniError::plugin(list, place, Command::Version, cause));
                    }
                }
            }
        }
        let common = negotiate::newest_common(choice, &spoken);
        let common = match negotiation {
            Negotiation::New => common,
            Negotiation::Earlier(_) => common.or(choice.last().copied()),
        };
        common.ok_or_else(|| CniError::NoCommonVersion { network: list.name().to_owned() })
    }

    async fn versions_of(&self, plugin: &Plugin) -> Result<Vec<SpecVersion>, PluginError> {
        let path = plugin::find(&plugin.kind, &self.plugin_dirs)?;
        let stamp = Stamp::of(&path).ok();
        if let Some(known) = stamp.and_then(|stamp| self.spoken.get(&path, stamp)) {
            return Ok(known);
        }
        let newest = SpecVersion::V110.as_str();
        let conf = Map::from_iter([("cniVersion".to_owned(), newest.into())]);
        let answer = self.ask(Command::Version, plugin, &vec![("PATH", PLUGIN_PATH.into())], &conf).await?;
        let spoken = answer.as_ref().and_then(negotiate::spoken_in);
        let spoken = spoken.ok_or_else(|| PluginError::silent(Command::Version))?;
        if let Some(stamp) = stamp {
            self.spoken.note(path, stamp, spoken.clone());
        }
        Ok(spoken)
    }

    pub(super) async fn ask(
        &self,
        command: Command,
        plugin: &Plugin,
        env: &Env,
        conf: &Map<String, Value>,
    ) -> Result<Option<Value>, PluginError> {
        self.ask_after(None, command, plugin, env, conf).await
    }

    pub(super) async fn ask_after(
        &self,
        gate: Option<Gate<'_>>,
        command: Command,
        plugin: &Plugin,
        env: &Env,
        conf: &Map<String, Value>,
    ) -> Result<Option<Value>, PluginError> {
        let limit = if command == Command::Status { self.deadline.min(STATUS_WITHIN) } else { self.deadline };
        let ask = Ask {
            command,
            kind: &plugin.kind,
            dirs: &self.plugin_dirs,
            env: env.clone(),
            conf,
            limit,
            spawner: &self.spawner,
            gate,
        };
        // Without the wait for its turn.
        let run = async {
            let started = Instant::now();
            let answer = plugin::ask(ask).await;
            let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.plugin_micros.fetch_add(micros, Ordering::Relaxed);
            answer
        };
        // Those that work for no pod are few, and the node's state hangs on them.
        match (command, conf.get("name").and_then(Value::as_str)) {
            (Command::Add | Command::Del | Command::Check, Some(network)) => {
                self.turns.take(network, &plugin.kind, command.as_str(), run).await
            }
            _ => run.await,
        }
    }

    /// What all commands have in common.
    pub(super) fn plain_environment(&self) -> Result<Env, CniError> {
        let path = env::join_paths(&self.plugin_dirs).map_err(CniError::PluginDirs)?;
        Ok(vec![("CNI_PATH", path), ("PATH", PLUGIN_PATH.into())])
    }

    /// What all commands for one attachment have in common.
    pub(super) fn environment(&self, key: &Key, netns: &Path, args: &[(String, String)]) -> Result<Env, CniError> {
        // The list has no way to quote.
        let breaks = |text: &str| text.contains(|c: char| c == ';' || c == '=' || c.is_control());
        if let Some((name, _)) = args.iter().find(|(name, value)| breaks(name) || breaks(value)) {
            return Err(CniError::Argument { name: name.clone() });
        }
        let text: Vec<_> = args.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut env = vec![
            ("CNI_CONTAINERID", key.container.as_str().into()),
            ("CNI_NETNS", netns.into()),
            ("CNI_IFNAME", key.link.as_str().into()),
            ("CNI_ARGS", text.join(";").into()),
        ];
        env.extend(self.plain_environment()?);
        Ok(env)
    }
}
