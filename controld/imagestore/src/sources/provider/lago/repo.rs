//! A Lago repository's documents: `repo.metadata`, and the `.hash` and `.metadata` beside each image.

use std::collections::BTreeMap;

use common::Reason;
use serde::Deserialize;
use serde_json::Value;
use vmimage::error::printable;

use super::super::mirror::stays_below;
use super::super::{Covers, HashAlg, ImageHash, ImageMetadata, Platform, Promise};

const NOT_JSON: &str = "no valid JSON of that kind";

#[derive(Debug, Deserialize)]
pub(crate) struct Repo {
    pub(crate) name: String,
    #[serde(default)]
    sources: BTreeMap<String, SourceSpec>,
    #[serde(default)]
    templates: BTreeMap<String, Template>,
}

#[derive(Debug, Deserialize)]
struct SourceSpec {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    args: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Template {
    #[serde(default)]
    versions: BTreeMap<String, Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    source: String,
    handle: String,
    #[serde(default)]
    timestamp: f64,
}

/// Where a source's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below that URL.
    Url(String),
    /// Below that directory.
    Dir(String),
}

/// An image of a repository.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Image {
    pub(crate) template: String,
    pub(crate) version: String,
    /// Seconds since 1970, with parts of them.
    pub(crate) timestamp: f64,
    pub(crate) place: Place,
    /// Path below the place.
    pub(crate) handle: String,
}

/// What stands in a `.metadata`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    distro: Option<String>,
    arch: Option<String>,
    osinfo: Option<String>,
    #[serde(rename = "root-partition")]
    root_partition: Option<String>,
    expand: Option<String>,
    base: Option<String>,
    sha1: Option<String>,
    /// SHA-512 of the disk. Its neighbour `uncompressed_checksum` is, against its name, of the compressed file.
    checksum: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl Repo {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))
    }

    /// The image of a name: `template`, `template:version`, `repository:template` or all three, as Lago writes it also
    /// with `./` before it. Without a version it is the latest.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Image>, Reason> {
        let name = name.strip_prefix("./").unwrap_or(name);
        let own = name.strip_prefix(self.name.as_str()).and_then(|rest| rest.strip_prefix(':'));
        for name in [Some(name), own].into_iter().flatten() {
            let (template, version) = match name.split_once(':') {
                Some((template, version)) => (template, Some(version)),
                None => (name, None),
            };
            if let Some(found) = self.versions(template).find(|(id, _)| version.is_none_or(|wanted| wanted == *id)) {
                return self.image(template, found.0, found.1).map(Some);
            }
        }
        Ok(None)
    }

    /// The latest image of each template whose name begins with `prefix`, in the order of names.
    pub(crate) fn search<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = Result<Image, Reason>> + 'a {
        self.named().filter(move |(name, _)| name.starts_with(prefix)).map(|(_, image)| image)
    }

    /// The latest image of each template, with the template's name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, Result<Image, Reason>)> {
        self.templates.keys().filter_map(|name| {
            let (id, version) = self.versions(name).next()?;
            Some((name.as_str(), self.image(name, id, version)))
        })
    }

    /// Versions of a template, the latest first: by time, and at the same time by name.
    fn versions(&self, template: &str) -> impl Iterator<Item = (&str, &Version)> {
        let versions = self.templates.get(template).into_iter().flat_map(|template| &template.versions);
        let mut versions: Vec<_> = versions.map(|(id, version)| (id.as_str(), version)).collect();
        versions.sort_by(|one, other| other.1.timestamp.total_cmp(&one.1.timestamp).then_with(|| other.0.cmp(one.0)));
        versions.into_iter()
    }

    fn image(&self, template: &str, id: &str, version: &Version) -> Result<Image, Reason> {
        let Some(source) = self.sources.get(&version.source) else {
            let (id, source) = (printable(id), printable(&version.source));
            return Err(Reason::new(format!("version `{id}` is from source `{source}`, which is not described")));
        };
        Ok(Image {
            template: template.to_owned(),
            version: id.to_owned(),
            timestamp: version.timestamp,
            place: source.place(&version.source)?,
            handle: below(&version.handle)?,
        })
    }
}

impl SourceSpec {
    fn place(&self, id: &str) -> Result<Place, Reason> {
        let unusable = |key: &str| Reason::new(format!("source `{}` has no usable `{key}`", printable(id)));
        let text = |key: &str| {
            let text = self.args.get(key).and_then(Value::as_str);
            text.map(str::to_owned).ok_or_else(|| unusable(key))
        };
        match self.kind.as_str() {
            "http" => Ok(Place::Url(text("baseurl")?)),
            // Lago also takes `~` and `$HOME`. Whose they are is not for a document from the network to say.
            "file" => match text("root")? {
                root if root.starts_with('/') => Ok(Place::Dir(root)),
                _ => Err(unusable("root")),
            },
            kind => Err(Reason::new(format!(
                "source `{}` is of type `{}`; only `http` and `file` are known",
                printable(id),
                printable(kind)
            ))),
        }
    }
}

impl Image {
    /// Its name in Lago's own store, without the repository.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.template, self.version)
    }

    /// Seconds since 1970.
    pub(crate) fn created(&self) -> Option<u64> {
        // Saturates, which is right for what is out of range.
        self.timestamp.is_sign_positive().then_some(self.timestamp as u64)
    }

    /// Files that stand beside the disk, with that suffix. What builds repositories takes `.xz` off before it adds one.
    pub(crate) fn beside(&self, suffix: &str) -> Vec<String> {
        let mut files = vec![format!("{}{suffix}", self.handle)];
        files.extend(self.handle.strip_suffix(".xz").map(|bare| format!("{bare}{suffix}")));
        files
    }
}

impl Metadata {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))
    }

    /// Digests of the disk as it is once decompressed, with the one of a `.hash` file.
    pub(crate) fn promises(&self, hash_file: Option<&str>) -> Result<Vec<Promise>, Reason> {
        let written = [
            (HashAlg::Sha512, self.checksum.as_deref()),
            (HashAlg::Sha1, hash_file),
            (HashAlg::Sha1, self.sha1.as_deref()),
        ];
        let mut promises = Vec::new();
        for (alg, hex) in written {
            let Some(hex) = hex else { continue };
            let promise = Promise {
                hash: ImageHash::new(alg, hex.trim()).map_err(Reason::because("broken hash"))?,
                covers: Covers::Content,
            };
            if !promises.contains(&promise) {
                promises.push(promise);
            }
        }
        if promises.is_empty() {
            return Err(Reason::new("neither `.hash` nor `.metadata` with a hash beside it"));
        }
        Ok(promises)
    }

    /// What it runs on, if it says.
    pub(crate) fn platform(&self) -> Option<Platform> {
        self.arch.as_deref().map(Platform::linux)
    }

    /// Puts into `metadata` what is said of the disk.
    pub(crate) fn tell(self, metadata: &mut ImageMetadata) {
        if let Some(platform) = self.platform() {
            metadata.platform = platform;
        }
        metadata.distro = self.distro;
        metadata.osinfo = self.osinfo;
        metadata.root_partition = self.root_partition.or(self.expand);
        metadata.parent = self.base.filter(|base| !base.is_empty());
        metadata.extra.extend(self.others.into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((key, text)),
            Value::Bool(_) | Value::Number(_) => Some((key, value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }));
    }
}

/// A handle that, joined to any place, stays below it.
fn below(handle: &str) -> Result<String, Reason> {
    let leads_out = || Reason::new(format!("handle `{}` does not lead below its source", printable(handle)));
    if stays_below(handle) { Ok(handle.to_owned()) } else { Err(leads_out()) }
}
