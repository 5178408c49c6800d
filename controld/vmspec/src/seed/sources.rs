//! What a seed is made of beside annotations: volumes of the pod, ConfigMaps and Secrets, as they were read once. Pure; `guest::seed` of controld reads
//! them.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::Reason;
use proto::vm::ANNOTATION;
use serde_json::{Map, Value, json};

use super::{MAX_USER_DATA, image, join, within};
use crate::annotations::{
    KeyOf, MAX_KEYS, PodAnnotations, Source, SshKey, SshKeySource, UserData, UserDataSource, ssh_keys_of,
};
use crate::yaml;

/// Longest content of a file of the guest that a seed brings, in bytes.
pub const MAX_FILE: usize = 1 << 20;
/// Longest network-config that a pod gives, in bytes.
const MAX_NETWORK_DATA: usize = 256 << 10;
/// Mode of a file of a data source, which says none.
const FILE_MODE: u32 = 0o644;
/// What the keys end with that say where a file is to be, and how its content is written.
const PATH: &str = "_path";
const ENCODING: &str = "_encoding";

/// Volumes of the pod and objects of its namespace, as they were read once.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// What annotations name.
    pub named: BTreeMap<Source, Volume>,
    /// Volumes whose files the guest gets copies of, each with the directory that they are to be in.
    pub copies: Vec<(String, Volume)>,
}

/// The files of a volume by their paths in it, which are the keys of a ConfigMap or Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Volume(pub BTreeMap<String, VolumeFile>);

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeFile {
    pub bytes: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
}

/// A file that cloud-init is to write.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct GuestFile {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
}

/// That a pod's own user-data can be put on top of a source's, as far as it goes.
pub(super) fn check_mergeable(own: &UserData) -> Result<(), Reason> {
    within("cloud-init user-data", own.as_written().len(), MAX_USER_DATA)?;
    join::on_top(&join::cloud_config(&Map::new())?, own).map(drop)
}

// === impl Sources ===

impl Sources {
    /// The user-data that the pod gives, by source and by annotation.
    pub(super) fn user_data(&self, annotations: &PodAnnotations) -> Result<Option<UserData>, Reason> {
        let own = annotations.user_data.clone();
        if let Some(own) = &own {
            within("cloud-init user-data", own.as_written().len(), MAX_USER_DATA)?;
        }
        let Some(source) = annotations.user_data_source.as_ref().filter(|_| own.is_none() || !annotations.overwrite)
        else {
            return Ok(own);
        };
        let base = self.base(source)?;
        within("cloud-init user-data", base.as_written().len(), MAX_USER_DATA)?;
        match own {
            None => Ok(Some(base)),
            Some(own) => join::on_top(&base, &own).map(Some),
        }
    }

    /// The user-data of a source: one key as it is, or all keys as those of a cloud-config.
    fn base(&self, UserDataSource { source, key, is_base64 }: &UserDataSource) -> Result<UserData, Reason> {
        let files = self.read(source);
        let wrong = |what: String| Reason::new(format!("annotation VirtletCloudInitUserDataSource: {what}"));
        let decoded = |key: &str, bytes: &[u8]| match is_base64 {
            true => decode(bytes).ok_or_else(|| wrong(format!("key {key:?} of {source} is not valid base64"))),
            false => Ok(bytes.to_owned()),
        };
        if let Some(key) = key {
            let file = files.get(key).ok_or_else(|| wrong(files.lacks(key, source)))?;
            let bytes = decoded(key, &file.bytes)?;
            within("cloud-init user-data", bytes.len(), MAX_USER_DATA)?;
            return UserData::of_file(&bytes).map_err(|problem| wrong(format!("key {key:?} of {source}: {problem}")));
        }
        let (mut map, mut size) = (Map::new(), 0);
        for (key, VolumeFile { bytes, .. }) in &files.0 {
            let bytes = decoded(key, bytes)?;
            let no_text = || wrong(format!("key {key:?} of {source} is no text; name one key that is the user-data"));
            let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(no_text)?;
            let value: Value =
                yaml::value(text).map_err(|problem| wrong(format!("key {key:?} of {source}: {problem}")))?;
            // A few lines of aliases in each could stand for much.
            size += key.len() + value.to_string().len();
            within("cloud-init user-data", size, MAX_USER_DATA)?;
            map.insert(key.clone(), value);
        }
        join::cloud_config(&map)
    }

