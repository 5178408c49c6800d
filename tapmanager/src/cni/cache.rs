//! The CNI result cache in its standard place: the result of each ADD, for DEL, for CHECK, and for other runtimes.
//!
//! The form is libcni's (`kind: cniCacheV1`), one file `results/<network>-<container>-<link>` for each attachment.
//! Entries of this daemon have two more members, [`OWNER`] and the daemon's instance, which libcni ignores. The daemon
//! never removes any other entry, nor acts upon one.
//!
//! Called by [`super::Cni`]; [`super::multus`] reads entries of the same form. A file is replaced as a whole, so that a
//! crash of the daemon leaves no half one. It is not flushed: a power failure takes the namespaces away as well, and
//! the journal has the result. Whatever a file holds, reading it is bounded, and a bad one is an error that names it.
//!
//! All functions block on the disk: call them off the reactor.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use common::Reason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::conf::NetworkList;
use super::conf::dir::read_bounded;
use super::result::ResultView;
use crate::durable::{self, DurableError, Existing, Keep};

const KIND: &str = "cniCacheV1";
/// Our entries' mark.
const OWNER: &str = "virtlet";
/// A configuration of at most 1 MiB in base64 and a result of at most 1 MiB fit.
const MAX_FILE: u64 = 4 << 20;

/// The cache.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    dir: PathBuf,
}

/// One attachment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    kind: String,
    pub(super) container_id: String,
    /// The network's configuration in base64.
    #[serde(default)]
    config: String,
    pub(super) if_name: String,
    pub(super) network_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) netns: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(super) cni_args: Vec<(String, String)>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Map::is_empty")]
    pub(super) capability_args: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) result: Value,
    #[serde(default, rename = "virtlet.owner", skip_serializing_if = "String::is_empty")]
    owner: String,
    /// Which daemon. Earlier releases wrote none.
    #[serde(default, rename = "virtlet.instance", skip_serializing_if = "String::is_empty")]
    pub(super) instance: String,
}

/// What an entry is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) network: String,
    pub(super) container: String,
    pub(super) link: String,
}

/// libcni writes nothing or a list, older releases `null`.
fn nullable<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

// === impl Entry ===

impl Entry {
    /// An entry of ours.
    pub(super) fn ours(key: Key, list: &NetworkList) -> Self {
        Self {
            kind: KIND.to_owned(),
            container_id: key.container,
            config: BASE64_STANDARD.encode(Value::from(list.clone()).to_string()),
            if_name: key.link,
            network_name: key.network,
            netns: String::new(),
            cni_args: Vec::new(),
            capability_args: Map::new(),
            result: Value::Null,
            owner: OWNER.to_owned(),
            instance: String::new(),
        }
    }

    /// What it is about.
    pub(super) fn key(&self) -> Key {
        Key { network: self.network_name.clone(), container: self.container_id.clone(), link: self.if_name.clone() }
    }

    /// Whether this runtime wrote it.
    pub(super) fn is_ours(&self) -> bool {
        self.owner == OWNER
    }

    /// The configuration of ADD, whatever it is; `None` if it is not JSON in base64.
    pub(super) fn configuration(&self) -> Option<Value> {
        let bytes = BASE64_STANDARD.decode(&self.config).ok();
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }

    /// The configuration of ADD.
    pub(super) fn list(&self, cache: &Cache) -> Result<NetworkList, Reason> {
        let path = cache.file(&self.key());
        let value = self.configuration().ok_or_else(|| no_entry(&path, "its configuration is not JSON in base64"))?;
        let path = path.display();
        let unusable = || Reason::new(format!("the configuration in `{path}` of the CNI result cache cannot be used"));
        NetworkList::try_from(value).map_err(|cause| unusable().with(cause))
    }

