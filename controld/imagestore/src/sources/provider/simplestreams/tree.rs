//! The two documents of Simple Streams 1.0, an index of product files and a product file: bytes in, items out.
//!
//! Keys inherit downward: what an item does not say, its version says, or its product, or the file. Only what was
//! chosen is checked ([`Item::checked`]): a broken product that nobody asks for is nobody's trouble, but the newest
//! version of one that is asked for is never passed over for an older one.

use std::collections::BTreeMap;

use common::Reason;
use serde::{Deserialize, Deserializer};
use vmimage::error::printable;
use vmimage::inspect::DiskFormat;

use super::super::mirror::stays_below;
use super::super::{HashAlg, ImageHash, Platform, timestamp};

const NOT_JSON: &str = "no valid JSON of that format";

/// A document that may be older than another.
pub(crate) trait Dated: Sized {
    /// Whether a signed one is nothing without its date.
    const MUST_BE_DATED: bool;

    fn parse(bytes: &[u8]) -> Result<Self, Reason>;

    /// Its date as written.
    fn date(&self) -> Option<&str>;
}

#[derive(Debug)]
pub(crate) struct Index {
    updated: Option<String>,
    /// Paths of files with products of what can be downloaded, by content id.
    pub(crate) files: BTreeMap<String, String>,
}

/// A file of products.
#[derive(Debug, Default)]
pub(crate) struct Products {
    /// By product id.
    pub(crate) products: BTreeMap<String, Product>,
    /// What holds for all.
    facts: Facts,
}

/// Keys that may stand at any level.
#[derive(Debug, Clone, Default, Deserialize)]
struct Facts {
    arch: Option<String>,
    os: Option<String>,
    release: Option<String>,
    release_title: Option<String>,
    version: Option<String>,
    aliases: Option<String>,
    pubname: Option<String>,
    ftype: Option<String>,
    path: Option<String>,
    #[serde(default, deserialize_with = "size")]
    size: Option<u64>,
    md5: Option<String>,
    sha256: Option<String>,
    sha512: Option<String>,
    updated: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Product {
    #[serde(flatten)]
    facts: Facts,
    #[serde(default)]
    versions: BTreeMap<String, Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    #[serde(flatten)]
    facts: Facts,
    #[serde(default)]
    items: BTreeMap<String, Facts>,
}

/// A disk of a version of a product, not checked yet.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) product: String,
    pub(crate) serial: String,
    key: String,
    facts: Facts,
}

/// A disk that can be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Path below the root of the mirror.
    pub(crate) path: String,
    pub(crate) size: Option<u64>,
    /// The strongest hash of it.
    pub(crate) hash: ImageHash,
    /// The others.
    pub(crate) weaker: Vec<ImageHash>,
}

impl Dated for Index {
    const MUST_BE_DATED: bool = true;

    fn date(&self) -> Option<&str> {
        self.updated.as_deref()
    }

    fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            format: String,
            updated: Option<String>,
            index: BTreeMap<String, Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(default)]
            format: String,
            datatype: Option<String>,
            path: Option<String>,
        }
        let raw: Raw = serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))?;
        must_be(&raw.format, "index:1.0")?;
        // `image-ids` are names within clouds, with nothing to download.
        let downloads = raw
            .index
            .into_iter()
            .filter(|(_, entry)| entry.format == "products:1.0" && entry.datatype.as_deref() != Some("image-ids"));
        let files = downloads.filter_map(|(id, entry)| Some((id, entry.path?)));
        let files = files.map(|(id, path)| Ok((id, below_root(&path)?))).collect::<Result<_, Reason>>()?;
        Ok(Self { updated: raw.updated, files })
    }
}

impl Dated for Products {
    // Not every producer dates these.
    const MUST_BE_DATED: bool = false;

    fn date(&self) -> Option<&str> {
        self.facts.updated.as_deref()
    }

    fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            format: String,
            products: BTreeMap<String, Product>,
            #[serde(flatten)]
            facts: Facts,
        }
        let raw: Raw = serde_json::from_slice(bytes).map_err(Reason::because(NOT_JSON))?;
        must_be(&raw.format, "products:1.0")?;
        Ok(Self { products: raw.products, facts: raw.facts })
    }
}

impl Products {
    /// The newest disk of every product: of the greatest serial, in the order of its bytes, that has a disk at all. Of
    /// several kinds in a version, the one that `kinds` names first.
    pub(crate) fn newest<'a>(&'a self, kinds: &'a [String]) -> impl Iterator<Item = Item> + 'a {
        self.products.keys().filter_map(|id| self.versions(id, kinds).next())
    }

    /// The disk of each version of a product, the newest first.
    pub(crate) fn versions<'a>(&'a self, product: &'a str, kinds: &'a [String]) -> impl Iterator<Item = Item> + 'a {
        let found = self.products.get_key_value(product);
        found.into_iter().flat_map(move |(id, product)| {
            product.versions.iter().rev().filter_map(move |(serial, version)| {
                let above = version.facts.clone().or(&product.facts).or(&self.facts);
                let disk = |(key, item): (&String, &Facts)| {
                    let kind = item.ftype.as_ref().or(above.ftype.as_ref());
                    let rank = kinds.iter().position(|wanted| wanted == key || Some(wanted) == kind)?;
                    let facts = item.clone().or(&above);
                    Some((rank, Item { product: id.clone(), serial: serial.clone(), key: key.clone(), facts }))
                };
                // The first of equal rank, in the order of keys.
                version.items.iter().filter_map(disk).min_by_key(|(rank, _)| *rank).map(|(_, item)| item)
            })
        })
    }

    /// Disks that a name means, the newest of each product: by the product's id, one of its aliases, its release or
    /// version; or a disk of just one version by its public name.
    pub(crate) fn named<'a>(&'a self, name: &'a str, kinds: &'a [String]) -> impl Iterator<Item = Item> + 'a {
        self.products.keys().filter_map(move |id| {
            let means = |item: &Item| item.facts.pubname.as_deref() == Some(name);
            let newest = self.versions(id, kinds).next()?;
            if newest.names().any(|known| known == name) { Some(newest) } else { self.versions(id, kinds).find(means) }
        })
    }
}

