//! A pod's annotations, as typed values. Pure; the container service parses them at each creation and start.
//!
//! Virtlet's keys are canonical, each with the alias `virtlet.cloud/<its name in kebab case>`; a few keys are ours alone.
//! What would change a machine but is not built yet is refused, and so is a key that looks like one of ours and is none:
//! a machine that is not what its pod says is worse than no machine. All problems of a pod are told at once, and nobody
//! reads user-data or ssh keys in an error or a log.

mod bandwidth;
mod description;
mod emptydir;
pub mod keys;
mod meta_data;
mod networks;
mod policy;
mod reader;
mod source;
mod ssh_keys;
mod user_data;

use std::collections::BTreeMap;
use std::fmt;

use common::quantity::{self, QuantityError};
use proto::tap::{Bandwidth, DataPath, DataPathError, IfName, MacAddr, NetworkAsk};
use proto::vm::{ANNOTATION, CloudInit, Key};
use serde_json::{Map, Value};
use uuid::Uuid;

use self::description::NotDescription;
pub use self::emptydir::EmptyDirDisk;
pub use self::keys::IMAGE_HANDLER;
pub use self::networks::{NotMacs, macs};
pub use self::policy::AnnotationPolicy;
pub use self::policy::matches;
use self::reader::Reader;
pub use self::source::{KeyOf, Source, SshKeySource, UserDataSource};
pub use self::ssh_keys::SshKey;
pub(super) use self::ssh_keys::{MAX_KEYS, parse as ssh_keys_of};
pub use self::user_data::UserData;
pub(super) use self::user_data::{CLOUD_CONFIG, Format};
use super::plan::{
    CpuModel, CpuSetting, Described, DiskBus, NoCpuModel, NoCpuSetting, RootDevice, RootLifetime, SharedFs,
};
use super::seed_kind::{ConfigDelivery, NetworkConfig, SeedKind};
use super::yaml::{self, NotYaml};

/// Most virtual CPUs: what an xAPIC can address.
const MAX_VCPUS: u16 = 255;
/// Longest part of a value or of an unknown key that an error shows, in characters.
const MAX_SHOWN: usize = 64;

/// What a pod says about its machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodAnnotations {
    /// What is described of the machine in one annotation.
    pub described: Described,
    /// Virtual CPUs, 1 to 255; `None` leaves it to the CPU limit.
    pub vcpus: Option<u16>,
    /// Virtual CPUs that the machine can be given while it runs, 1 to 255; `None` is what it boots with.
    pub max_vcpus: Option<u16>,
    /// Bytes of memory that the guest can be given while it runs; `None` is what it boots with.
    pub max_memory: Option<u64>,
    /// Size of the root disk in bytes, rounded up; `None` is the image's own.
    pub root_volume_size: Option<u64>,
    /// How long the root disk lasts; `None` is the runtime handler's way.
    pub root_lifetime: Option<RootLifetime>,
    /// What a block volume at `/` is.
    pub root_device: RootDevice,
    /// Bus of the disks; `None` is the runtime handler's.
    pub disk_bus: Option<DiskBus>,
    /// CPU that the guest sees; `None` is the runtime handler's.
    pub cpu_model: Option<CpuModel>,
    /// That CPU in detail, in place of a model.
    pub cpu_setting: Option<CpuSetting>,
    /// UUID that the guest's firmware shows; the domain's own is not touched.
    pub system_uuid: Option<Uuid>,
    /// Replaces meta-data of the seed key by key.
    pub meta_data: MetaData,
    /// User-data of the seed.
    pub user_data: Option<UserData>,
    /// Where the user-data comes from that the one above is put on top of.
    pub user_data_source: Option<UserDataSource>,
    /// Whether what the pod says itself replaces what its sources say.
    pub overwrite: bool,
    /// Keys of the image's default user, in order, none twice.
    pub ssh_keys: Vec<SshKey>,
    /// Where the keys before those come from.
    pub ssh_key_source: Option<SshKeySource>,
    /// What has the network-config, in place of the one that is made.
    pub network_data: Option<KeyOf>,
    /// Volumes each of whose keys has public SSH keys, behind those of the source.
    pub key_volumes: Vec<Source>,
    /// The volume, ConfigMap or Secret whose keys are files of the guest.
    pub files_source: Option<Source>,
    /// Kind of the seed; `None` is the runtime handler's.
    pub seed: Option<SeedKind>,
    /// How the guest comes by ConfigMaps, Secrets and the like; `None` is the runtime handler's way.
    pub config_delivery: Option<ConfigDelivery>,
    /// Networks beside the node's default one.
    pub networks: Vec<NetworkAsk>,
    /// MAC addresses of links that are said nowhere else, where their networks take one.
    pub macs: BTreeMap<IfName, MacAddr>,
    /// How links and taps are joined; `None` is the node's way.
    pub data_path: Option<DataPath>,
    /// Whether the guest is held to its own addresses; `None` is the node's way.
    pub anti_spoof: Option<bool>,
    /// Whether the seed brings the agent for `exec`, and cloud-init installs it.
    pub guest_agent: bool,
    /// Whether the agent runs the container's own command; `None` is the runtime handler's way.
    pub run_command: Option<bool>,
    /// How the guest comes by the pod's volumes; `None` is the runtime handler's way.
    pub shared_fs: Option<SharedFs>,
    /// EmptyDirs that the guest has as disks.
    pub emptydir_disks: Vec<EmptyDirDisk>,
    /// Whether the guest owns what it sees of volumes by 9p. No effect: they are seen by virtiofs.
    pub chown_9p: bool,
    /// How the guest comes by its addresses; `None` is the runtime handler's way.
    pub network_config: Option<NetworkConfig>,
    /// Limits of the pod's traffic, from Kubernetes' own annotations.
    pub bandwidth: Option<Bandwidth>,
}