    /// The keys of the image's default user: those of the source first.
    pub(super) fn ssh_keys(&self, annotations: &PodAnnotations) -> Result<Vec<SshKey>, Reason> {
        let own = annotations.ssh_keys.clone();
        if !own.is_empty() && annotations.overwrite {
            return Ok(own);
        }
        let mut all: Vec<SshKey> = Vec::new();
        if let Some(SshKeySource { source, key }) = &annotations.ssh_key_source {
            let files = self.read(source);
            let by = "VirtletSSHKeySource";
            let lacks = || Reason::new(format!("annotation {by}: {}", files.lacks(key, source)));
            all = keys_in(files.get(key).ok_or_else(lacks)?, &format!("annotation {by}: key {key:?} of {source}"))?;
        }
        // Looked at with each key: volumes may have a million, and each is compared with all before it.
        let is_bound = !annotations.key_volumes.is_empty();
        let mut add = |key: SshKey| {
            if !all.contains(&key) {
                all.push(key);
            }
            if is_bound && all.len() > MAX_KEYS {
                let what = format!("annotation {ANNOTATION}: the pod has more than {MAX_KEYS} SSH keys");
                return Err(Reason::new(what));
            }
            Ok(())
        };
        for source in &annotations.key_volumes {
            for (key, file) in &self.read(source).0 {
                let keys = keys_in(file, &format!("annotation {ANNOTATION}: key {key:?} of {source}"))?;
                keys.into_iter().try_for_each(&mut add)?;
            }
        }
        own.into_iter().try_for_each(&mut add)?;
        Ok(all)
    }

    /// The network-config that the pod gives in place of the one that is made.
    pub(super) fn network_data(&self, annotations: &PodAnnotations) -> Result<Option<Vec<u8>>, Reason> {
        let Some(KeyOf { source, key }) = &annotations.network_data else { return Ok(None) };
        let files = self.read(source);
        let lacks = || Reason::new(format!("annotation {ANNOTATION}: {}", files.lacks(key, source)));
        let bytes = files.get(key).ok_or_else(lacks)?.bytes.clone();
        within("cloud-init network-config", bytes.len(), MAX_NETWORK_DATA)?;
        Ok(Some(bytes))
    }

    /// Files of the guest: copies of volumes, then those of a data source.
    pub(super) fn files(&self, annotations: &PodAnnotations) -> Result<Vec<GuestFile>, Reason> {
        let mut all = Vec::new();
        for (dir, Volume(files)) in &self.copies {
            let dir = dir.trim_end_matches('/');
            all.extend(files.iter().map(|(name, VolumeFile { bytes, mode })| GuestFile {
                path: format!("{dir}/{name}"),
                bytes: bytes.clone(),
                mode: *mode,
            }));
        }
        if let Some(source) = &annotations.files_source {
            let wrong = |what| Reason::new(format!("annotation VirtletFilesFromDataSource: {what}"));
            all.extend(self.read(source).guest_files().map_err(wrong)?);
        }
        all.iter().try_for_each(|file| {
            if file.bytes.len() <= MAX_FILE {
                return Ok(());
            }
            let (size, limit) = (super::mebibytes(file.bytes.len()), super::mebibytes(MAX_FILE));
            Err(Reason::new(format!("file {:?} is {size}, limit {limit}; use a volume", file.path)))
        })?;
        Ok(all)
    }

    fn read(&self, source: &Source) -> &Volume {
        static NOTHING: Volume = Volume(BTreeMap::new());
        self.named.get(source).unwrap_or(&NOTHING)
    }
}

