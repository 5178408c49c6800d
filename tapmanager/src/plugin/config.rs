//! What a network's configuration, `CNI_ARGS` and `runtimeConfig` ask for, all of it checked, with all problems told at
//! once.
//!
//! Called by [`super`] at ADD and STATUS alone: what CHECK, DEL and GC need is in the allocation, so that a
//! configuration that was changed meanwhile keeps nobody from giving a VF back.
//!
//! Keys are those of sriov-cni, so that its users change `type` alone, and `pool`, `pf`, `vfs`, `driver` and `mtu`.
//! Keys that are not ours are others' affair, but for those that differ from ours in the case of letters.

use std::path::Path;

use rscni_plugin::types::NetConf;
use serde_json::{Map, Value};
use sriov::PciAddr;
use sriov::settings::input::Input;
use sriov::settings::{VfSettings, Wanted};
use sriov::{Mac, policy};

use super::failure::{Code, Failure};
use super::pools::{self, KEYS, Pool, Pools};
use super::reader::Reader;

/// Keys of a configuration that we read, besides those that describe a pool.
const OWN_KEYS: [&str; 13] = [
    "pool",
    "deviceID",
    "mac",
    "vlan",
    "vlanQoS",
    "vlanProto",
    "spoofchk",
    "trust",
    "link_state",
    "min_tx_rate",
    "max_tx_rate",
    "mtu",
    "runtimeConfig",
];
/// What `CNI_ARGS` may have besides where unknown ones are not ignored.
const OWN_ARGS: [&str; 2] = ["IgnoreUnknown", "MAC"];
/// IPv4 works from this MTU on (`ETH_MIN_MTU`).
const MIN_MTU: u32 = 68;
/// Highest MTU of a packet.
const MAX_MTU: u32 = 65_535;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    /// Which VF; at ADD there is one.
    pub(super) source: Option<Source>,
    /// Its settings.
    pub(super) wanted: Wanted,
    /// Its MTU; as it is without.
    pub(super) mtu: Option<u32>,
}

/// Which VF is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// This one. If there is a pool as well, it has to be one of that.
    Exact(PciAddr, Option<Pool>),
    /// Any of these.
    Any(Pool),
}

/// `CNI_ARGS`, as far as we use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CniArgs {
    mac: Option<String>,
    /// Namespace and name of the pod, if a runtime of Kubernetes tells them.
    pub(super) pod: Option<String>,
}

// === impl CniArgs ===

impl CniArgs {
    /// Reads `KEY=VALUE;KEY=VALUE`.
    ///
    /// # Errors
    /// If it has another form, or keys that we do not know and may not ignore.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |problem: String| Failure::new(Code::Config, format!("`CNI_ARGS` {problem}"));
        let mut args = Vec::new();
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let pair = pair.split_once('=').ok_or_else(|| bad("has a piece that is no `KEY=VALUE`".to_owned()))?;
            args.push(pair);
        }
        let get = |name: &str| args.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let ignore = get("IgnoreUnknown").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"));
        if !ignore && let Some((unknown, _)) = args.iter().find(|(key, _)| !OWN_ARGS.contains(key)) {
            return Err(bad(format!(
                "has `{}`, which is unknown; add `IgnoreUnknown=1`",
                super::reader::shown(unknown)
            )));
        }
        let pod =
            get("K8S_POD_NAMESPACE").zip(get("K8S_POD_NAME")).map(|(namespace, name)| format!("{namespace}/{name}"));
        Ok(Self { mac: get("MAC").filter(|mac| !mac.is_empty()).map(str::to_owned), pod })
    }
}

// === impl Wish ===

