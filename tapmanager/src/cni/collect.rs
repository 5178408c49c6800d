//! Taking away what a network keeps of attachments that are no more. Called by the daemon as [`Cni::gc`].
//!
//! Two parts, as with libcni: entries of the result cache that belong to no attachment are each given a DEL, with the
//! configuration, the arguments and the result that stand in them; then the plugins are told which attachments there are
//! (GC, CNI specification 1.1.0, section 2). The first part is about this runtime's own entries alone. The second is about
//! the whole network, whoever uses it, so the caller decides whether it is for networks like this one at all.

use std::path::PathBuf;

use proto::tap::{IfName, PodId};
use serde_json::{Map, json};

use super::cache::Entry;
use super::plugin::{self, Command};
use super::{Cni, CniError, Moment, NetworkList};
use crate::blocking::off_reactor;
use crate::sys::netns::Netns;

impl Cni {
    /// Takes away what the network keeps of attachments other than `valid`: first those in the cache that are ours, by
    /// DEL, then, of all runtimes, what its plugins find (GC). No ADD to the network may run meanwhile.
    pub(crate) async fn gc(&self, list: &NetworkList, valid: &[(PodId, IfName)]) -> Result<(), CniError> {
        let ours = self.gc_ours(list, valid).await;
        let plugins = self.plugins_gc(list, valid).await;
        CniError::all([ours, plugins].into_iter().filter_map(Result::err).collect())
    }

    /// The first part alone.
    pub(crate) async fn gc_ours(&self, list: &NetworkList, valid: &[(PodId, IfName)]) -> Result<(), CniError> {
        let mut errors = Vec::new();
        for entry in self.stale(list.name(), valid).await? {
            errors.extend(self.del_stale(entry).await.err());
        }
        CniError::all(errors)
    }

    async fn plugins_gc(&self, list: &NetworkList, valid: &[(PodId, IfName)]) -> Result<(), CniError> {
        let not = |why| Err(CniError::NoGc { network: list.name().to_owned(), why });
        if list.gc_disabled() {
            return not("`disableGC` is set");
        }
        let version = self.version_for(list, Moment::Add).await?;
        if !version.has_status_and_gc() {
            return not("its CNI version has no GC; 1.1.0 has");
        }
        let env = self.plain_environment()?;
        let valid: Vec<_> =
            valid.iter().map(|(pod, link)| json!({"containerID": pod.as_str(), "ifname": link.as_str()})).collect();
        let mut errors = Vec::new();
        for plugin in list.plugins() {
            let mut conf = plugin::request(plugin, list.name(), version, &Map::new(), None);
            conf.insert("cni.dev/valid-attachments".to_owned(), valid.clone().into());
            if let Err(cause) = self.ask(Command::Gc, plugin, &env, &conf).await {
                errors.push(CniError::plugin(list, &plugin.kind, Command::Gc, cause));
            }
        }
        CniError::all(errors)
    }

    /// Entries of ours that belong to no attachment. One that is not sound cannot be known to be ours.
    async fn stale(&self, network: &str, valid: &[(PodId, IfName)]) -> Result<Vec<Entry>, CniError> {
        let (cache, prefix) = (self.cache.clone(), format!("{network}-"));
        let entries = off_reactor(move || cache.select(|name| name.starts_with(&prefix))).await?;
        let is_valid = |entry: &Entry| {
            let one =
                |(pod, link): &(PodId, IfName)| pod.as_str() == entry.container_id && link.as_str() == entry.if_name;
            valid.iter().any(one)
        };
        let of_network = |entry: &Entry| entry.is_ours() && entry.network_name == network;
        Ok(entries.into_iter().flatten().filter(|entry| of_network(entry) && !is_valid(entry)).collect())
    }

    /// DEL of an attachment that nothing but its entry in the cache tells of.
    async fn del_stale(&self, entry: Entry) -> Result<(), CniError> {
        let list = entry.list(&self.cache)?;
        let key = entry.key();
        let netns = PathBuf::from(&entry.netns);
        let netns = off_reactor(move || matches!(Netns::open(&netns), Ok(Some(_))).then_some(netns)).await;
        let env = self.environment(&key, &netns.unwrap_or_default(), &entry.cni_args)?;
        self.del_by(&list, &env, &entry.capability_args, Some(&entry.result)).await?;
        self.forget(&key).await
    }
}
