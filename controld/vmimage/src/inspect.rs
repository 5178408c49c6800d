//! Decides what an image file is, by its bytes alone and with a parser of our own.
//!
//! A pull calls it twice: on the first bytes while the rest is still coming ([`check_head`]), so that junk is not
//! downloaded, and on the whole file before it is published ([`examine`]). No other code looks into an untrusted image:
//! the format that is found here is recorded, and QEMU is told that format and never probes. [`inspect_path`] gives the
//! same verdict on a file outside of the store.
//!
//! Accepted: plain qcow2 ([`qcow2`]); raw, if it is declared so, or if the store is configured to take files of no
//! known format as raw. A file that begins as qcow2 does is never raw, and a file that is declared as one format is
//! never taken as another. Memory is bounded by constants, whatever an image claims.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

pub(crate) mod bytes;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
pub(crate) mod magic;
mod mbr;
mod parent;
mod path;
pub(crate) mod qcow2;
mod refusal;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
pub use parent::{Parent, ParentRef};
pub use path::{InspectError, InspectOptions, inspect_path};
pub use path::{LARGEST_DISK, LARGEST_FILE};
pub use qcow2::{Compression, Qcow2Error};
pub use refusal::Refusal;

pub use bytes::Bytes;
use qcow2::tables::Stop;

/// So many bytes of the beginning are enough for a first verdict.
pub const HEAD: usize = 64 * 1024;
/// Unit of a disk's size.
const SECTOR: u64 = 512;

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

/// What must be known of an image to use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    pub format: DiskFormat,
    /// Size of the disk that the guest sees, in bytes.
    pub virtual_size: u64,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub format: DiskFormat,
    /// Size of the disk that the guest sees, in bytes.
    pub virtual_size: u64,
    /// Size of the file, in bytes.
    pub file_size: u64,
    /// What only qcow2 images have.
    pub qcow2: Option<Qcow2Summary>,
}

/// What was found in a qcow2 image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qcow2Summary {
    /// Version of the format, 2 or 3.
    pub version: u32,
    /// Size of a cluster, in bytes.
    pub cluster_size: u64,
    /// How clusters are compressed, if they are.
    pub compression: Compression,
    /// Width of a reference count.
    pub refcount_bits: u32,
    /// Features that change nothing for who only reads.
    pub features: Vec<&'static str>,
    /// How many snapshots are in it; they are not used.
    pub snapshots: u32,
    /// How many bitmaps are in it; they are not used.
    pub bitmaps: u32,
    /// The image that it stands on.
    pub parent: Option<Parent>,
}

impl Summary {
    /// What must be known to use it.
    #[must_use]
    pub fn info(&self) -> ImageInfo {
        ImageInfo { format: self.format, virtual_size: self.virtual_size }
    }

    /// The image that it stands on.
    #[must_use]
    pub fn parent(&self) -> Option<&Parent> {
        self.qcow2.as_ref()?.parent.as_ref()
    }
}

/// What a store takes.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    pub allow_raw: bool,
    pub max_virtual_size: u64,
}

/// What one image must be.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    pub policy: Policy,
    /// The format that a rule, a provider or a user says it has.
    pub declared: Option<DiskFormat>,
    /// Whether it may stand on another image; who sets this must look that one up.
    pub layered: bool,
    /// Whether QEMU writes to it, which repairs what it has left behind when it was killed. Of such a file it is not to matter what it has
    /// not come to write.
    pub written: bool,
}

impl From<Policy> for Expected {
    fn from(policy: Policy) -> Self {
        Self { policy, declared: None, layered: false, written: false }
    }
}

/// First verdict, on the beginning of an image that is still coming: [`HEAD`] bytes of it. `length` is what it will
/// have, if that is known; `whole` says that `head` is all there is.
pub fn check_head(
    head: &[u8],
    length: Option<u64>,
    whole: bool,
    web_page: bool,
    expected: impl Into<Expected>,
) -> Result<(), Refusal> {
    let expected = expected.into();
    let length = if whole { Some(head.len() as u64) } else { length };
    match sort(head, web_page, expected)? {
        DiskFormat::Qcow2 => {
            let header = qcow2::parse(head, length, expected).map_err(Refusal::Qcow2)?;
            check_size(header.virtual_size, expected.policy)
        }
        DiskFormat::Raw => {
            check_boot_record(head)?;
            length.map_or(Ok(()), |length| check_size(length, expected.policy))
        }
    }
}

/// Last verdict, on all `length` bytes, with all that was found.
pub fn examine(file: &dyn Bytes, length: u64, expected: impl Into<Expected>) -> io::Result<Result<Summary, Refusal>> {
    match look(file, length, expected.into()) {
        Ok(summary) => Ok(Ok(summary)),
        Err(Failed::Refused(refusal)) => Ok(Err(refusal)),
        Err(Failed::Io(error)) => Err(error),
    }
}

