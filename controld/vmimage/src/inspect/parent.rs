//! What an image may say that it stands on: another image by its hash, or by Lago's name of a template's version.
//!
//! Any other text in the backing file field is refused, as QEMU would open it as a path or a URL. QEMU is never given
//! the text that is accepted either: the store looks the image up, and libvirt is told every file of the chain by its
//! path.

use std::fmt;

use super::DiskFormat;
use crate::digest::Digest;

/// Longest name or version.
const MAX_PART: usize = 128;

/// What QEMU takes for a protocol in front of a colon, and algorithms, which only stand in front of a whole hash.
const NO_NAMES: [&str; 38] = [
    "blkdebug",
    "blklogwrites",
    "blkreplay",
    "blkverify",
    "copy-on-read",
    "compress",
    "data",
    "exec",
    "fat",
    "fd",
    "file",
    "ftp",
    "ftps",
    "gluster",
    "host_cdrom",
    "host_device",
    "http",
    "https",
    "io_uring",
    "iscsi",
    "json",
    "md5",
    "nbd",
    "nfs",
    "null-aio",
    "null-co",
    "nvme",
    "quorum",
    "rbd",
    "sftp",
    "sha1",
    "sha256",
    "sha512",
    "sheepdog",
    "ssh",
    "tftp",
    "vvfat",
    "vxhs",
];

/// The image that another one stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Which.
    pub reference: ParentRef,
    /// Its format, if the image says.
    pub format: Option<DiskFormat>,
}

/// How an image names its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParentRef {
    /// By its content.
    Hash(Digest),
    /// By its name at the provider that the image is from.
    Named {
        /// Name of the template.
        name: String,
        /// Version of the template.
        version: String,
    },
}

impl ParentRef {
    /// Reads the field of the backing file: `sha256:…`, `sha512:…`, `NAME:VERSION` or `./NAME:VERSION`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(digest) = text.parse() {
            return Some(Self::Hash(digest));
        }
        let (name, version) = text.strip_prefix("./").unwrap_or(text).split_once(':')?;
        let sound = is_part(name) && is_part(version) && !NO_NAMES.contains(&name.to_ascii_lowercase().as_str());
        sound.then(|| Self::Named { name: name.into(), version: version.into() })
    }
}

fn is_part(part: &str) -> bool {
    part.len() <= MAX_PART
        && part.starts_with(|first: char| first.is_ascii_alphanumeric())
        && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

impl fmt::Display for ParentRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash(digest) => write!(out, "{digest}"),
            Self::Named { name, version } => write!(out, "{name}:{version}"),
        }
    }
}