impl Facts {
    /// These, and what they do not say from `above`.
    fn or(self, above: &Self) -> Self {
        let or = |own: Option<String>, above: &Option<String>| own.or_else(|| above.clone());
        Self {
            arch: or(self.arch, &above.arch),
            os: or(self.os, &above.os),
            release: or(self.release, &above.release),
            release_title: or(self.release_title, &above.release_title),
            version: or(self.version, &above.version),
            aliases: or(self.aliases, &above.aliases),
            pubname: or(self.pubname, &above.pubname),
            ftype: or(self.ftype, &above.ftype),
            path: or(self.path, &above.path),
            size: self.size.or(above.size),
            md5: or(self.md5, &above.md5),
            sha256: or(self.sha256, &above.sha256),
            sha512: or(self.sha512, &above.sha512),
            updated: or(self.updated, &above.updated),
        }
    }
}

impl Item {
    /// All names, the product's id first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let Facts { pubname, aliases, release, version, .. } = &self.facts;
        let aliases = aliases.iter().flat_map(|aliases| aliases.split(',')).map(str::trim);
        let others = [pubname, release, version].into_iter().flatten().map(String::as_str);
        std::iter::once(self.product.as_str()).chain(others).chain(aliases).filter(|name| !name.is_empty())
    }

    /// What it runs on, if it says.
    pub(crate) fn platform(&self) -> Option<Platform> {
        let mut platform = Platform::linux(self.facts.arch.as_deref()?);
        if self.facts.os.as_deref().is_some_and(|os| os.eq_ignore_ascii_case("windows")) {
            platform.os = "windows".into();
        }
        Some(platform)
    }

    pub(crate) fn distro(&self) -> Option<&str> {
        self.facts.os.as_deref()
    }

    pub(crate) fn title(&self) -> Option<&str> {
        self.facts.release_title.as_deref()
    }

    /// The format that the end of its kind or of its path tells. Compression does not matter.
    pub(crate) fn format(&self) -> Option<DiskFormat> {
        let kind = self.facts.ftype.as_deref().unwrap_or(&self.key);
        [kind, self.facts.path.as_deref().unwrap_or_default()].into_iter().find_map(|name| {
            let bare = [".xz", ".gz", ".zst", ".bz2"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            match bare.rsplit('.').next() {
                Some("qcow2") => Some(DiskFormat::Qcow2),
                Some("raw") => Some(DiskFormat::Raw),
                _ => None,
            }
        })
    }

    pub(crate) fn updated(&self) -> Option<u64> {
        self.facts.updated.as_deref().and_then(timestamp::of_mail)
    }

    /// The disk, if all that it takes is there.
    pub(crate) fn checked(&self) -> Result<Disk, Reason> {
        let item = || printable(&format!("{}/{}/{}", self.product, self.serial, self.key));
        let path = self.facts.path.as_deref().ok_or_else(|| Reason::new(format!("item `{}` has no path", item())))?;
        let Facts { sha512, sha256, md5, size, .. } = &self.facts;
        let written = [(HashAlg::Sha512, sha512), (HashAlg::Sha256, sha256), (HashAlg::Md5, md5)];
        let mut hashes = Vec::new();
        for (alg, hex) in written {
            if let Some(hex) = hex {
                let hash = ImageHash::new(alg, hex.trim());
                let broken = || Reason::new(format!("item `{}` has a broken hash", item()));
                hashes.push(hash.map_err(|cause| broken().with(cause))?);
            }
        }
        if hashes.is_empty() {
            return Err(Reason::new(format!("item `{}` has no hash", item())));
        }
        let hash = hashes.remove(0);
        Ok(Disk { path: below_root(path)?, size: *size, hash, weaker: hashes })
    }
}

impl Disk {
    pub(crate) fn hashes(&self) -> impl Iterator<Item = &ImageHash> {
        std::iter::once(&self.hash).chain(&self.weaker)
    }
}

fn must_be(found: &str, wanted: &'static str) -> Result<(), Reason> {
    if found == wanted {
        return Ok(());
    }
    Err(Reason::new(format!("format `{}`, not `{wanted}`", printable(found))))
}

/// A path that, joined to any root, stays below it.
fn below_root(path: &str) -> Result<String, Reason> {
    if stays_below(path) {
        return Ok(path.to_owned());
    }
    Err(Reason::new(format!("path `{}` does not lead below the root of the mirror", printable(path))))
}

/// A size is a number, or a text of one.
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    use serde::de::Error as _;
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Null => Ok(None),
        serde_json::Value::Number(number) if number.is_u64() => Ok(number.as_u64()),
        serde_json::Value::String(text) => text.parse().map(Some).map_err(D::Error::custom),
        _ => Err(D::Error::custom("a size is a whole number of bytes")),
    }
}
