//! Network configurations: what one must hold to be used. Called by [`dir`], which finds and reads the files, and by the
//! journal, which keeps them.
//!
//! A [`NetworkList`] is well-formed: a name, versions that this runtime speaks, and at least one plugin, each with a plain
//! file name. It serializes as a `.conflist`, so what the journal keeps is what an administrator could put into a file.

pub(super) mod dir;
pub(super) mod watch;

use std::path::{Path, PathBuf};

use common::Reason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::version::SpecVersion;

/// File names of Multus: alone, and as the client of its daemon.
const MULTUS: [&str; 2] = ["multus", "multus-shim"];
/// Plugins that start the program of their `ipam` themselves: those of containernetworking, and that of SR-IOV.
const STARTS_IPAM: [&str; 8] = ["bridge", "ptp", "ipvlan", "macvlan", "vlan", "host-device", "dummy", "sriov"];
/// The IPAM plugin that keeps its addresses in files, and where, if its configuration does not say.
const HOST_LOCAL: &str = "host-local";
const HOST_LOCAL_DIR: &str = "/var/lib/cni/networks";

/// Most bytes of a configuration file.
const MAX_FILE: u64 = 1 << 20;
/// Most plugins of one network: every one is a process of its own at each ADD.
const MAX_PLUGINS: usize = 32;

/// A network: plugins that are run one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub(crate) struct NetworkList {
    name: String,
    /// Ascending, never empty. More than one: plugins are asked which of them they speak.
    versions: Vec<SpecVersion>,
    disable_check: bool,
    disable_gc: bool,
    plugins: Vec<Plugin>,
}

/// One plugin of a network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plugin {
    /// File name of its executable.
    pub(super) kind: String,
    /// Its configuration as in the file.
    pub(super) conf: Map<String, Value>,
}

fn spoken() -> String {
    SpecVersion::ALL.map(SpecVersion::as_str).join(", ")
}

// === impl NetworkList ===

impl NetworkList {
    /// The network's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// File names of its plugins, in the order of ADD.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().map(|plugin| plugin.kind.as_str())
    }

    /// File names of the plugins that give its addresses, each once, where they are started on the node for that. Others have a daemon
    /// that does so elsewhere, and the same word in their configuration.
    pub(crate) fn ipam_kinds(&self) -> Vec<&str> {
        let mut kinds = Vec::new();
        for plugin in self.plugins.iter().filter(|plugin| STARTS_IPAM.contains(&plugin.kind.as_str())) {
            let kind = plugin.conf.get("ipam").and_then(|ipam| ipam.get("type")?.as_str());
            kinds.extend(kind.filter(|kind| !kind.is_empty() && !kinds.contains(kind)));
        }
        kinds
    }

    /// Where the plugin `host-local` notes whose an address is, if it gives the network's.
    pub(crate) fn lease_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        for plugin in self.plugins.iter().filter(|plugin| STARTS_IPAM.contains(&plugin.kind.as_str())) {
            let Some(ipam) = plugin.conf.get("ipam") else { continue };
            let text = |key: &str| ipam.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            if text("type") != Some(HOST_LOCAL) {
                continue;
            }
            let dir = Path::new(text("dataDir").unwrap_or(HOST_LOCAL_DIR)).join(&self.name);
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        dirs
    }

    /// Whether it has networks of its own for a pod, by delegates that are on no record.
    pub(crate) fn is_multus(&self) -> bool {
        self.kinds().any(|kind| MULTUS.contains(&kind))
    }

    /// Whether the network's author forbids CHECK.
    pub(super) fn check_disabled(&self) -> bool {
        self.disable_check
    }

    /// Whether the network's author forbids GC.
    pub(super) fn gc_disabled(&self) -> bool {
        self.disable_gc
    }

    /// Whether a plugin of it declares the capability.
    pub(super) fn declares(&self, capability: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.declares(capability))
    }

    /// Versions to choose from, ascending.
    pub(super) fn versions(&self) -> &[SpecVersion] {
        &self.versions
    }

    /// The plugins in the order of ADD.
    pub(super) fn plugins(&self) -> &[Plugin] {
        &self.plugins
    }

    /// Wraps the configuration of a single plugin into a list of one.
    pub(super) fn of_single(value: Value) -> Result<Self, Reason> {
        let Value::Object(conf) = value else {
            return Err(missing("type", "a text in an object"));
        };
        if conf.contains_key("plugins") && !conf.contains_key("type") {
            return Err(Reason::new("it has `plugins` but no `type`: a list of plugins belongs into a *.conflist"));
        }
        let mut list = Map::new();
        for key in ["name", "cniVersion", "cniVersions", "disableCheck", "disableGC"] {
            if let Some(value) = conf.get(key) {
                list.insert(key.to_owned(), value.clone());
            }
        }
        list.insert("plugins".to_owned(), json!([conf]));
        Self::try_from(Value::Object(list))
    }
}

