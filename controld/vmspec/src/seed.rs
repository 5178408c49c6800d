//! The seed of a machine: what its guest reads of its pod at each boot, from a small disk or from the firmware.
//!
//! Assembled from the pod's annotations, some of its volumes and its network when a container is made, so that errors come early, and
//! again at each start. Pure; the container's actor reads the volumes and writes the seed. A seed holds what the pod's user
//! wants kept: `Debug` shows sizes only, and errors show no content.
//!
//! Two parts come together in it, see [`join`]: what the user gives, byte for byte if that can be, and what is made for the pod (a file of
//! its variables, copies of its ConfigMaps, mounts of its volumes).

mod devices;
mod drive;
mod env;
mod guest_disks;
mod hostname;
mod image;
mod join;
mod json;
mod merge;
mod mounts;
mod network;
mod sources;
mod wishes;

use std::fmt;

use common::Reason;
use proto::tap::PodNet;
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use self::guest_disks::{guest_device, guest_disks};
pub use self::merge::merge;
pub use self::mounts::{GuestDisk, GuestMount};
pub use self::network::{off_subnet, on_link};
pub use self::sources::{MAX_FILE, Sources, Volume, VolumeFile};
pub use self::wishes::{FOR_US, Objects, TOKEN, Wishes, config_volume, is_for_us};
pub use super::seed_kind::{ConfigDelivery, NetworkConfig, SeedKind};
use crate::annotations::{Format, PodAnnotations, UserData};

/// Longest user-data, in bytes.
pub const MAX_USER_DATA: usize = 2 << 20;
/// Largest seed, in bytes of its files.
pub const MAX_SEED: usize = 16 << 20;
/// Where Ignition looks, in QEMU's firmware configuration.
const IGNITION: FirmwareName = FirmwareName { name: "opt/com.coreos/config", suffix: "ignition" };
/// systemd's credential with keys of root's.
const ROOT_KEYS: FirmwareName =
    FirmwareName { name: "opt/io.systemd.credentials/ssh.authorized_keys.root", suffix: "keys" };

/// What a seed is made of.
#[derive(Debug, Clone, Copy)]
pub struct SeedInput<'a> {
    pub pod_name: &'a str,
    /// Pod namespace.
    pub namespace: &'a str,
    /// Pod UID.
    pub uid: &'a str,
    /// What the root disk is known by, if it outlives the pod and has been seen.
    pub instance: Option<Uuid>,
    /// The sandbox's host name; empty stands for the pod's name.
    pub hostname: &'a str,
    /// What kubelet has written for the pod's `/etc/hosts`; empty if that is not known.
    pub hosts: &'a str,
    pub annotations: &'a PodAnnotations,
    pub net: &'a PodNet,
    /// The program of the agent, if the pod wants it installed.
    pub agent: Option<&'a [u8]>,
    pub kind: SeedKind,
    pub delivery: ConfigDelivery,
    pub network: NetworkConfig,
    /// Whether keys are systemd's credentials too.
    pub credentials: bool,
    /// Volumes that were read for it.
    pub sources: &'a Sources,
    /// The container's variables as `NAME=value`.
    pub env: &'a [String],
    /// What cloud-init is to mount; empty where the agent does.
    pub mounts: &'a [GuestMount],
    /// The disks beside the root disk.
    pub disks: &'a [GuestDisk],
    /// Whether an agent in the guest sees to them.
    pub has_agent: bool,
}

/// A seed.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed {
    /// The disk's label, and its files in the order of their names; no files, no disk.
    label: &'static str,
    files: Vec<(&'static str, Vec<u8>)>,
    firmware: Vec<FirmwareFile>,
    skipped: Vec<String>,
    off_subnet: Vec<String>,
    on_link: Vec<String>,
}

/// A file that QEMU's firmware configuration shows the guest.
#[derive(Clone, PartialEq, Eq)]
pub struct FirmwareFile {
    pub name: FirmwareName,
    pub content: Vec<u8>,
}

/// What such a file is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirmwareName {
    /// To the guest.
    pub name: &'static str,
    /// On the node, behind the machine's id and a dot.
    pub suffix: &'static str,
}