/// The keys in a file, which is at this place.
fn keys_in(file: &VolumeFile, place: &str) -> Result<Vec<SshKey>, Reason> {
    let text = std::str::from_utf8(&file.bytes).map_err(|_| Reason::new(format!("{place} is no text")))?;
    ssh_keys_of(text).map_err(|problem| Reason::new(format!("{place}: {problem}")))
}

// === impl Volume ===

impl Volume {
    /// Bytes of its files.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.values().map(|file| file.bytes.len()).sum()
    }

    /// An image of a disk with its files and this label.
    ///
    /// # Errors
    /// When the image cannot be made.
    pub fn to_iso(&self, label: &str) -> Result<Vec<u8>, Reason> {
        let files: Vec<_> = self.0.iter().map(|(name, file)| (name.as_str(), file.bytes.as_slice())).collect();
        image::iso(label, &files).map_err(Reason::because("failed to make the image of its files"))
    }

    fn get(&self, key: &str) -> Option<&VolumeFile> {
        self.0.get(key)
    }

    /// That a key is not there, and which are.
    fn lacks(&self, key: &str, source: &Source) -> String {
        const SHOWN: usize = 16;
        let key: String = key.chars().take(64).collect();
        if self.0.is_empty() {
            return format!("key {key:?} not in {source}, which is empty");
        }
        let mut keys: Vec<String> =
            self.0.keys().take(SHOWN).map(|key| key.chars().filter(|c| !c.is_control()).take(64).collect()).collect();
        if self.0.len() > SHOWN {
            keys.push("...".to_owned());
        }
        format!("key {key:?} not in {source}; it has {}", keys.join(", "))
    }

    /// Files as Virtlet's data sources have them: `K` is the content, `K_path` its place, `K_encoding` how it is written, which
    /// is base64 unless it is said.
    fn guest_files(&self) -> Result<Vec<GuestFile>, String> {
        let says = |key: &str, what: &str| key.strip_suffix(what).is_some_and(|of| self.0.contains_key(of));
        let contents = self.0.iter().filter(|(key, _)| !says(key, PATH) && !says(key, ENCODING));
        contents.map(|(key, file)| self.guest_file(key, &file.bytes)).collect()
    }

    fn guest_file(&self, key: &str, content: &[u8]) -> Result<GuestFile, String> {
        let said = |what: &str| {
            let key = format!("{key}{what}");
            let text = |file: &VolumeFile| String::from_utf8(file.bytes.clone()).map(|text| text.trim().to_owned());
            self.get(&key).map(text).transpose().map_err(|_| format!("key {key} is no text"))
        };
        let path = said(PATH)?.ok_or_else(|| format!("key {key} has no {key}{PATH}"))?;
        let is_plain = !path.contains('\0') && !path.split('/').any(|part| part == "..") && !path.ends_with('/');
        if !path.starts_with('/') || !is_plain {
            let shown: String = path.chars().take(64).collect();
            return Err(format!("{key}{PATH} {shown:?} is not absolute, or has `..`, or names no file"));
        }
        let bytes = match said(ENCODING)?.as_deref() {
            Some("plain") => content.to_owned(),
            Some("base64") | None => decode(content).ok_or_else(|| format!("key {key} is not valid base64"))?,
            Some(_) => return Err(format!("{key}{ENCODING} is not one of plain, base64")),
        };
        Ok(GuestFile { path, bytes, mode: FILE_MODE })
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is in it may be secret.
        f.debug_map().entries(self.0.iter().map(|(key, file)| (key, file.bytes.len()))).finish()
    }
}

impl fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeFile({} bytes, {:o})", self.bytes.len(), self.mode)
    }
}

// === impl GuestFile ===

impl GuestFile {
    /// As cloud-init's `write_files` has it.
    pub(super) fn to_entry(&self) -> Value {
        json!({
            "path": self.path,
            "content": STANDARD.encode(&self.bytes),
            "encoding": "b64",
            "permissions": format!("{:04o}", self.mode & 0o777),
        })
    }
}

/// Base64 as tools write it: in lines.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests;
