//! What a file of an image is, decided by its bytes alone and by a parser of our own.
//!
//! Called twice in a pull: on the first bytes while the rest is still coming, so that junk is not downloaded, and on
//! the whole file before it is published. Nothing else ever looks into an untrusted image; what is found here is
//! recorded, and the machine is told that format and never guesses.
//!
//! Accepted: plain qcow2 ([`qcow2`]), and raw if the store is told so and the bytes are no format that is known.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

pub(crate) mod magic;
pub(crate) mod qcow2;
#[cfg(test)]
mod tests;

pub use qcow2::Qcow2Error;

/// So many bytes of the beginning are enough for a first verdict.
pub(crate) const HEAD: usize = 64 * 1024;
/// Unit of a disk's size.
const SECTOR: u64 = 512;
/// The end of a file where some formats have their mark.
const FOOTER: usize = 512;

/// Format of a stored image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// QEMU's copy-on-write format.
    Qcow2,
    /// Sector after sector.
    Raw,
}

impl fmt::Display for DiskFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        })
    }
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// The format.
    pub format: DiskFormat,
    /// Size of the disk that the guest sees, in bytes.
    pub virtual_size: u64,
}

/// What is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) allow_raw: bool,
    pub(crate) max_virtual_size: u64,
}

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
    #[error("{format}; only plain qcow2 images are taken{}", if *raw { ", and raw disks" } else { "" })]
    Format {
        /// Which.
        format: &'static str,
        /// Whether raw would do.
        raw: bool,
    },
    /// Compressed.
    #[error("image is compressed by {by}; compressed images are not supported yet, serve it uncompressed")]
    Compressed {
        /// With what.
        by: &'static str,
    },
    /// A page for people, as login portals send.
    #[error("server sent a web page instead of a disk image; check the URL and whether it wants a login")]
    WebPage,
    /// Nothing that is known.
    #[error("not a qcow2 image (it begins with `{start}`); raw images are taken only if `allow_raw` is set")]
    Unknown {
        /// The first bytes in hex.
        start: String,
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
        /// The limit.
        limit: u64,
    },
}

/// First verdict, on the beginning of an image that is still coming. `length` is what it will have, if that is known;
/// `whole` says that `head` is all there is.
pub(crate) fn check_head(
    head: &[u8],
    length: Option<u64>,
    whole: bool,
    web_page: bool,
    policy: Policy,
) -> Result<(), Refusal> {
    let length = if whole { Some(head.len() as u64) } else { length };
    match sort(head, web_page, policy)? {
        DiskFormat::Qcow2 => {
            let header = qcow2::parse(head, length).map_err(Refusal::Qcow2)?;
            check_size(header.virtual_size, policy)
        }
        DiskFormat::Raw => length.map_or(Ok(()), |length| check_size(length, policy)),
    }
}

/// Last verdict, on the whole file.
pub(crate) fn check_file(file: &File, length: u64, policy: Policy) -> io::Result<Result<ImageInfo, Refusal>> {
    // The header cluster, which is the largest thing that is parsed.
    let mut head = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(qcow2::MAX_CLUSTER)];
    file.read_exact_at(&mut head, 0)?;
    let mut footer = vec![0; head.len().min(FOOTER)];
    let at = length - footer.len() as u64;
    file.read_exact_at(&mut footer, at)?;
    Ok(judge(&head, &footer, length, policy))
}

fn judge(head: &[u8], footer: &[u8], length: u64, policy: Policy) -> Result<ImageInfo, Refusal> {
    let format = sort(head, false, policy)?;
    let virtual_size = match format {
        DiskFormat::Qcow2 => qcow2::parse(head, Some(length)).map_err(Refusal::Qcow2)?.virtual_size,
        DiskFormat::Raw => {
            if let Some(format) = magic::foreign_at_end(footer) {
                return Err(Refusal::Format { format, raw: policy.allow_raw });
            }
            if !length.is_multiple_of(SECTOR) {
                return Err(Refusal::Sectors { length });
            }
            length
        }
    };
    check_size(virtual_size, policy)?;
    Ok(ImageInfo { format, virtual_size })
}

/// Which of the formats that are taken the bytes claim to be. What has the mark of qcow2 is never raw.
fn sort(head: &[u8], web_page: bool, policy: Policy) -> Result<DiskFormat, Refusal> {
    if head.is_empty() {
        return Err(Refusal::Empty);
    }
    if head.starts_with(&qcow2::MAGIC) {
        return Ok(DiskFormat::Qcow2);
    }
    if let Some(by) = magic::compressed(head) {
        return Err(Refusal::Compressed { by });
    }
    if let Some(format) = magic::foreign(head) {
        return Err(Refusal::Format { format, raw: policy.allow_raw });
    }
    if web_page || magic::is_web_page(head) {
        return Err(Refusal::WebPage);
    }
    if policy.allow_raw {
        return Ok(DiskFormat::Raw);
    }
    let start = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    Err(Refusal::Unknown { start })
}

fn check_size(size: u64, policy: Policy) -> Result<(), Refusal> {
    let limit = policy.max_virtual_size;
    if size > limit { Err(Refusal::TooLarge { size, limit }) } else { Ok(()) }
}
