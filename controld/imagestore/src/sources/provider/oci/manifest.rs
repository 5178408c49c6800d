//! Manifests, indices and configurations of registries: JSON in, facts out (OCI image specification 1.1; Docker's
//! schema 2).
//!
//! Invariants: a document is only what its media type says, and both of the places that say it must agree; digests are
//! SHA-256 or SHA-512; no URL in a document is ever followed.

use std::collections::{BTreeMap, BTreeSet};

use common::Reason;
use serde::Deserialize;
use sha2::{Digest as _, Sha256, Sha512};
use vmimage::digest::hex;
use vmimage::error::printable;

use super::reference::strong;
use crate::sources::provider::{HashAlg, ImageHash, Platform};

/// Layers of an image.
pub(super) const MAX_LAYERS: usize = 128;

/// Media types of indices and manifests that are asked for.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

const INDICES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// Configuration of an artifact that has none.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Layers of an image, whatever they are compressed by.
const LAYERS: [&str; 2] = ["application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar"];

/// What errors call a document that is no JSON, or not of the shape that its type has.
const NOT_JSON: &str = "not the JSON that it must be";

fn unsupported(media_type: &str) -> Reason {
    Reason::new(format!("media type `{}` is not supported", printable(media_type)))
}

fn weak(digest: &str) -> Reason {
    Reason::new(format!("`{}` is no SHA-256 or SHA-512 digest", printable(digest)))
}

/// What a digest, a size and a type say of another document or of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) urls: Vec<String>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) platform: Option<WirePlatform>,
}

/// A platform as documents write it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct WirePlatform {
    architecture: String,
    os: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(rename = "os.version", default)]
    os_version: Option<String>,
    #[serde(rename = "os.features", default)]
    os_features: Vec<String>,
}

/// Images to choose from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    #[serde(default)]
    media_type: Option<String>,
    schema_version: u32,
    pub(super) manifests: Vec<Descriptor>,
}

/// One image, or an artifact.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default)]
    media_type: Option<String>,
    schema_version: u32,
    #[serde(default)]
    artifact_type: Option<String>,
    pub(super) config: Descriptor,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

/// An image's configuration.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(rename = "os.version", default)]
    os_version: Option<String>,
    #[serde(rename = "os.features", default)]
    os_features: Option<Vec<String>>,
    #[serde(default)]
    pub(super) created: Option<String>,
    #[serde(default)]
    pub(super) config: Option<Run>,
    #[serde(default)]
    rootfs: RootFs,
}

/// What the configuration says of running it. Docker writes `null` for what is empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Run {
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) env: Option<Vec<String>>,
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

/// What a registry has under a tag or digest.
#[derive(Debug, Clone)]
pub(super) enum Document {
    Index(Index),
    Manifest(Box<Manifest>),
}

/// Reads an index or a manifest, whose `Content-Type` is given.
pub(super) fn document(bytes: &[u8], content_type: Option<&str>) -> Result<Document, Reason> {
    /// What tells the kinds apart.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        #[serde(default)]
        media_type: Option<String>,
        #[serde(default)]
        schema_version: Option<u32>,
    }
    let kind: Kind = serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))?;
    // Parameters do not make it another type.
    let header = content_type.and_then(|value| value.split(';').next()).map(|value| value.trim().to_ascii_lowercase());
    if kind.schema_version == Some(1) || header.as_deref().is_some_and(|header| header.contains("manifest.v1+pretty")) {
        return Err(Reason::new("schema 1 manifests are not supported; push the image anew"));
    }
    // OCI documents may leave it out; then only the server says it.
    let media_type = match (kind.media_type, header) {
        (Some(document), Some(header)) if document != header => {
            let (document, header) = (printable(&document), printable(&header));
            return Err(Reason::new(format!("the document calls itself `{document}`, the server calls it `{header}`")));
        }
        (Some(one), _) | (None, Some(one)) => one,
        (None, None) => return Err(unsupported("")),
    };
    if INDICES.contains(&media_type.as_str()) {
        serde_json::from_slice(bytes).map(Document::Index).map_err(Reason::because(NOT_JSON))
    } else if MANIFESTS.contains(&media_type.as_str()) {
        serde_json::from_slice(bytes)
            .map(|manifest| Document::Manifest(Box::new(manifest)))
            .map_err(Reason::because(NOT_JSON))
    } else {
        Err(unsupported(&media_type))
    }
}