impl FirmwareName {
    /// All that there are.
    pub const ALL: [Self; 2] = [IGNITION, ROOT_KEYS];
}

/// Makes a seed.
///
/// # Errors
/// When a source has not what it is to have, a part is over its limit, or what the pod wants cannot reach the guest.
pub fn assemble(input: &SeedInput<'_>) -> Result<Seed, Reason> {
    let annotations = input.annotations;
    let keys = input.sources.ssh_keys(annotations)?;
    let user = input.sources.user_data(annotations)?;
    let environment = env::environment(input.env);
    let mut seed = Seed {
        label: "",
        files: Vec::new(),
        firmware: Vec::new(),
        skipped: environment.skipped,
        off_subnet: Vec::new(),
        on_link: Vec::new(),
    };
    match input.kind {
        SeedKind::NoCloud | SeedKind::ConfigDrive => {
            let user = user.map(|data| with_mounts(devices::by_id(data, input.disks)?, input)).transpose()?;
            let joined = join::join(user.as_ref(), made(input, &environment.text)?)?;
            let drive = if input.kind == SeedKind::NoCloud { drive::no_cloud } else { drive::config_drive };
            (seed.label, seed.files) = drive(input, &keys, joined)?;
            // Of a network-config of the pod's own nothing is known.
            let is_made = input.annotations.network_data.is_none();
            if is_made {
                seed.off_subnet = off_subnet(input.net, input.network);
            }
            if is_made && input.kind == SeedKind::NoCloud {
                seed.on_link = on_link(input.net, input.network);
            }
            seed.files.extend(input.agent.map(|agent| (drive::AGENT, agent.to_vec())));
        }
        SeedKind::None => refuse_lost(input, !keys.is_empty())?,
        SeedKind::Ignition => {
            refuse_lost(input, !keys.is_empty())?;
            let content = user.map(|data| data.as_written().to_vec());
            seed.firmware.extend(content.map(|content| FirmwareFile { name: IGNITION, content }));
        }
    }
    if input.credentials && !keys.is_empty() {
        let lines: String = keys.iter().map(|key| format!("{}\n", key.as_str())).collect();
        seed.firmware.push(FirmwareFile { name: ROOT_KEYS, content: lines.into() });
    }
    within("cloud-init seed", seed.len(), MAX_SEED)?;
    Ok(seed)
}

/// Finds what is wrong with a seed by all that is known before its sources are read: those that annotations name are taken to be there and
/// not to be empty, of the copies only that there are some.
///
/// # Errors
/// As [`assemble`], but for what is in a source.
pub fn check_unread(input: &SeedInput<'_>) -> Result<(), Reason> {
    let annotations = input.annotations;
    if matches!(input.kind, SeedKind::None | SeedKind::Ignition) {
        let has_keys = !annotations.ssh_keys.is_empty()
            || annotations.ssh_key_source.is_some()
            || !annotations.key_volumes.is_empty();
        refuse_lost(input, has_keys)?;
    }
    let mut user_data = annotations.user_data.clone();
    if annotations.user_data_source.is_some() && !annotations.overwrite {
        // Both become one, and what the source has decides, too, whether that can be joined with what is made for the pod.
        user_data.take().map(|own| sources::check_mergeable(&own)).transpose()?;
    }
    let known = PodAnnotations {
        user_data,
        user_data_source: None,
        ssh_key_source: None,
        key_volumes: Vec::new(),
        network_data: None,
        files_source: None,
        ..annotations.clone()
    };
    assemble(&SeedInput { annotations: &known, sources: &Sources::default(), ..*input }).map(drop)
}

/// What is made for the pod, as a cloud-config.
fn made(input: &SeedInput<'_>, environment: &str) -> Result<Map<String, Value>, Reason> {
    let mut made = mounts::cloud_config(input.mounts, input.own_disks());
    let files = input.sources.files(input.annotations)?;
    let entry = |file: &sources::GuestFile| {
        let mut entry = file.to_entry();
        // Files are written before disks are mounted, which would hide them.
        if mounts::is_on_disk(&file.path, input.mounts, input.own_disks()) {
            entry["defer"] = true.into();
        }
        entry
    };
    let mut entries: Vec<Value> = files.iter().map(entry).collect();
    if !environment.is_empty() {
        let mode = format!("{:04o}", env::MODE);
        entries.push(json!({ "path": env::FILE, "content": environment, "permissions": mode }));
    }
    if !entries.is_empty() {
        made.insert("write_files".into(), entries.into());
    }
    // The next pod with this disk has other NICs, and to cloud-init it is the same instance, whose network it would leave as it was.
    if input.lasting().is_some() && input.network != NetworkConfig::None {
        made.insert("updates".into(), json!({ "network": { "when": ["boot"] } }));
    }
    Ok(made)
}

