//! The store's records, as JSON files, of version 2. Those of version 1 are read as well; any other is left alone.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vmimage::convert::ForeignFormat;
use vmimage::digest::{Digest, ImageId};
use vmimage::inspect::DiskFormat;

use super::grant::Grant;

#[cfg(test)]
mod tests;

/// Version of all records that are written.
pub(crate) const VERSION: u32 = 2;

/// `meta/<hex>.json`: what is known of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) version: u32,
    /// Length of the file.
    pub(crate) size: u64,
    /// What the inspector found; believed ever after.
    pub(crate) format: DiskFormat,
    pub(crate) virtual_size: u64,
    /// What else the inspector found that somebody who opens the image must know, such as a way of compression.
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    /// Other digests that lead to these bytes.
    #[serde(default)]
    pub(crate) aliases: Vec<Alias>,
    /// The image below this one, if it is a layer.
    #[serde(default)]
    pub(crate) parent: Option<Parent>,
    /// Who gave these bytes, also if no name says so: what is below a layer has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given: Vec<Giver>,
    /// Whether it was made on this node of an image of another format. Elsewhere other bytes may come of the same image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) converted: bool,
    /// Seconds since 1970.
    pub(crate) verified_at: u64,
}

/// Where bytes came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Giver {
    /// As of [`Origin`].
    pub(crate) site: String,
    /// As of [`Origin`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

/// A digest that leads to stored bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alias {
    /// `algorithm:hex`.
    pub(crate) hash: String,
    pub(crate) covers: Cover,
    /// The provider that gave it, if it holds for no other: always so for a weak hash.
    #[serde(default)]
    pub(crate) provider: Option<String>,
    /// The format that these bytes have, if the stored ones were made of them. As another format they may be another
    /// disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) foreign: Option<ForeignFormat>,
}

/// A digest that a source gave, as [`Alias`] has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) hash: String,
    pub(crate) covers: Cover,
    pub(crate) foreign: Option<ForeignFormat>,
}

/// Which bytes an alias is the digest of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cover {
    /// Those that are stored.
    Content,
    /// Those that a server has.
    Hosted,
    /// Those that a server has, decompressed.
    Unpacked,
}

/// The image below a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parent {
    /// As the layer names it.
    pub(crate) named: String,
    /// Its format, if the layer says.
    #[serde(default)]
    pub(crate) format: Option<DiskFormat>,
    /// The image. None if it is not here: the layer cannot be used then.
    #[serde(default)]
    pub(crate) id: Option<ImageId>,
}

/// `refs/<handler>/<escaped reference>.json`: where a name got its image from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefRecord {
    pub(crate) version: u32,
    /// The reference in full.
    pub(crate) image: String,
    /// What it was bound to by the one who wrote this. A crash may leave a record beside the link to another image.
    #[serde(default)]
    pub(crate) id: Option<ImageId>,
    #[serde(default)]
    pub(crate) origin: Origin,
    /// Seconds since 1970.
    pub(crate) pulled_at: u64,
}

/// Where a name got its bytes from, and how the source would tell that they changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    /// The URL, redacted. None if nothing was fetched, as the bytes were here.
    pub(crate) source: Option<String>,
    /// The rule that made the URL.
    pub(crate) by: Option<String>,
    /// Id of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<String>,
    /// Digest of all that says where exactly it is; what follows holds for no other place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
    /// The same for whoever asks, where logins make a place another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) site: Option<String>,
    /// Scheme, host and port of the server that has the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// To whom the source gave it. None if an earlier release pulled it, which did not note that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) granted: Option<Vec<Grant>>,
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
    /// Digest of what was downloaded, as `algorithm:hex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) artifact: Option<String>,
    /// Digest of the manifest that the name stood for, in a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manifest: Option<Digest>,
    /// What it was resolved for. If the handler is for another platform now, the name must be resolved again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<String>,
    /// Only a weak hash, or none, speaks for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) weak: bool,
    /// User that the image's configuration names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// `leases/<holder>.json`: which images somebody needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) version: u32,
    pub(crate) images: Vec<ImageId>,
}

impl Cover {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Hosted => "hosted",
            Self::Unpacked => "unpacked",
        }
    }
}

impl Alias {
    /// Whether it stands for a digest that a source gave: `strong` hashes whoever gave them, unless the alias is one
    /// provider's alone, and weak ones only for the provider that gave this one.
    pub(crate) fn answers(&self, sought: &Sought, provider: &str) -> bool {
        let Sought { hash, covers, foreign } = sought;
        let anybodys = self.provider.is_none() && is_strong(&self.hash);
        let same = self.hash == *hash && self.covers == *covers && self.foreign == *foreign;
        same && (anybodys || self.provider.as_deref() == Some(provider))
    }

    /// A digest of the stored bytes.
    pub(crate) fn of_content(digest: &Digest) -> Self {
        Self { hash: digest.to_string(), covers: Cover::Content, provider: None, foreign: None }
    }
}

impl ImageRecord {
    /// Whether it was converted, as far as one can tell: earlier releases said so only where a digest of the original was known.
    pub(crate) fn is_converted(&self) -> bool {
        self.converted || self.aliases.iter().any(|alias| alias.foreign.is_some())
    }

    /// Whether the stored bytes have that digest, whoever says so.
    pub(crate) fn has(&self, digest: &Digest) -> bool {
        let text = digest.to_string();
        self.aliases.iter().any(|alias| {
            alias.hash == text && alias.covers == Cover::Content && alias.provider.is_none() && is_strong(&alias.hash)
        })
    }
}

/// Whether nobody can make other bytes of the same hash.
pub(crate) fn is_strong(hash: &str) -> bool {
    hash.starts_with("sha256:") || hash.starts_with("sha512:")
}

/// A kind of record.
pub(crate) trait Record: DeserializeOwned {
    /// Reads one of version 1.
    fn parse_v1(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl Record for LeaseRecord {}

impl Record for RefRecord {
    fn parse_v1(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct V1 {
            image: String,
            #[serde(default)]
            source: Option<String>,
            #[serde(default)]
            by: Option<String>,
            pulled_at: u64,
        }
        let V1 { image, source, by, pulled_at } = serde_json::from_str(text).ok()?;
        // What the source said of changes is not taken over: it may be of other bytes than the link leads to.
        let origin = Origin { source, by, ..Origin::default() };
        Some(Self { version: 1, image, id: None, origin, pulled_at })
    }
}

impl Record for ImageRecord {
    fn parse_v1(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct V1 {
            size: u64,
            format: DiskFormat,
            virtual_size: u64,
            #[serde(default)]
            aliases: Vec<Digest>,
            verified_at: u64,
        }
        let V1 { size, format, virtual_size, aliases, verified_at } = serde_json::from_str(text).ok()?;
        let aliases = aliases.iter().map(Alias::of_content).collect();
        Some(Self {
            version: 1,
            size,
            format,
            virtual_size,
            flags: Vec::new(),
            aliases,
            parent: None,
            given: Vec::new(),
            converted: false,
            verified_at,
        })
    }
}

/// A record that is one of a version that is known.
pub(crate) fn parse<R: Record>(text: &str) -> Option<R> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_str(text).ok()?;
    match version {
        1 => R::parse_v1(text),
        VERSION => serde_json::from_str(text).ok(),
        _ => None,
    }
}

pub(crate) fn encode<R: Serialize>(record: &R) -> Vec<u8> {
    // Plain structures of strings and numbers always have a JSON form.
    let mut text = serde_json::to_vec_pretty(record).unwrap_or_default();
    text.push(b'\n');
    text
}
