//! The store's records, as JSON files. `version` is 1; a record of another version is left alone.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::inspect::DiskFormat;
use crate::name::{Digest, ImageId};

/// Version of all records.
pub(crate) const VERSION: u32 = 1;

/// `meta/<hex>.json`: what is known of the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) version: u32,
    /// Length of the file.
    pub(crate) size: u64,
    /// What the inspector found; believed ever after.
    pub(crate) format: DiskFormat,
    pub(crate) virtual_size: u64,
    /// Other digests of the same bytes.
    #[serde(default)]
    pub(crate) aliases: Vec<Digest>,
    /// Seconds since 1970.
    pub(crate) verified_at: u64,
}

/// `refs/<handler>/<escaped reference>.json`: where a name got its image from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefRecord {
    pub(crate) version: u32,
    /// The reference in full.
    pub(crate) image: String,
    /// The URL, redacted. None if nothing was fetched, as the bytes were here.
    #[serde(default)]
    pub(crate) source: Option<String>,
    /// The rule that made the URL.
    #[serde(default)]
    pub(crate) by: Option<String>,
    #[serde(default)]
    pub(crate) etag: Option<String>,
    #[serde(default)]
    pub(crate) last_modified: Option<String>,
    /// Seconds since 1970.
    pub(crate) pulled_at: u64,
}

/// `leases/<holder>.json`: which images somebody needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) version: u32,
    pub(crate) images: Vec<ImageId>,
}

/// A record that is one of this version.
pub(crate) fn parse<R: DeserializeOwned>(text: &str) -> Option<R> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_str(text).ok()?;
    if version == VERSION { serde_json::from_str(text).ok() } else { None }
}

pub(crate) fn encode<R: Serialize>(record: &R) -> Vec<u8> {
    // Plain structures of strings and numbers always have a JSON form.
    let mut text = serde_json::to_vec_pretty(record).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_on_disk_are_pinned() {
        let id = ImageId::from_hex(&"ab".repeat(32)).expect("an id");
        let image = ImageRecord {
            version: VERSION,
            size: 1000,
            format: DiskFormat::Qcow2,
            virtual_size: 1 << 30,
            aliases: vec![format!("sha512:{}", "cd".repeat(64)).parse().expect("a digest")],
            verified_at: 1_795_000_000,
        };
        let name = RefRecord {
            version: VERSION,
            image: "cirros:latest".into(),
            source: Some("https://example.com/CirrOS.img".into()),
            by: Some("rule 1 (`cirros`) of `a.yaml`".into()),
            etag: Some("\"x\"".into()),
            last_modified: None,
            pulled_at: 1_795_000_000,
        };
        let lease = LeaseRecord { version: VERSION, images: vec![id] };
        let texts = [encode(&image), encode(&name), encode(&lease)].map(|text| String::from_utf8(text).expect("text"));
        insta::assert_snapshot!(texts.join(""));
        assert_eq!(parse::<ImageRecord>(&texts[0]), Some(image));
        assert_eq!(parse::<RefRecord>(&texts[1]), Some(name));
        assert_eq!(parse::<LeaseRecord>(&texts[2]), Some(lease));
        assert_eq!(parse::<LeaseRecord>(&texts[2].replace(": 1", ": 2")), None);
    }
}
