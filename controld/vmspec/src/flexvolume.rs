//! Flexvolumes of Virtlet: what a pod says of a disk by options, which kubelet hands to a driver, the driver writes down, and a container's
//! plan is made from. Pure; one reading of them for the driver, the daemon and `validate`.

mod capacity;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::Reason;

use super::Mount;
use super::plan::{DiskFile, FileSystem, Monitor, NoMonitor, OnDisk};
use super::words::words;
use crate::error::{Error, Kind};
use crate::settings::FlexvolumesConfig;

/// The driver's name in pods.
pub const DRIVER: &str = "virtlet/flexvolume_driver";
/// Its directory in those of kubelet, for drivers and in each pod.
pub const DIR: &str = "virtlet~flexvolume_driver";
/// Its program.
pub const PROGRAM: &str = "flexvolume_driver";
/// What it writes down in the directory of a volume.
pub const FILE: &str = "virtlet-flexvolume.json";
/// Most bytes of that.
pub const MAX_BYTES: usize = 64 << 10;

/// kubelet's words for what a pod has in fields of its own: `fsType`, and key `secret` of the `secretRef`.
pub const FS_TYPE: &str = "kubernetes.io/fsType";
pub const SECRET_OF_POD: &str = "kubernetes.io/secret/secret";
const KUBELETS: &str = "kubernetes.io/";
const OPTIONS: [&str; 10] = ["type", "capacity", "path", "part", "monitor", "pool", "volume", "user", "secret", "uuid"];

/// A disk that has no size of its own, in MiB.
const DEFAULT_CAPACITY: &str = "1024";
/// The partition that Virtlet mounts unless it is told another one.
const DEFAULT_PARTITION: u16 = 1;
/// What a table of partitions can name.
const MAX_PARTITION: u16 = 128;
const MAX_MONITORS: usize = 16;
/// Of pools, images and users.
const MAX_NAME: usize = 128;
/// Bytes of a key; Ceph's are of 28.
const MAX_KEY: usize = 256;

words! {
    /// What a flexvolume is.
    Type {
        Qcow2 = "qcow2",
        Raw = "raw",
        Ceph = "ceph",
    }
}

/// A disk that a pod has by a flexvolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlexVolume {
    /// A new file, which goes with the pod. (Virtlet's was of qcow2.)
    Qcow2 {
        /// Bytes, whole MiB.
        size: u64,
        /// What is made on it.
        file_system: Option<FileSystem>,
    },
    /// A block device of the node.
    Raw { path: PathBuf, on: Option<OnDisk> },
    /// An image of a Ceph cluster.
    Ceph { monitors: Vec<Monitor>, pool: String, image: String, login: Option<Login>, on: Option<OnDisk> },
}

/// Who QEMU is to a Ceph cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub key: Key,
}

/// A secret. It is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The pod's name of a mount's volume, if that is a flexvolume of ours.
#[must_use]
pub fn name_of<'a>(mount: &'a Mount, uid: &str) -> Option<&'a str> {
    let (of, name) = split(Path::new(&mount.host_path))?;
    (of == uid).then_some(name)
}

/// The same of whichever pod.
#[must_use]
pub fn name(mount: &Mount) -> Option<&str> {
    split(Path::new(&mount.host_path)).map(|(_, name)| name)
}

/// UID of the pod and name of the volume, if that is where kubelet has a flexvolume of ours.
#[must_use]
pub fn split(path: &Path) -> Option<(&str, &str)> {
    let mut parts = path.components().rev();
    let mut next = || match parts.next()? {
        Component::Normal(part) => part.to_str(),
        _ => None,
    };
    let (name, dir, volumes, uid, pods) = (next()?, next()?, next()?, next()?, next()?);
    ((dir, volumes, pods) == (DIR, "volumes", "pods")).then_some((uid, name))
}

/// Options as kubelet hands them over and the driver writes them down.
///
/// # Errors
/// When it is no JSON object of texts. What is in it is not said.
pub fn options(json: &[u8]) -> Result<BTreeMap<String, String>, Reason> {
    if json.len() > MAX_BYTES {
        return Err(Reason::new(format!("the options are longer than {} KiB", MAX_BYTES >> 10)));
    }
    serde_json::from_slice(json).map_err(|cause| {
        let (line, column) = (cause.line(), cause.column());
        Reason::new(format!("the options are no JSON object of texts (line {line}, column {column})"))
    })
}