/// A script with the mounting of disks and volumes where it says so.
fn with_mounts(data: UserData, input: &SeedInput<'_>) -> Result<UserData, Reason> {
    let text = match (data.format(), std::str::from_utf8(data.as_written())) {
        (Format::Script, Ok(text)) if text.contains(mounts::MARK) => text,
        _ => return Ok(data),
    };
    let whole = text.replace(mounts::MARK, &mounts::script(input.mounts, input.own_disks()));
    within("cloud-init user-data", whole.len(), MAX_USER_DATA)?;
    Ok(data.with_script(whole))
}

fn refuse_lost(input: &SeedInput<'_>, has_keys: bool) -> Result<(), Reason> {
    let (mut lost, of_network) = (lost(input, has_keys), lost_of_network(input));
    if lost.is_empty() && of_network.is_empty() {
        return Ok(());
    }
    let mut advice = String::new();
    if input.delivery != ConfigDelivery::None && !(input.mounts.is_empty() && input.own_disks().is_empty()) {
        advice.push_str("; annotation virtlet.cloud/config-delivery: none leaves volumes to the guest");
    }
    if !of_network.is_empty() {
        advice.push_str("; annotation virtlet.cloud/network-config: none leaves addresses and routes to the guest");
    }
    lost.extend(of_network);
    let (kind, lost) = (input.kind, lost.join(", "));
    Err(Reason::new(format!(
        "a seed of kind `{kind}` (annotation VirtletCloudInitImageType) needs cloud-init: {lost}{advice}"
    )))
}

/// What only cloud-init brings to a guest, beside its network. Variables matter to few.
fn lost(input: &SeedInput<'_>, has_keys: bool) -> Vec<String> {
    let annotations = input.annotations;
    let is_ignition = input.kind == SeedKind::Ignition;
    let by_hand = input.delivery == ConfigDelivery::None;
    let has_user_data = annotations.user_data.is_some() || annotations.user_data_source.is_some();
    let mut lost: Vec<String> = [
        ("user-data", has_user_data && !is_ignition),
        ("meta-data", !annotations.meta_data.entries().is_empty()),
        ("SSH keys", has_keys && !input.credentials),
        ("network-config", annotations.network_data.is_some()),
        ("VirtletFilesFromDataSource", annotations.files_source.is_some()),
        ("virtlet.cloud/guest-agent", annotations.guest_agent),
        ("virtlet.cloud/config-delivery: seed", !input.sources.copies.is_empty()),
    ]
    .into_iter()
    .filter(|(_, is_there)| *is_there)
    .map(|(what, _)| what.to_owned())
    .collect();
    if !by_hand {
        lost.extend(input.mounts.iter().map(|mount| format!("volume mount at {}", mount.path)));
        // A link that is not there takes nothing from a guest that knows its disk by the serial.
        let mounted = input.own_disks().iter().filter(|disk| !disk.is_linked());
        lost.extend(mounted.map(|disk| format!("disk at {}", disk.path)));
    }
    // kubelet gives some to every container, for which no author of a pod is asked.
    if is_ignition && input.env.iter().any(|variable| !env::is_of_service(variable)) {
        lost.push("variables".to_owned());
    }
    lost
}

/// What only cloud-init tells a guest of its network: what does not come by DHCP, unless the pod wants none of it.
fn lost_of_network(input: &SeedInput<'_>) -> Vec<String> {
    // What a handler says for all its pods, DHCP does as well.
    if input.annotations.network_config == Some(NetworkConfig::Static) {
        return vec!["virtlet.cloud/network-config: static".to_owned()];
    }
    if input.network == NetworkConfig::None {
        return Vec::new();
    }
    network::without_dhcp(input.net).map(|nic| format!("addresses of {nic}, which gets no DHCP")).collect()
}