    fn read(path: &Path) -> Result<Option<Self>, Reason> {
        let bytes = match read_bounded(path, MAX_FILE) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed("read", path))?,
        };
        let problem = |problem| no_entry(path, problem);
        let bytes = bytes.ok_or_else(|| problem("it is not a regular file of at most 4 MiB"))?;
        let json = |cause: serde_json::Error| {
            Reason::new(format!("`{}` is no entry of a CNI result cache", path.display())).with(cause)
        };
        let value: Value = serde_json::from_slice(&bytes).map_err(json)?;
        if value.get("kind") != Some(&KIND.into()) {
            return Err(problem("its kind is not `cniCacheV1`"));
        }
        Self::deserialize(value).map(Some).map_err(json)
    }
}

// === impl Cache ===

impl Cache {
    /// The cache in `dir`, which need not exist.
    pub(super) const fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn results(&self) -> PathBuf {
        self.dir.join("results")
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.results().join(file_name(key))
    }

    /// Puts the entry in place. Until then it has a [`durable::temp_name`]: no network's name begins so, hence no entry's.
    pub(super) fn write(&self, entry: &Entry) -> Result<(), Reason> {
        let results = self.results();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&results);
        made.map_err(failed("make", &results))?;
        let name = file_name(&entry.key());
        let text = serde_json::to_vec(entry).map_err(|cause| failed("write", &results.join(&name))(cause.into()))?;
        durable::write(&results, &name, &text, Existing::Replace, Keep::ForThisBoot).map_err(unchanged("write"))
    }

    /// The entry, if there is one. It is about what its name says, and its result is one.
    pub(super) fn read(&self, key: &Key) -> Result<Option<Entry>, Reason> {
        let path = self.file(key);
        let Some(entry) = Entry::read(&path)? else { return Ok(None) };
        sound(&entry, &path)?;
        Ok(Some(entry))
    }

    /// Removes the entry, and what a crash has left of writing it; fine if there is none.
    pub(super) fn remove(&self, key: &Key) -> Result<(), Reason> {
        let (results, name) = (self.results(), file_name(key));
        let removed = durable::remove(&results, &durable::temp_name(&name));
        removed.and_then(|()| durable::remove(&results, &name)).map_err(unchanged("remove"))
    }

    /// The sound entries whose file name `wanted` takes, in the order of the names, and those that are not sound.
    pub(super) fn select(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Result<Entry, Reason>>, Reason> {
        let dir = self.results();
        let fail = failed("list", &dir);
        let listing = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(&fail)?,
        };
        let mut names = Vec::new();
        for entry in listing {
            let name = entry.map_err(&fail)?.file_name();
            names.extend(name.into_string().ok().filter(|name| wanted(name)));
        }
        names.sort_unstable();
        let read = |name: String| {
            let path = dir.join(name);
            let entry = Entry::read(&path).transpose()?;
            Some(entry.and_then(|entry| sound(&entry, &path).map(|()| entry)))
        };
        Ok(names.into_iter().filter_map(read).collect())
    }
}

fn sound(entry: &Entry, path: &Path) -> Result<(), Reason> {
    if path.file_name().and_then(|name| name.to_str()) != Some(&file_name(&entry.key())) {
        return Err(no_entry(path, "it is about another attachment than its name"));
    }
    if !entry.result.is_object() {
        return Err(no_entry(path, "it has no result"));
    }
    let view = ResultView::of(&entry.result);
    let unusable = || Reason::new(format!("the result in `{}` of the CNI result cache cannot be used", path.display()));
    view.map(drop).map_err(|cause| unusable().with(cause))
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Reason {
    move |cause| Reason::new(format!("failed to {action} `{}` of the CNI result cache", path.display())).with(cause)
}

fn unchanged(action: &'static str) -> impl FnOnce(DurableError) -> Reason {
    move |cause| Reason::new(format!("failed to {action} an entry of the CNI result cache")).with(cause)
}

fn no_entry(path: &Path, problem: &str) -> Reason {
    Reason::new(format!("`{}` is no entry of a CNI result cache: {problem}", path.display()))
}

fn file_name(key: &Key) -> String {
    format!("{}-{}-{}", key.network, key.container, key.link)
}

#[cfg(test)]
mod tests;
