//! Why an image is not taken.

use super::{Qcow2Error, SECTOR, magic};

/// How an image is made of what can be converted.
const CONVERTED: &str = "; a pull converts it if `images.convert` lists its format, and a rule's `format` or \
     a provider declares it";

/// Why an image is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nothing there.
    #[error("empty image")]
    Empty,
    /// It begins as qcow2 does and is not a sound one.
    #[error("unsafe or broken qcow2 image")]
    Qcow2(#[source] Qcow2Error),
    /// Some other format.
    #[error(
        "{format}; only plain qcow2 images are taken{}{}",
        if *raw { ", and raw disks" } else { "" },
        if magic::is_convertible(format) { CONVERTED } else { "" },
    )]
    Format {
        /// Which.
        format: &'static str,
        /// Whether raw would do.
        raw: bool,
    },
    /// It was called raw.
    #[error("declared as a raw disk, but it is {found}")]
    NotAsDeclared {
        /// What it is.
        found: &'static str,
    },
    /// Compressed, and it was not expected to be.
    #[error("compressed by {by}; decompress it first")]
    Compressed {
        /// With what.
        by: &'static str,
    },
    /// A page for people, as login portals send.
    #[error("a web page instead of a disk image; check the URL and whether the server wants a login")]
    WebPage,
    /// Nothing that is known.
    #[error("not a qcow2 image (it begins with `{start}`); raw images are taken only if `allow_raw` is set")]
    Unknown {
        /// The first bytes in hex.
        start: String,
    },
    /// It was called qcow2.
    #[error("not a qcow2 image (it begins with `{start}`)")]
    NotQcow2 {
        /// The first bytes in hex.
        start: String,
    },
    /// It was called raw, and that is not taken here.
    #[error("declared as a raw disk; raw images are taken only if `allow_raw` is set")]
    RawNotAllowed,
    /// The beginning looks like a boot record, and is none.
    #[error("raw image with a broken partition table: {fault}")]
    BootRecord {
        /// What is wrong.
        fault: &'static str,
    },
    /// No number of whole sectors.
    #[error("raw image of {length} bytes, which is no number of whole {SECTOR}-byte sectors; is it cut off?")]
    Sectors {
        /// What it has.
        length: u64,
    },
    /// Too large a disk.
    #[error("disk of {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// What the guest would see.
        size: u64,
        limit: u64,
    },
    /// Too large a file.
    #[error("file of {length} bytes; at most {limit} are allowed")]
    FileTooLarge {
        /// What it has.
        length: u64,
        limit: u64,
    },
}
