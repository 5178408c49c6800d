//! Reads Glance's records and lists of images: JSON in, a verdict out.
//!
//! An image whose upload was rejected stays `queued`; it has its hashes all the same, is found by them, and its file is
//! served with status 200 and no bytes. So only images with `status` `active` count, and that is checked in every
//! record, whatever the server was asked to filter by.

use std::collections::BTreeMap;

use common::Reason;
use serde::Deserialize;
use serde_json::Value;
use url::Url;
use vmimage::declared::Declared;
use vmimage::error::printable;

use super::super::{Covers, HashAlg, ImageHash, ImageMetadata, Platform, Promise, Revision, timestamp};

const NOT_JSON: &str = "no valid JSON of an image";

/// A record, not checked yet.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    #[serde(default)]
    status: String,
    disk_format: Option<String>,
    container_format: Option<String>,
    size: Option<u64>,
    virtual_size: Option<u64>,
    checksum: Option<String>,
    os_hash_algo: Option<String>,
    os_hash_value: Option<String>,
    created_at: Option<String>,
    updated_at: Option<String>,
    #[serde(default)]
    os_hidden: bool,
    /// GiB.
    #[serde(default)]
    min_disk: u64,
    /// MiB.
    #[serde(default)]
    min_ram: u64,
    architecture: Option<String>,
    os_type: Option<String>,
    os_distro: Option<String>,
    os_version: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    /// Whatever else people said of it.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) images: Vec<Record>,
    pub(crate) next: Option<String>,
}

impl Record {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        let record: Self = serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))?;
        if is_id(&record.id) { Ok(record) } else { Err(no_id(&record.id)) }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// Whether nothing of it is left but the record.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.status.as_str(), "deleted" | "pending_delete")
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.os_hidden
    }

    pub(crate) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Which of several is the newer. The id decides between images of the same second, so that all nodes agree.
    pub(crate) fn age(&self) -> (Option<u64>, &str) {
        (self.created_at.as_deref().and_then(timestamp::of_internet), &self.id)
    }

    /// What it runs on, if it says.
    pub(crate) fn platform(&self) -> Option<Platform> {
        let mut platform = Platform::linux(self.architecture.as_deref()?);
        if let Some(os) = &self.os_type {
            platform.os = os.to_ascii_lowercase();
        }
        Some(platform)
    }

    /// Whether it may run on `wanted`. A record that does not say may.
    pub(crate) fn fits(&self, wanted: &Platform) -> bool {
        let system = self.os_type.as_ref().is_none_or(|os| os.eq_ignore_ascii_case(&wanted.os));
        system && self.platform().is_none_or(|offered| wanted.accepts(&offered))
    }

    /// Whether it has that hash.
    pub(crate) fn has(&self, hash: &ImageHash) -> bool {
        self.promise().is_ok_and(|promise| promise.hash == *hash)
            || (hash.alg() == HashAlg::Md5 && self.checksum.as_deref() == Some(hash.hex()))
    }

    /// The digest that its bytes must have. It may be weak.
    pub(crate) fn promise(&self) -> Result<Promise, Reason> {
        let id = &self.id;
        let (alg, hex) = match (&self.os_hash_algo, &self.os_hash_value, &self.checksum) {
            (Some(name), Some(hex), _) => match HashAlg::named(name) {
                Some(alg) => (alg, hex),
                None => {
                    let name = printable(name);
                    return Err(Reason::new(format!("image `{id}` has a hash of the unknown algorithm `{name}`")));
                }
            },
            (None, None, Some(hex)) => (HashAlg::Md5, hex),
            _ => return Err(Reason::new(format!("image `{id}` has no hash"))),
        };
        let broken = || Reason::new(format!("image `{id}` has a broken hash"));
        let hash = ImageHash::new(alg, hex).map_err(|cause| broken().with(cause))?;
        Ok(Promise { hash, covers: Covers::Hosted })
    }

    /// The format of its disk, if it is one that may be used, as it is or converted.
    pub(crate) fn checked(&self) -> Result<Declared, Reason> {
        let id = &self.id;
        let said = |text: &Option<String>| printable(text.as_deref().unwrap_or("none"));
        if !self.is_active() {
            return Err(Reason::new(format!("image `{id}` is `{}`, not `active`", printable(&self.status))));
        }
        if self.container_format.as_deref() != Some("bare") {
            let container = said(&self.container_format);
            return Err(Reason::new(format!("image `{id}` has container format `{container}`; use `bare`")));
        }
        // Its names are ours; those of memory images and of media are not.
        let format = self.disk_format.as_deref().and_then(Declared::named);
        format.ok_or_else(|| {
            Reason::new(format!(
                "image `{id}` has disk format `{}`; use `qcow2`, `raw`, or one that can be converted",
                said(&self.disk_format)
            ))
        })
    }

    /// All that it tells.
    pub(crate) fn metadata(&self, provider: &str) -> ImageMetadata {
        let texts = self.others.iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((key.clone(), text.clone())),
            Value::Bool(_) | Value::Number(_) => Some((key.clone(), value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        });
        let mut extra: BTreeMap<String, String> = texts.collect();
        if !self.tags.is_empty() {
            extra.insert("tags".into(), self.tags.join(","));
        }
        if let Some(version) = &self.os_version {
            extra.insert("os_version".into(), version.clone());
        }
        ImageMetadata {
            name: self.name.clone().unwrap_or_else(|| self.id.clone()),
            aliases: self.name.iter().map(|_| self.id.clone()).collect(),
            provider: provider.to_owned(),
            promises: self.promise().into_iter().collect(),
            format: self.checked().ok(),
            artifact_size: self.size,
            virtual_size: self.virtual_size,
            platform: self.platform().unwrap_or_default(),
            distro: self.os_distro.clone(),
            revision: self.updated_at.clone().map(Revision::Serial),
            created: self.created_at.as_deref().and_then(timestamp::of_internet),
            min_disk: (self.min_disk > 0).then(|| self.min_disk.saturating_mul(1 << 30)),
            min_ram: (self.min_ram > 0).then(|| self.min_ram.saturating_mul(1 << 20)),
            hidden: self.os_hidden,
            extra,
            ..ImageMetadata::default()
        }
    }
}