/// Which instance cloud-init takes the machine for: it does once what is to be done once for each.
///
/// It is the pod's, not the container's, as the root disk is unless the pod says otherwise: a new disk knows no instance. Pods
/// of one name differ by their UID, so a reused name is another instance. A root disk that outlives its pod may have one of its own.
fn instance_id(input: &SeedInput<'_>) -> String {
    let SeedInput { pod_name, namespace, uid, annotations, .. } = input;
    let given = annotations.meta_data.entries().get("instance-id").and_then(Value::as_str);
    let of_disk = input.lasting().map(|uuid| uuid.to_string());
    given.map(str::to_owned).or(of_disk).unwrap_or_else(|| format!("{pod_name}.{namespace}.{uid}"))
}

fn within(what: &'static str, len: usize, limit: usize) -> Result<(), Reason> {
    if len <= limit {
        return Ok(());
    }
    Err(Reason::new(format!("{what} is {}, limit {}; use a volume", mebibytes(len), mebibytes(limit))))
}

/// Rounded up to a tenth, so that what is over a limit never reads as equal to it.
fn mebibytes(bytes: usize) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        tenth => format!("{}.{tenth} MiB", tenths / 10),
    }
}

// === impl SeedInput ===

impl<'a> SeedInput<'a> {
    /// The instance of a root disk that outlives its pod, where pods after this one can be the same. By ConfigDrive they cannot: cloud-init
    /// 22.4 ends its setup with an error there when it is to look at the network of an instance that it knows (its data source takes the
    /// mark that it puts in place of the network for the network). So each pod is another instance, which is told its network anew.
    fn lasting(&self) -> Option<Uuid> {
        self.instance.filter(|_| self.kind != SeedKind::ConfigDrive)
    }

    /// Disks that cloud-init is to see to.
    const fn own_disks(&self) -> &'a [GuestDisk] {
        if self.has_agent { &[] } else { self.disks }
    }
}

// === impl Seed ===

impl Seed {
    /// The files of its disk by name, in the order of their names.
    #[must_use]
    pub fn files(&self) -> Vec<(&'static str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect()
    }

    /// One that looks the same from outside and says nothing: its files are empty.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let files = self.files.iter().map(|(name, _)| (*name, Vec::new())).collect();
        let (skipped, off_subnet, on_link) = (Vec::new(), Vec::new(), Vec::new());
        Self { label: self.label, files, firmware: Vec::new(), skipped, off_subnet, on_link }
    }

    /// What the firmware shows.
    #[must_use]
    pub fn firmware(&self) -> &[FirmwareFile] {
        &self.firmware
    }

    /// Names of variables that the guest is not told.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Names of NICs that are told a route which not every guest's cloud-init sets: see [`off_subnet`].
    #[must_use]
    pub fn off_subnet(&self) -> &[String] {
        &self.off_subnet
    }

    /// Names of NICs that are told a route for which some guests' cloud-init sets up no NIC: see [`on_link`].
    #[must_use]
    pub fn on_link(&self) -> &[String] {
        &self.on_link
    }

    /// An image with these files, if there are any. Two images of one seed differ in their times.
    ///
    /// # Errors
    /// When the image cannot be made.
    pub fn to_iso(&self) -> Result<Option<Vec<u8>>, Reason> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let image = image::iso(self.label, &self.files());
        image.map(Some).map_err(Reason::because("failed to make the image of the cloud-init seed"))
    }

    fn len(&self) -> usize {
        let firmware = self.firmware.iter().map(|file| file.content.len());
        self.files.iter().map(|(_, bytes)| bytes.len()).chain(firmware).sum()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let firmware = self.firmware.iter().map(|file| (file.name.name, file.content.len()));
        let files = self.files.iter().map(|(name, bytes)| (*name, bytes.len()));
        f.debug_map().entries(files.chain(firmware)).finish()
    }
}

impl fmt::Debug for FirmwareFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FirmwareFile({}, {} bytes)", self.name.name, self.content.len())
    }
}

#[cfg(test)]
mod tests;
