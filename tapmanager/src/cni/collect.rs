//! Removes attachments that are not on record: by CNI GC, and by a DEL for each leftover entry of the result cache.
//!
//! The DEL gets the configuration, the arguments and the result of the entry, as libcni does it. It is for entries that
//! this daemon wrote. GC (CNI specification 1.1.0, section 2) tells plugins which attachments exist. It is about the
//! whole network, whichever runtimes use it, so the caller decides for which networks GC may run.

use std::fmt;
use std::path::PathBuf;

use proto::tap::{IfName, PodId};
use serde_json::{Map, json};

use super::ask::Negotiation;
use super::cache::{Entry, Key};
use super::plugin::{self, Command};
use super::{Cni, CniError, NetworkList};
use crate::blocking::off_reactor;
use crate::sys::netns::Netns;

/// What GC calls the attachments that stay: the name of CNI's specification, and the one it had in an early text, which
/// libcni sends too (its issue 1101). A plugin that finds none under the name it knows removes those of all pods.
const VALID_ATTACHMENTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// An attachment that an entry of ours tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) network: String,
    pub(crate) pod: PodId,
    pub(crate) ifname: IfName,
    /// File of its namespace.
    pub(crate) netns: PathBuf,
    pub(crate) writer: Writer,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, pod, ifname, .. } = self;
        write!(f, "attachment `{ifname}` of pod `{}` to network `{network}`", pod.as_str())
    }
}

/// Who wrote an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// This daemon.
    Here,
    /// Another daemon like this one.
    Other,
    /// A release that did not write which daemon it is.
    Unknown,
}

impl Cni {
    /// The attachments that entries of daemons like this one tell of. One that is not sound cannot be known to be such.
    pub(crate) async fn leftovers(&self) -> Result<Vec<Leftover>, CniError> {
        let cache = self.cache.clone();
        let entries = off_reactor(move || cache.select(|_| true)).await.map_err(CniError::Cache)?;
        Ok(entries.into_iter().flatten().filter_map(|entry| self.leftover(&entry)).collect())
    }

    fn leftover(&self, entry: &Entry) -> Option<Leftover> {
        let writer = match entry.instance.as_str() {
            _ if !entry.is_ours() => return None,
            "" => Writer::Unknown,
            instance if instance == self.instance => Writer::Here,
            _ => Writer::Other,
        };
        Some(Leftover {
            network: entry.network_name.clone(),
            pod: entry.container_id.parse().ok()?,
            ifname: entry.if_name.parse().ok()?,
            netns: PathBuf::from(&entry.netns),
            writer,
        })
    }

    /// DEL of an attachment that nothing but its entry tells of; fine if the entry is gone, or is about another one now.
    pub(crate) async fn del_leftover(&self, leftover: &Leftover) -> Result<(), CniError> {
        let key = Key {
            network: leftover.network.clone(),
            container: leftover.pod.as_str().to_owned(),
            link: leftover.ifname.as_str().to_owned(),
        };
        let (cache, of) = (self.cache.clone(), key.clone());
        let entry = off_reactor(move || cache.read(&of)).await.map_err(CniError::Cache)?;
        let Some(entry) = entry else { return Ok(()) };
        if self.leftover(&entry).as_ref() != Some(leftover) {
            return Ok(());
        }
        let list = entry.list(&self.cache).map_err(CniError::Cache)?;
        let netns = leftover.netns.clone();
        let netns = off_reactor(move || matches!(Netns::open(&netns), Ok(Some(_))).then_some(netns)).await;
        let env = self.environment(&key, &netns.unwrap_or_default(), &entry.cni_args)?;
        self.del_by(&list, &env, &entry.capability_args, Some(&entry.result)).await?;
        self.forget(&key).await
    }

    /// Takes away what the network's plugins keep of attachments other than `valid`, of all runtimes (GC). No ADD to the
    /// network may run meanwhile.
    pub(crate) async fn gc(&self, list: &NetworkList, valid: &[(PodId, IfName)]) -> Result<(), CniError> {
        let not = |why| Err(CniError::NoGc { network: list.name().to_owned(), why });
        if list.gc_disabled() {
            return not("`disableGC` is set");
        }
        let version = self.version_for(list, Negotiation::New).await?;
        if !version.has_status_and_gc() {
            return not("its CNI version has no GC; 1.1.0 has");
        }
        let env = self.plain_environment()?;
        let valid: Vec<_> =
            valid.iter().map(|(pod, link)| json!({"containerID": pod.as_str(), "ifname": link.as_str()})).collect();
        let mut errors = Vec::new();
        for (place, plugin) in list.plugins().iter().enumerate() {
            let mut conf = plugin::request(plugin, list.name(), version, &Map::new(), None);
            for name in VALID_ATTACHMENTS {
                conf.insert(name.to_owned(), valid.clone().into());
            }
            if let Err(cause) = self.ask(Command::Gc, plugin, &env, &conf).await {
                errors.push(CniError::plugin(list, place, Command::Gc, cause));
            }
        }
        CniError::all(errors)
    }
}