/// Meta-data as the pod gives it. `instance-id` and `local-hostname` are strings if they are there.
#[derive(Clone, Default, PartialEq)]
pub struct MetaData(Map<String, Value>);

/// All that is wrong with a pod's annotations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct AnnotationErrors(Vec<AnnotationError>);

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {}: {problem}", shown(key))]
pub struct AnnotationError {
    key: String,
    problem: Problem,
}

/// What is wrong with an annotation. Holds no value that has to be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("unknown; did you mean {nearest}?")]
    Unknown { nearest: String },
    #[error("differs from {other}")]
    Contradicts { other: String },
    #[error("was never implemented")]
    Never,
    #[error("{} is no longer supported; use {instead}", quoted(value))]
    Removed { value: &'static str, instead: &'static str },
    #[error("{} is not one of {}", quoted(value), all.join(", "))]
    NotOneOf { value: String, all: Vec<&'static str> },
    #[error("{} is not true or false", quoted(.0))]
    NotBool(String),
    #[error("{} is not a whole number", quoted(.0))]
    NotNumber(String),
    #[error("{} is over the limit {limit}", cut(value))]
    Over { value: String, limit: u64 },
    #[error("{} is below {limit}", cut(value))]
    Below { value: String, limit: u64 },
    #[error("{} is not a quantity, such as 10Gi or 1.5G", quoted(.0))]
    NotQuantity(String),
    #[error("{} is not a CPU model; {cause}", quoted(value))]
    NotCpuModel { value: String, cause: NoCpuModel },
    #[error("{0}")]
    NotCpuSetting(NoCpuSetting),
    #[error("{} is not a UUID", quoted(.0))]
    NotUuid(String),
    #[error("together with {other}")]
    Together { other: String },
    #[error("without {other}")]
    Without { other: &'static str },
    #[error("must be volume/NAME, configmap/NAME or secret/NAME")]
    NotSource,
    #[error("must be volume/NAME, configmap/NAME or secret/NAME, each with or without /KEY")]
    NotKeySource,
    #[error("{0}")]
    NotNetworks(String),
    #[error("{0}")]
    NotMacs(NotMacs),
    #[error("{0}")]
    NotEmptyDirDisks(String),
    #[error("has a NUL character")]
    Nul,
    #[error("not valid YAML: line {line}")]
    NotYaml { line: u64 },
    #[error("not a map: line {line}")]
    NotMap { line: u64 },
    #[error(
        "neither a map nor another format of cloud-init, which starts with a line such as #cloud-config or #!/bin/sh"
    )]
    NoFormat,
    #[error("`{0}` is not a string")]
    NotString(&'static str),
    #[error("line {line} is not an OpenSSH public key")]
    NotKey { line: usize },
    #[error("line {line} is longer than {limit} bytes")]
    LongKey { line: usize, limit: usize },
    #[error("has {count} keys, the limit is {limit}")]
    ManyKeys { count: usize, limit: usize },
    #[error("{}", .0)]
    NotDescription(NotDescription),
}

// === impl AnnotationErrors ===

impl AnnotationErrors {
    /// A text for each.
    pub fn each(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }
}

// === impl PodAnnotations ===