/// Compares a document with what was asked for. Gives its digest.
pub(super) fn check_digest(bytes: &[u8], expected: Option<&ImageHash>) -> Result<ImageHash, Reason> {
    let alg = expected.map_or(HashAlg::Sha256, ImageHash::alg);
    let sum = match alg {
        HashAlg::Sha512 => Sha512::digest(bytes).to_vec(),
        _ => Sha256::digest(bytes).to_vec(),
    };
    let hex = hex(&sum);
    let alg = if alg == HashAlg::Sha512 { alg } else { HashAlg::Sha256 };
    let actual = ImageHash::new(alg, &hex).map_err(|_| weak(&hex))?;
    match expected {
        Some(expected) if *expected != actual => Err(Reason::new(format!("the document is {actual}, not {expected}"))),
        _ => Ok(actual),
    }
}

impl Descriptor {
    pub(super) fn hash(&self) -> Result<ImageHash, Reason> {
        strong(&self.digest).ok_or_else(|| weak(&self.digest))
    }

    pub(super) fn is_index(&self) -> bool {
        INDICES.contains(&self.media_type.as_str())
    }

    /// Whether it is of an image. What else is in an index is passed over, as OCI wants it.
    pub(super) fn is_manifest(&self) -> bool {
        self.media_type.is_empty() || MANIFESTS.contains(&self.media_type.as_str())
    }

    /// Whether it does not say what the image runs on, so that only the image's configuration does.
    pub(super) fn is_silent(&self) -> bool {
        self.platform.is_none() && !self.attests()
    }

    /// What build tools attest about an image is beside it in the index, for a platform `unknown/unknown`.
    fn attests(&self) -> bool {
        self.annotations.contains_key("vnd.docker.reference.type")
    }

    /// What the described image runs on; nothing if it does not say, or is not meant to run.
    pub(super) fn platform(&self) -> Option<Platform> {
        let WirePlatform { architecture, os, variant, os_version, os_features } = self.platform.clone()?;
        (!self.attests() && os != "unknown" && architecture != "unknown")
            .then(|| platform(&os, &architecture, variant, os_version, os_features))
    }
}

fn platform(
    os: &str,
    architecture: &str,
    variant: Option<String>,
    os_version: Option<String>,
    os_features: Vec<String>,
) -> Platform {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let mut found = Platform::linux(architecture);
    found.os = os.to_owned();
    found.variant = given(variant).or(found.variant);
    found.os_version = given(os_version);
    found.os_features = os_features.into_iter().collect::<BTreeSet<_>>();
    found
}

impl Index {
    /// What is in it may be an image that nobody can run, but not something of another schema.
    pub(super) fn check(&self) -> Result<(), Reason> {
        check_schema(self.schema_version, self.media_type.as_deref())
    }
}

fn check_schema(version: u32, media_type: Option<&str>) -> Result<(), Reason> {
    if version == 2 {
        return Ok(());
    }
    Err(unsupported(&format!("{} of schema {version}", media_type.unwrap_or_default())))
}

/// What the layers of a manifest are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Layers of a file system, with a disk somewhere.
    Layers,
    /// One blob, which is the disk.
    Disk,
}