/// Those options that say what the disk is: the driver keeps no others.
#[must_use]
pub fn kept(options: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let is_kept = |key: &str| !key.starts_with(KUBELETS) || [FS_TYPE, SECRET_OF_POD].contains(&key);
    let all = options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    all.filter(|(key, value)| is_kept(key) && !value.is_empty()).collect()
}

impl FlexVolume {
    /// The disk that these options say.
    ///
    /// # Errors
    /// When they do not say one, by the option's name.
    pub fn of(options: &BTreeMap<String, String>) -> Result<Self, Reason> {
        let options = Options(kept(options));
        let kind = options.required("type")?;
        let kind = Type::of(kind).ok_or_else(|| {
            Reason::new(format!("option `type`: {} is not one of {}", shown(kind), Type::WORDS.join(", ")))
        })?;
        let of_kind: &[&str] = match kind {
            Type::Qcow2 => &["capacity", "part"],
            Type::Raw => &["path", "part"],
            Type::Ceph => &["monitor", "pool", "volume", "user", "secret", "part", SECRET_OF_POD],
        };
        options.only(kind, of_kind)?;
        match kind {
            Type::Qcow2 => options.qcow2(),
            Type::Raw => {
                let path = options.required("path")?;
                Ok(Self::Raw { path: device_path(path)?, on: options.on_disk()? })
            }
            Type::Ceph => Ok(Self::Ceph {
                monitors: monitors(options.required("monitor")?)?,
                pool: options.name("pool")?.to_owned(),
                image: options.name("volume")?.to_owned(),
                login: options.login()?,
                on: options.on_disk()?,
            }),
        }
    }
}

/// Those that are set.
struct Options<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    fn required(&self, key: &str) -> Result<&'a str, Reason> {
        self.get(key).ok_or_else(|| Reason::new(format!("option `{key}` is not set")))
    }

    fn only(&self, kind: Type, of_kind: &[&str]) -> Result<(), Reason> {
        for key in self.0.keys().copied().filter(|key| !["type", "uuid", FS_TYPE].contains(key)) {
            if of_kind.contains(&key) {
                continue;
            }
            return Err(Reason::new(if OPTIONS.contains(&key) || key == SECRET_OF_POD {
                format!("option `{key}` is not for type `{}`", kind.word())
            } else {
                format!("option {} is not known; there are {}", shown(key), OPTIONS.join(", "))
            }));
        }
        Ok(())
    }

    fn qcow2(&self) -> Result<FlexVolume, Reason> {
        // There is one file system on it, which Virtlet had on the first partition.
        if let Some(part) = self.get("part").filter(|part| !["0", "1"].contains(part)) {
            return Err(Reason::new(format!("option `part`: a new disk has no partition {}", shown(part))));
        }
        let text = self.get("capacity").unwrap_or(DEFAULT_CAPACITY);
        let bytes = capacity::bytes(text)
            .ok_or_else(|| Reason::new(format!("option `capacity`: {} is no number with a unit", shown(text))))?;
        let file_system = self.file_system()?;
        let least = DiskFile::least(file_system);
        if !(least..=DiskFile::MOST).contains(&bytes) {
            let (least, most) = (least >> 20, DiskFile::MOST >> 40);
            let what = format!("option `capacity`: {} is not within {least} MiB to {most} TiB", shown(text));
            return Err(Reason::new(what));
        }
        Ok(FlexVolume::Qcow2 { size: bytes.next_multiple_of(1 << 20), file_system })
    }

    /// `None` is none: the guest has a link to the disk.
    fn file_system(&self) -> Result<Option<FileSystem>, Reason> {
        match self.get(FS_TYPE) {
            None => Ok(Some(FileSystem::Ext4)),
            Some("none") => Ok(None),
            Some(word) => FileSystem::of(word).map(Some).ok_or_else(|| {
                Reason::new(format!("`fsType`: {} is not one of {}, none", shown(word), FileSystem::WORDS.join(", ")))
            }),
        }
    }

    fn on_disk(&self) -> Result<Option<OnDisk>, Reason> {
        let partition = match self.get("part") {
            None => DEFAULT_PARTITION,
            Some(text) => number(text).ok_or_else(|| {
                Reason::new(format!("option `part`: {} is not within 0 to {MAX_PARTITION}", shown(text)))
            })?,
        };
        Ok(self.file_system()?.map(|file_system| OnDisk { partition, file_system }))
    }

    /// What Ceph, QEMU and libvirt take as it is, without a sign that means something to one of them.
    fn name(&self, key: &str) -> Result<&'a str, Reason> {
        let text = self.required(key)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if text.len() > MAX_NAME
            || !text.chars().all(is_plain)
            || !text.starts_with(|c: char| c.is_ascii_alphanumeric())
        {
            let what = format!(
                "option `{key}`: {} is no name of at most {MAX_NAME} letters, digits, `_`, `.` and `-` that begins with a letter or digit",
                shown(text)
            );
            return Err(Reason::new(what));
        }
        Ok(text)
    }

    fn login(&self) -> Result<Option<Login>, Reason> {
        let key = match (self.get("secret"), self.get(SECRET_OF_POD)) {
            (Some(_), Some(_)) => {
                return Err(Reason::new("option `secret` and key `secret` of the `secretRef` are both set; unset one"));
            }
            (Some(text), None) => Some(key(text.trim())?),
            (None, Some(text)) => {
                let text = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                Some(key(text.as_deref().unwrap_or_default().trim())?)
            }
            (None, None) => None,
        };
        match (self.get("user"), key) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Reason::new("option `user` is not set, and a secret is")),
            (Some(_), None) => Err(Reason::new(
                "option `user` is set and no secret is; use option `secret`, or key `secret` of a `secretRef`",
            )),
            (Some(_), Some(key)) => {
                let user = self.name("user")?;
                // libvirt takes none, which `client.` has as well.
                if user.contains('.') {
                    let what = format!("option `user`: {} has a `.` in it; it is without `client.`", shown(user));
                    return Err(Reason::new(what));
                }
                Ok(Some(Login { user: user.to_owned(), key }))
            }
        }
    }
}

fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= MAX_PARTITION)
}

/// # Errors
/// When it cannot be the path of a device. Whether it is one, and may be had, is the node's to say.
fn device_path(text: &str) -> Result<PathBuf, Reason> {
    let path = Path::new(text);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.starts_with("/dev") || !is_plain || path == Path::new("/dev") || text.contains(char::is_control) {
        return Err(Reason::new(format!("option `path`: {} is no path below `/dev` without `..`", shown(text))));
    }
    Ok(path.to_owned())
}

fn monitors(text: &str) -> Result<Vec<Monitor>, Reason> {
    let all: Vec<&str> = text.split(',').map(str::trim).collect();
    if all.len() > MAX_MONITORS {
        return Err(Reason::new(format!("option `monitor` names {}, the limit is {MAX_MONITORS}", all.len())));
    }
    let parse = |one: &str| {
        let no_monitor = |cause: NoMonitor| Reason::new(format!("option `monitor`: {}", shown(one))).with(cause);
        one.parse().map_err(no_monitor)
    };
    all.into_iter().map(parse).collect()
}

/// Its text is said nowhere.
fn key(text: &str) -> Result<Key, Reason> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty() && bytes.len() <= MAX_KEY);
    bytes.map(Key).ok_or_else(|| Reason::new("the secret is no key in base64, as `ceph auth get-key` prints it"))
}

/// As much of a text as an error has room for.
fn shown(text: &str) -> String {
    const MOST: usize = 64;
    let cut: String = text.chars().take(MOST).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("`{}{more}`", cut.escape_debug())
}

/// # Errors
/// When the node has no flexvolumes.
pub fn check_enabled(config: &FlexvolumesConfig, name: &str) -> crate::error::Result<()> {
    if config.enabled {
        return Ok(());
    }
    let what = format!(
        "volume \"{name}\" is a flexvolume (`{DRIVER}`), and this node has none: set `flexvolumes.enabled` of controld, or use an \
         emptyDir as a disk or a block volume"
    );
    Err(Error::new(Kind::Denied, what))
}

#[cfg(test)]
mod tests;