impl Wish {
    /// Reads all of it. `file` is where pools are. `args` are there at ADD, which has to know which VF is meant; at
    /// STATUS a device plugin may not have chosen it yet.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub(super) fn parse(conf: &NetConf, args: Option<&CniArgs>, file: &Path) -> Result<Self, Failure> {
        let table: Map<String, Value> = conf.custom.clone().into_iter().collect();
        let given: Map<String, Value> =
            conf.runtime_config.clone().map(|config| config.custom.into_iter().collect()).unwrap_or_default();
        let mut problems = Vec::new();
        let mut reader = Reader::new(&given, "runtimeConfig.", &mut problems);
        let (given_mac, given_device) = (reader.get::<String>("mac"), reader.get::<String>("deviceID"));
        let mut reader = Reader::new(&table, "", &mut problems);
        reader.expect_no_likes_of(&OWN_KEYS);
        reader.expect_no_likes_of(&KEYS);
        let pool = Self::pool(&table, &mut reader, file)?;
        let device = reader.get::<String>("deviceID");
        let device = given_device.or(device).filter(|device| !device.is_empty());
        let device = device.and_then(|device| {
            device.parse().map_err(|error| reader.wrong("deviceID", &format!("is wrong: {error}"))).ok()
        });
        let chosen = device.is_some() || KEYS.iter().chain(&["pool", "deviceID"]).any(|key| is_set(&table, key));
        let mtu = reader.get::<u32>("mtu");
        if mtu.is_some_and(|mtu| !(MIN_MTU..=MAX_MTU).contains(&mtu)) {
            reader.wrong("mtu", &format!("is not between {MIN_MTU} and {MAX_MTU}"));
        }
        let mac = reader.get::<String>("mac").filter(|mac| !mac.is_empty());
        let mac = given_mac.filter(|mac| !mac.is_empty()).or_else(|| args?.mac.clone()).or(mac);
        let asked = settings(&mut reader, mac.as_deref());
        if !chosen && args.is_some() {
            problems.push("it says not which VF; name a `pool`, a `pf` or a `deviceID`".to_owned());
        }
        let source = match (device, pool) {
            (Some(vf), pool) => Some(Source::Exact(vf, pool)),
            (None, pool) => pool.map(Source::Any),
        };
        if problems.is_empty() {
            Ok(Self { source, wanted: wanted(asked), mtu })
        } else {
            Err(Failure::new(Code::Config, problems.join("; ")))
        }
    }

    fn pool(table: &Map<String, Value>, reader: &mut Reader<'_>, file: &Path) -> Result<Option<Pool>, Failure> {
        let Some(name) = reader.get::<String>("pool").filter(|name| !name.is_empty()) else {
            if !is_set(table, "pf") && (is_set(table, "vfs") || is_set(table, "driver")) {
                reader.wrong("pf", "is missing, which `vfs` and `driver` are about");
            }
            return Ok(pools::describe(reader));
        };
        for key in KEYS.into_iter().filter(|key| is_set(table, key)) {
            reader.wrong(key, "and `pool` are both there; the pool has it, so leave it out");
        }
        let mut pools: Pools = pools::load(file)?;
        let known: Vec<_> = pools.keys().map(|name| format!("`{name}`")).collect();
        let pool = pools.remove(&name);
        if pool.is_none() {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            reader.wrong(
                "pool",
                &format!(
                    "is `{}`, which `{}` does not have; there are: {known}",
                    super::reader::shown(&name),
                    file.display()
                ),
            );
        }
        Ok(pool)
    }
}

/// Whether a key says something: nothing and an empty text do not.
fn is_set(table: &Map<String, Value>, key: &str) -> bool {
    table.get(key).is_some_and(|value| !value.is_null() && value != "")
}

/// What can be read of the settings. Each group is checked by itself, so that all problems are told.
fn settings(reader: &mut Reader<'_>, mac: Option<&str>) -> VfSettings {
    let (vlan, qos, proto) = (reader.get("vlan"), reader.get("vlanQoS"), reader.get::<String>("vlanProto"));
    let (spoofchk, trust) = (reader.get::<String>("spoofchk"), reader.get::<String>("trust"));
    let link_state = reader.get::<String>("link_state");
    let (min_rate, max_rate) = (reader.get("min_tx_rate"), reader.get("max_tx_rate"));
    // sriov-cni takes an empty text for none.
    let word = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    let (proto, spoofchk, trust, link_state) = (word(&proto), word(&spoofchk), word(&trust), word(&link_state));
    let groups = [
        ("mac", Input { mac, ..Input::default() }),
        ("vlan", Input { vlan, qos, proto: proto.as_deref(), ..Input::default() }),
        ("spoofchk", Input { spoofchk: spoofchk.as_deref(), ..Input::default() }),
        ("trust", Input { trust: trust.as_deref(), ..Input::default() }),
        ("link_state", Input { link_state: link_state.as_deref(), ..Input::default() }),
        ("min_tx_rate", Input { min_rate, max_rate, ..Input::default() }),
    ];
    let mut asked = VfSettings::default();
    for (key, input) in groups {
        match input.settings() {
            Ok(settings) => settings.attributes().for_each(|attribute| asked.set(attribute)),
            Err(problem) => reader.wrong(key, &format!("is wrong: {problem}")),
        }
    }
    asked
}

/// Nothing of an earlier user is left where nothing is asked for: no VLAN, no trust, frames checked.
fn wanted(asked: VfSettings) -> Wanted {
    let mut wanted = policy::guarded(asked);
    wanted.otherwise.vlan = Some(sriov::settings::Vlan::default());
    wanted
}

/// The address that is asked for.
pub(super) fn asked_mac(wanted: &Wanted) -> Option<Mac> {
    wanted.asked.mac
}

#[cfg(test)]
mod tests;