impl Page {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        let page: Self = serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))?;
        match page.images.iter().find(|record| !is_id(&record.id)) {
            Some(record) => Err(no_id(&record.id)),
            None => Ok(page),
        }
    }

    /// The page after this one, which was at `url`.
    ///
    /// Glance writes a path from its own root, whatever stands before it at a proxy. So no more than the query is
    /// taken, after a look at whether the rest means this list.
    pub(crate) fn next(&self, url: &Url) -> Result<Option<Url>, Reason> {
        let Some(text) = &self.next else { return Ok(None) };
        let elsewhere = || Reason::new(format!("next page `{}` is not of the same list", printable(text)));
        let next = url.join(text).map_err(|_| elsewhere())?;
        if next.origin() != url.origin() || !next.path().ends_with("/images") || next.query().is_none() {
            return Err(elsewhere());
        }
        let mut page = url.clone();
        page.set_query(next.query());
        Ok(Some(page))
    }
}

/// The URL of the images below an endpoint, which may end in its version.
pub(crate) fn images(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let bare = endpoint.path().trim_end_matches('/');
    let root = bare.strip_suffix("/v2").unwrap_or(bare);
    url.set_path(&format!("{root}/v2/images"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The URL of one image.
pub(crate) fn image(endpoint: &Url, id: &str) -> Url {
    let mut url = images(endpoint);
    let path = format!("{}/{id}", url.path());
    url.set_path(&path);
    url
}

/// The value of a filter that means just `value`; `None` if there is none. Glance takes a value that begins with an
/// operator for one, and has quotes for what follows `in:`, but no way to write a quote there.
pub(crate) fn exactly(value: &str) -> Option<String> {
    const OPERATORS: [&str; 7] = ["in:", "gt:", "gte:", "lt:", "lte:", "eq:", "neq:"];
    if !OPERATORS.iter().any(|operator| value.starts_with(operator)) {
        return Some(value.to_owned());
    }
    (!value.contains('"')).then(|| format!("in:\"{value}\""))
}

fn no_id(text: &str) -> Reason {
    Reason::new(format!("image id `{}` is none", printable(text)))
}

/// Whether a text is an id of an image, as Glance makes them: a UUID.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