impl PodAnnotations {
    /// Reads what concerns the machine out of all annotations of a pod.
    ///
    /// # Errors
    /// All that is wrong, ordered by key.
    pub fn parse(all: &BTreeMap<String, String>) -> Result<Self, AnnotationErrors> {
        let mut reader = Reader::new(all);
        let cpu_setting = reader.read(keys::CPU_SETTING, cpu_setting);
        let described = description::read(all, cpu_setting.as_ref(), &mut reader).unwrap_or_default();
        let CloudInit { network_data, ssh_keys } = described.cloud_init.clone();
        let macs = all.get(keys::MACS).filter(|text| !text.is_empty()).map(|text| networks::macs(text));
        let macs = macs.transpose().unwrap_or_else(|wrong| {
            reader.refuse(keys::MACS, Problem::NotMacs(wrong));
            None
        });
        let parsed = Self {
            described,
            macs: macs.unwrap_or_default(),
            network_data: network_data.map(|Key { volume, key }| KeyOf { source: Source::Volume(volume), key }),
            key_volumes: ssh_keys.into_iter().map(Source::Volume).collect(),
            vcpus: reader.read(keys::VCPU_COUNT, vcpus),
            max_vcpus: reader.read(keys::MAX_VCPUS, vcpus),
            max_memory: reader.read(keys::MAX_MEMORY, bytes),
            root_volume_size: reader.read(keys::ROOT_VOLUME_SIZE, bytes),
            root_lifetime: reader.read(keys::ROOT_LIFETIME, named(RootLifetime::ALL, RootLifetime::word)),
            root_device: reader.read(keys::ROOT_DEVICE, named(RootDevice::ALL, RootDevice::word)).unwrap_or_default(),
            disk_bus: reader.read(keys::DISK_DRIVER, disk_bus),
            cpu_model: reader.read(keys::CPU_MODEL, cpu_model),
            cpu_setting,
            system_uuid: reader.read(keys::SYSTEM_UUID, system_uuid),
            meta_data: MetaData(reader.read(keys::META_DATA, meta_data::parse).unwrap_or_default()),
            user_data: reader.either((keys::USER_DATA, UserData::parse), (keys::SCRIPT, UserData::script)),
            user_data_source: user_data_source(&mut reader),
            overwrite: reader.read(keys::OVERWRITE, reader::switch).unwrap_or_default(),
            ssh_keys: reader.read(keys::SSH_KEYS, ssh_keys::parse).unwrap_or_default(),
            ssh_key_source: reader.read(keys::SSH_KEY_SOURCE, source::keys),
            files_source: reader.read(keys::FILES_SOURCE, source::whole),
            seed: reader.read(keys::SEED_TYPE, named(SeedKind::ALL, SeedKind::word)),
            config_delivery: reader.read(keys::CONFIG_DELIVERY, named(ConfigDelivery::ALL, ConfigDelivery::word)),
            networks: reader.read(keys::NETWORKS, networks::parse).unwrap_or_default(),
            data_path: reader.read(keys::DATA_PATH, data_path),
            anti_spoof: reader.read(keys::ANTI_SPOOF, reader::switch),
            guest_agent: reader.read(keys::GUEST_AGENT, reader::switch).unwrap_or_default(),
            run_command: reader.read(keys::RUN_COMMAND, reader::switch),
            shared_fs: reader.read(keys::SHARED_FS, shared_fs),
            emptydir_disks: reader.read(keys::EMPTYDIR_DISKS, emptydir::parse).unwrap_or_default(),
            chown_9p: reader.read(keys::CHOWN_9P, reader::switch).unwrap_or_default(),
            network_config: network_config(&mut reader),
            bandwidth: bandwidth::of(all, &mut reader),
        };
        reader.finish(parsed)
    }

    /// What the seed is made of, by the annotations that name it.
    #[must_use]
    pub fn seed_sources(&self) -> Vec<(&'static str, &Source)> {
        let user_data = self.user_data_source.as_ref().map(|from| (keys::SOURCE, &from.source));
        let ssh_keys = self.ssh_key_source.as_ref().map(|from| (keys::SSH_KEY_SOURCE, &from.source));
        let files = self.files_source.as_ref().map(|source| (keys::FILES_SOURCE, source));
        let network_data = self.network_data.as_ref().map(|data| (ANNOTATION, &data.source));
        let key_volumes = self.key_volumes.iter().map(|source| (ANNOTATION, source));
        [user_data, ssh_keys, files, network_data].into_iter().flatten().chain(key_volumes).collect()
    }
}

fn vcpus(text: &str) -> Result<u16, Problem> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Problem::NotNumber(text.to_owned()));
    }
    let below = || Problem::Below { value: text.to_owned(), limit: 1 };
    let over = || Problem::Over { value: text.to_owned(), limit: MAX_VCPUS.into() };
    match text.parse::<i128>() {
        Ok(..1) => Err(below()),
        Ok(count) => u16::try_from(count).ok().filter(|count| *count <= MAX_VCPUS).ok_or_else(over),
        Err(_) if text.starts_with('-') => Err(below()),
        Err(_) => Err(over()),
    }
}