impl Manifest {
    /// What the layers are, if they are of one kind that we know.
    pub(super) fn content(&self) -> Result<Content, Reason> {
        check_schema(self.schema_version, self.media_type.as_deref())?;
        match self.layers.len() {
            0 => return Err(Reason::new("no layers")),
            count if count > MAX_LAYERS => {
                return Err(Reason::new(format!("{count} layers; at most {MAX_LAYERS} are allowed")));
            }
            _ => {}
        }
        for layer in &self.layers {
            let foreign = !layer.urls.is_empty()
                || layer.media_type.contains("foreign")
                || layer.media_type.contains("nondistributable");
            if foreign {
                let digest = printable(&layer.digest);
                return Err(Reason::new(format!(
                    "layer {digest} is to be fetched from other servers, which is not done"
                )));
            }
            layer.hash()?;
        }
        if self.is_pushed_file() {
            return Ok(Content::Disk);
        }
        if self.layers.iter().all(|layer| is_layer(&layer.media_type)) {
            return if CONFIGS.contains(&self.config.media_type.as_str()) {
                Ok(Content::Layers)
            } else {
                Err(unsupported(&self.config.media_type))
            };
        }
        let other = self.layers.iter().find(|layer| !is_layer(&layer.media_type));
        let media_type = other.map(|layer| layer.media_type.clone()).unwrap_or_default();
        let kind = self.artifact_type.as_deref().unwrap_or(&self.config.media_type);
        let is_artifact = self.artifact_type.is_some() || !CONFIGS.contains(&self.config.media_type.as_str());
        if self.layers.len() == 1 && (is_disk(&media_type) || is_artifact && is_disk(kind)) {
            Ok(Content::Disk)
        } else {
            Err(Reason::new(format!("an artifact of type `{}` is no disk of a VM", printable(&media_type))))
        }
    }

    /// Whether it is one file as `oras push` makes it: of the type of an uncompressed layer unless somebody gave it
    /// another, with its name, and in no image. A directory is an archive there, and marked as such.
    fn is_pushed_file(&self) -> bool {
        let [file] = &*self.layers else { return false };
        let named = file.annotations.contains_key("org.opencontainers.image.title");
        let archive = file.annotations.get("io.deis.oras.content.unpack").is_some_and(|unpack| unpack == "true");
        named && !archive && !CONFIGS.contains(&self.config.media_type.as_str()) && file.media_type == LAYERS[0]
    }

    /// Whether the configuration is one of an image.
    pub(super) fn has_config(&self) -> bool {
        self.config.media_type != EMPTY && CONFIGS.contains(&self.config.media_type.as_str())
    }
}

fn is_layer(media_type: &str) -> bool {
    LAYERS.iter().any(|layer| {
        let end = media_type.strip_prefix(layer);
        end.is_some_and(|end| matches!(end, "" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
    })
}

/// Types that tools give to disks: `application/vnd.*disk*`, `application/x-qemu-disk`, or bytes of no kind; compressed
/// or not.
fn is_disk(media_type: &str) -> bool {
    let plain = ["+gzip", "+zstd", "+xz"].iter().find_map(|end| media_type.strip_suffix(end)).unwrap_or(media_type);
    let of_disks = ["application/vnd.", "application/x-"].iter().any(|start| plain.starts_with(start));
    plain == "application/octet-stream" || of_disks && (plain.contains("disk") || plain.contains("qcow2"))
}

/// Reads a configuration.
pub(super) fn config(bytes: &[u8]) -> Result<Config, Reason> {
    serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))
}

impl Config {
    /// What the image runs on.
    pub(super) fn platform(&self) -> Platform {
        let features = self.os_features.clone().unwrap_or_default();
        platform(&self.os, &self.architecture, self.variant.clone(), self.os_version.clone(), features)
    }

    /// Digests of the layers when they are decompressed, one for each of `layers`.
    pub(super) fn diff_ids(&self, layers: usize) -> Result<Vec<ImageHash>, Reason> {
        let ids = &self.rootfs.diff_ids;
        if ids.len() != layers {
            let ids = ids.len();
            return Err(Reason::new(format!("{layers} layers, but {ids} digests of layers in the configuration")));
        }
        ids.iter().map(|id| strong(id).ok_or_else(|| weak(id))).collect()
    }
}