enum Failed {
    Refused(Refusal),
    Io(io::Error),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Refused(error) => Self::Refused(Refusal::Qcow2(error)),
            Stop::Io(error) => Self::Io(error),
        }
    }
}

fn look(file: &dyn Bytes, length: u64, expected: Expected) -> Result<Summary, Failed> {
    let mut head = vec![0; usize::try_from(length).unwrap_or(HEAD).min(HEAD)];
    file.read(0, &mut head)?;
    let mut footer = vec![0; head.len().min(magic::FOOTER)];
    file.read(length - footer.len() as u64, &mut footer)?;
    let format = sort(&head, false, expected)?;
    let policy = expected.policy;
    match format {
        DiskFormat::Qcow2 => {
            let header = qcow2::parse(&head, Some(length), expected).map_err(Refusal::Qcow2)?;
            // Before anything is read that is as large as the disk.
            check_size(header.virtual_size, policy)?;
            // At the end of one that is written to is what its guest has written last.
            if let Some(other) = magic::foreign_at_end(&footer).filter(|_| !expected.written) {
                return Err(Refusal::Qcow2(Qcow2Error::TwoFormats(other)).into());
            }
            qcow2::tables::walk(file, length, &header, expected.written)?;
            Ok(of_qcow2(header, length))
        }
        DiskFormat::Raw => {
            check_boot_record(&head)?;
            if let Some(format) = magic::foreign_at_end(&footer) {
                return Err(Refusal::Format { format, raw: true }.into());
            }
            if !length.is_multiple_of(SECTOR) {
                return Err(Refusal::Sectors { length }.into());
            }
            check_size(length, policy)?;
            Ok(Summary { format, virtual_size: length, file_size: length, qcow2: None })
        }
    }
}

fn of_qcow2(header: qcow2::Header, length: u64) -> Summary {
    let features = [
        (header.extended_l2, "extended-l2"),
        (header.lazy_refcounts, "lazy-refcounts"),
        (header.consistent_bitmaps, "bitmaps"),
    ];
    Summary {
        format: DiskFormat::Qcow2,
        virtual_size: header.virtual_size,
        file_size: length,
        qcow2: Some(Qcow2Summary {
            version: header.version,
            cluster_size: header.cluster(),
            compression: header.compression,
            refcount_bits: header.refcount_bits,
            features: features.into_iter().filter_map(|(is, name)| is.then_some(name)).collect(),
            snapshots: header.snapshots,
            bitmaps: header.bitmaps,
            parent: header.parent,
        }),
    }
}

/// Which of the formats that are taken the bytes claim to be. What has the mark of qcow2 is never raw.
fn sort(head: &[u8], web_page: bool, expected: Expected) -> Result<DiskFormat, Refusal> {
    let Expected { policy, declared, .. } = expected;
    if head.is_empty() {
        return Err(Refusal::Empty);
    }
    if declared == Some(DiskFormat::Raw) && !policy.allow_raw {
        return Err(Refusal::RawNotAllowed);
    }
    if head.starts_with(&qcow2::MAGIC) {
        return match declared {
            Some(DiskFormat::Raw) => Err(Refusal::NotAsDeclared { found: "a qcow2 image" }),
            _ => Ok(DiskFormat::Qcow2),
        };
    }
    if let Some(by) = magic::compressed(head) {
        return Err(Refusal::Compressed { by });
    }
    if let Some(format) = magic::foreign(head) {
        // What can be written to a USB stick is a disk too, if somebody says so.
        let hybrid = format == magic::ISO && mbr::is_there(head);
        return match declared {
            Some(DiskFormat::Raw) if hybrid => Ok(DiskFormat::Raw),
            Some(DiskFormat::Raw) => Err(Refusal::NotAsDeclared { found: format }),
            _ => Err(Refusal::Format { format, raw: policy.allow_raw }),
        };
    }
    if web_page || magic::is_web_page(head) {
        return Err(Refusal::WebPage);
    }
    let start = || head.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    match declared {
        Some(DiskFormat::Raw) => Ok(DiskFormat::Raw),
        None if policy.allow_raw => Ok(DiskFormat::Raw),
        None => Err(Refusal::Unknown { start: start() }),
        Some(DiskFormat::Qcow2) => Err(Refusal::NotQcow2 { start: start() }),
    }
}

fn check_boot_record(head: &[u8]) -> Result<(), Refusal> {
    mbr::fault(head).map_or(Ok(()), |fault| Err(Refusal::BootRecord { fault }))
}

fn check_size(size: u64, policy: Policy) -> Result<(), Refusal> {
    let limit = policy.max_virtual_size;
    if size > limit { Err(Refusal::TooLarge { size, limit }) } else { Ok(()) }
}