fn bytes(text: &str) -> Result<u64, Problem> {
    quantity::bytes(text).map_err(|error| match error {
        QuantityError::Malformed => Problem::NotQuantity(text.to_owned()),
        QuantityError::Negative => Problem::Below { value: text.to_owned(), limit: 0 },
        QuantityError::TooLarge => Problem::Over { value: text.to_owned(), limit: quantity::MAX },
    })
}

fn disk_bus(text: &str) -> Result<DiskBus, Problem> {
    let all = || DiskBus::ALL.map(DiskBus::name).to_vec();
    text.parse().map_err(|_| Problem::NotOneOf { value: text.to_owned(), all: all() })
}

fn cpu_model(text: &str) -> Result<CpuModel, Problem> {
    text.parse().map_err(|cause| Problem::NotCpuModel { value: text.to_owned(), cause })
}

fn cpu_setting(text: &str) -> Result<CpuSetting, Problem> {
    CpuSetting::of(&yaml::value(text)?).map_err(Problem::NotCpuSetting)
}

fn data_path(text: &str) -> Result<DataPath, Problem> {
    text.parse().map_err(|error| match error {
        DataPathError::Removed(name) => Problem::Removed { value: name, instead: DataPath::Tc.name() },
        DataPathError::Unknown(value) => Problem::NotOneOf { value, all: DataPath::ALL.map(DataPath::name).to_vec() },
    })
}

fn shared_fs(text: &str) -> Result<SharedFs, Problem> {
    let all = [SharedFs::Virtiofs, SharedFs::None];
    let named = all.into_iter().find(|way| way.name() == text);
    named.ok_or_else(|| Problem::NotOneOf { value: text.to_owned(), all: all.map(SharedFs::name).to_vec() })
}

/// Parser of a name of one of these, letter case aside.
fn named<T: Copy>(all: &'static [T], name: fn(T) -> &'static str) -> impl Fn(&str) -> Result<T, Problem> {
    move |text| {
        let found = all.iter().copied().find(|value| name(*value).eq_ignore_ascii_case(text));
        let all = || all.iter().copied().map(name).collect();
        found.ok_or_else(|| Problem::NotOneOf { value: text.to_owned(), all: all() })
    }
}

fn user_data_source(reader: &mut Reader<'_>) -> Option<UserDataSource> {
    let source = reader.read(keys::SOURCE, source::whole);
    let key = reader.read(keys::SOURCE_KEY, |text| Ok(text.to_owned()));
    let is_base64 = reader.read(keys::SOURCE_ENCODING, source::is_base64).unwrap_or_default();
    reader.refuse_without(keys::SOURCE_KEY, keys::SOURCE);
    reader.refuse_without(keys::SOURCE_ENCODING, keys::SOURCE);
    Some(UserDataSource { source: source?, key, is_base64 })
}

/// Virtlet's switch and our key say one thing; the switch turned off says nothing.
fn network_config(reader: &mut Reader<'_>) -> Option<NetworkConfig> {
    let chosen = reader.read(keys::NETWORK_CONFIG, named(NetworkConfig::ALL, NetworkConfig::word));
    let forced = reader.read(keys::FORCE_DHCP, reader::switch).unwrap_or_default();
    if forced && chosen != Some(NetworkConfig::Dhcp) {
        reader.refuse_together(keys::NETWORK_CONFIG, keys::FORCE_DHCP);
        return Some(NetworkConfig::Dhcp);
    }
    chosen
}

fn system_uuid(text: &str) -> Result<Uuid, Problem> {
    let refuse = || Problem::NotUuid(text.to_owned());
    // The parser knows braces and URNs too, which no firmware shows.
    if !text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(refuse());
    }
    Uuid::try_parse(text).map_err(|_| refuse())
}

impl From<NotYaml> for Problem {
    fn from(NotYaml { line }: NotYaml) -> Self {
        Self::NotYaml { line }
    }
}

// === impl MetaData ===

impl MetaData {
    /// The keys and their values.
    #[must_use]
    pub fn entries(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl fmt::Debug for MetaData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets.
        f.debug_set().entries(self.0.keys()).finish()
    }
}

// What a stranger wrote is shown, but neither at length nor with its control characters.

fn cut(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

fn shown(text: &str) -> String {
    common::shown(text, MAX_SHOWN)
}

fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}

#[cfg(test)]
mod tests;