impl Plugin {
    /// Whether it says that it takes the capability's arguments.
    pub(super) fn declares(&self, capability: &str) -> bool {
        self.conf.get("capabilities").and_then(|declared| declared.get(capability)) == Some(&Value::Bool(true))
    }
}

impl TryFrom<Value> for NetworkList {
    type Error = Reason;

    fn try_from(mut value: Value) -> Result<Self, Self::Error> {
        let none = Reason::new("`name` is not letters, digits, `_`, `.` and `-`, starting with a letter or digit");
        let name = name_of(&value).ok_or(none)?.to_owned();
        let versions = versions(&value)?;
        let disable_check = flag(&value, "disableCheck")?;
        let disable_gc = flag(&value, "disableGC")?;
        let Some(Value::Array(entries)) = value.get_mut("plugins").map(Value::take) else {
            let single = value.get("plugins").is_none() && value.get("type").is_some();
            return Err(if single {
                Reason::new(
                    "it has `type` but no `plugins`: the configuration of a single plugin belongs into a *.conf",
                )
            } else {
                missing("plugins", "a list")
            });
        };
        if entries.is_empty() || entries.len() > MAX_PLUGINS {
            return Err(Reason::new(format!("`plugins` has {} entries, not 1 to {MAX_PLUGINS}", entries.len())));
        }
        let plugins = entries.into_iter().zip(1..).map(|(entry, at)| plugin(entry, at)).collect::<Result<_, _>>()?;
        Ok(Self { name, versions, disable_check, disable_gc, plugins })
    }
}

impl From<NetworkList> for Value {
    fn from(list: NetworkList) -> Self {
        let versions: Vec<_> = list.versions.iter().map(|version| version.as_str()).collect();
        let plugins: Vec<_> = list.plugins.into_iter().map(|plugin| Self::Object(plugin.conf)).collect();
        let mut value = json!({
            "name": list.name,
            "cniVersion": versions.last(),
            "cniVersions": versions,
            "disableCheck": list.disable_check,
            "plugins": plugins,
        });
        // Younger than the journal's first files, which are to stay as they are.
        if list.disable_gc {
            value["disableGC"] = true.into();
        }
        value
    }
}

/// libcni takes the words as well.
fn flag(list: &Value, field: &'static str) -> Result<bool, Reason> {
    match list.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(set)) => Ok(*set),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(missing(field, "true or false")),
    }
}

/// All versions that the file names and this runtime speaks.
fn versions(list: &Value) -> Result<Vec<SpecVersion>, Reason> {
    let mut named = Vec::new();
    match list.get("cniVersions") {
        None | Some(Value::Null) => {}
        Some(Value::Array(several)) => {
            for version in several {
                named.push(version.as_str().ok_or_else(|| missing("cniVersions", "a list of texts"))?);
            }
        }
        Some(_) => return Err(missing("cniVersions", "a list of texts")),
    }
    match list.get("cniVersion") {
        None | Some(Value::Null) => {}
        Some(Value::String(one)) => named.push(one),
        Some(_) => return Err(missing("cniVersion", "a text")),
    }
    let mut known: Vec<_> = named.iter().filter_map(|version| SpecVersion::parse(version)).collect();
    known.sort_unstable();
    known.dedup();
    if known.is_empty() {
        let found = if named.is_empty() { "missing".to_owned() } else { format!("`{}`", named.join("`, `")) };
        return Err(Reason::new(format!("`cniVersion` is {found}; this runtime speaks {}", spoken())));
    }
    Ok(known)
}

fn missing(field: &str, expected: &str) -> Reason {
    Reason::new(format!("`{field}` is missing or not {expected}"))
}

fn plugin(entry: Value, at: usize) -> Result<Plugin, Reason> {
    let nameless = || Reason::new(format!("plugin {at} of `plugins` has no `type` that is a plain file name"));
    let Value::Object(conf) = entry else { return Err(nameless()) };
    let kind = conf.get("type").and_then(Value::as_str).filter(|kind| is_plain_file_name(kind));
    let kind = kind.ok_or_else(nameless)?.to_owned();
    Ok(Plugin { kind, conf })
}

/// What [`is_network_name`] looks for, in a whole list.
pub(super) fn name_of(list: &Value) -> Option<&str> {
    list.get("name").and_then(Value::as_str).filter(|name| is_network_name(name))
}

/// CNI specification 1.1.0, section 1: the characters of a network's name.
fn is_network_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// A name that stays within the plugin directory.
fn is_plain_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(|c: char| c == '/' || c.is_control())
}

#[cfg(test)]
mod tests;
