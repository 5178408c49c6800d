//! Converts images of other formats to qcow2, with a `qemu-img` that can reach nothing but its input and its output.
//!
//! An image gets here only if a rule or a provider declares its format, and the store is configured to convert that
//! format:
//!
//! 1. Our own parser checks the file ([`ForeignFormat::check`]). It refuses an image that names other files, stands on
//!    another image or is cut off, before any other program opens it.
//! 2. `qemu-img` runs in a [`sandbox`]. It is told the format and does not probe.
//! 3. The result is inspected like a qcow2 image that was downloaded, and must be a disk of the size that our parser
//!    found.

mod device;
mod fields;
mod layout;
mod sandbox;
#[cfg(test)]
mod tests;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;
mod waited;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::off_reactor;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, in_seconds, of_io};
use crate::inspect::bytes::Bytes;
use crate::inspect::{DiskFormat, Expected, Policy, Refusal, Summary, examine};
pub use device::{ChainFile, Place};
use sandbox::Job;
pub use sandbox::SandboxError;
use waited::on_thread;

/// How long a `qemu-img` that was killed may take to be gone. What it writes to is nobody else's.
const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// A format that can be converted, if it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignFormat {
    /// VMware's, in one sparse file.
    Vmdk,
    /// Microsoft's older one.
    Vhd,
    /// Microsoft's newer one.
    Vhdx,
    /// VirtualBox's.
    Vdi,
}

/// What a conversion may take.
#[derive(Debug, Clone, Copy)]
pub struct ConvertLimits {
    /// How long it may last, the look at its tables included; default 30 minutes.
    pub time: Duration,
    /// Address space of `qemu-img`, in bytes; default 4 GiB.
    pub memory: u64,
    /// Largest result, in bytes; default 64 GiB.
    pub output: u64,
    /// Largest disk that the image may describe, in bytes; default 2 TiB.
    pub virtual_size: u64,
}

/// Why an image could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// Not a sound image of the format, or one that needs other files.
    #[error("declared as a {format} image, but {fault}")]
    Refused {
        /// What it was declared as.
        format: ForeignFormat,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The image, or the result, cannot be read.
    #[error("failed to read the image")]
    Read(#[source] io::Error),
    /// It took too long.
    #[error("converting a {format} image took longer than {}", in_seconds(*.deadline))]
    Deadline {
        /// What it was.
        format: ForeignFormat,
        /// How long it was given.
        deadline: Duration,
    },
    /// `qemu-img` could not be run, or failed.
    #[error("failed to convert a {format} image to qcow2")]
    Run {
        /// What it was.
        format: ForeignFormat,
        #[source]
        cause: SandboxError,
    },
    /// The result is not taken.
    #[error("the converted image is refused")]
    Result(#[from] Refusal),
    /// The result is another disk than the one that was checked.
    #[error("declared as a {format} image, and its disk is of {told} bytes, but `qemu-img` made one of {made} bytes")]
    OtherSize {
        /// What it was declared as.
        format: ForeignFormat,
        /// Size of the disk by our parser.
        told: u64,
        /// Size of what was made.
        made: u64,
    },
}

/// What is wrong with a foreign image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Breaks its format, or is of a kind that is not taken.
    Is(&'static str),
    /// Describes too large a disk, of so many bytes.
    TooLarge(u64),
}

/// Why a check ended.
#[derive(Debug)]
enum Stop {
    Fault(Fault),
    Io(io::Error),
}

/// Converts images with a `qemu-img`.
#[derive(Debug, Clone)]
pub struct Converter {
    program: PathBuf,
    limits: ConvertLimits,
}

impl Default for ConvertLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30 * 60), memory: 4 << 30, output: 64 << 30, virtual_size: 2 << 40 }
    }
}

impl ForeignFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Vmdk, Self::Vhd, Self::Vhdx, Self::Vdi];

    /// What QEMU calls it.
    fn driver(self) -> &'static str {
        match self {
            Self::Vmdk => "vmdk",
            Self::Vhd => "vpc",
            Self::Vhdx => "vhdx",
            Self::Vdi => "vdi",
        }
    }

    /// Looks whether a whole file is a sound image of this format that needs no other file, and has all of its disk,
    /// the size of which it returns. Takes as long as its tables are, which are no longer than the file.
    pub(crate) fn check(self, file: &dyn Bytes, length: u64, max_virtual_size: u64) -> Result<u64, ConvertError> {
        let checked = match self {
            Self::Vmdk => vmdk::check(file, length, max_virtual_size),
            Self::Vhd => vhd::check(file, length, max_virtual_size),
            Self::Vhdx => vhdx::check(file, length, max_virtual_size),
            Self::Vdi => vdi::check(file, length, max_virtual_size),
        };
        checked.map_err(|stop| match stop {
            Stop::Fault(fault) => ConvertError::Refused { format: self, fault },
            Stop::Io(error) => ConvertError::Read(error),
        })
    }
}

/// For fuzzing: `bytes` as an image of each format.
#[cfg(any(test, feature = "exercise"))]
#[doc(hidden)]
pub fn exercise(bytes: &[u8]) {
    for format in ForeignFormat::ALL {
        let _ = format.check(&bytes, bytes.len() as u64, u64::MAX);
    }
}

impl Converter {
    /// A converter that runs the `qemu-img` at this absolute path.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, limits: ConvertLimits) -> Self {
        Self { program: program.into(), limits }
    }

    /// Converts `input`, which is an image of that format, into `output`, which is empty. Dropping the future ends it,
    /// and `qemu-img` with it; `output` is to be thrown away then.
    ///
    /// # Errors
    /// See [`ConvertError`].
    pub async fn convert(&self, format: ForeignFormat, input: &File, output: &File) -> Result<Summary, ConvertError> {
        let (began, deadline, limit) = (Instant::now(), self.limits.time, self.limits.virtual_size);
        let late = ConvertError::Deadline { format, deadline };
        let whole = input.try_clone().map_err(ConvertError::Read)?;
        let length = whole.metadata().map_err(ConvertError::Read)?.len();
        let checked = on_thread(whole, deadline, move |whole| format.check(whole, length, limit)).await;
        let Ok(told) = checked else { return Err(late) };
        let told = told?;
        let job = Job {
            program: self.program.clone(),
            arguments: arguments(format).into(),
            input: input.try_clone().map_err(ConvertError::Read)?,
            more_inputs: Vec::new(),
            output: output.try_clone().map_err(ConvertError::Read)?,
            limits: ConvertLimits { time: deadline.saturating_sub(began.elapsed()), ..self.limits },
            patience: Some(KILL_DEADLINE),
        };
        sandbox::run(job).await.map_err(|cause| match cause {
            SandboxError::Deadline { .. } => late,
            cause => ConvertError::Run { format, cause },
        })?;
        let made = output.try_clone().map_err(ConvertError::Read)?;
        let examined = off_reactor(move || {
            let length = made.metadata().map_err(ConvertError::Read)?.len();
            let policy = Policy { allow_raw: false, max_virtual_size: limit };
            let expected = Expected { declared: Some(DiskFormat::Qcow2), ..policy.into() };
            let summary = examine(&made, length, expected).map_err(ConvertError::Read)??;
            check_same_size(format, told, summary.info().virtual_size)?;
            Ok(summary)
        });
        examined.await
    }
}

/// The sandbox makes the input its standard input and the output its standard output: no name of anybody's is used.
fn arguments(format: ForeignFormat) -> [String; 5] {
    let mut input = serde_json::json!({
        "driver": format.driver(),
        "file": { "driver": "file", "filename": "/proc/self/fd/0", "locking": "off" },
    });
    if format == ForeignFormat::Vhd {
        // Not what cylinders, heads and sectors come to, which it believes of some makers.
        input["force_size_calc"] = "current_size".into();
    }
    ["convert".into(), "-O".into(), "qcow2".into(), format!("json:{input}"), "/proc/self/fd/1".into()]
}

fn check_same_size(format: ForeignFormat, told: u64, made: u64) -> Result<(), ConvertError> {
    if told == made { Ok(()) } else { Err(ConvertError::OtherSize { format, told, made }) }
}

impl ConvertError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { .. } | Self::Result(_) | Self::OtherSize { .. } => ErrorKind::Refused,
            Self::Read(error) => of_io(error),
            Self::Run { cause, .. } => cause.kind(),
            Self::Deadline { .. } => ErrorKind::Deadline,
        }
    }
}

impl fmt::Display for ForeignFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Vmdk => "VMDK",
            Self::Vhd => "VHD",
            Self::Vhdx => "VHDX",
            Self::Vdi => "VDI",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(fault) => out.write_str(fault),
            Self::TooLarge(size) => write!(out, "its disk of {size} bytes is too large"),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Stops a check with `fault` unless all is well.
fn require(well: bool, fault: &'static str) -> Result<(), Stop> {
    if well { Ok(()) } else { Err(Stop::Fault(Fault::Is(fault))) }
}

/// Looks at the size of a disk, before anything is read that is as large.
fn check_size(size: u64, max: u64) -> Result<(), Stop> {
    require(size != 0, "its disk has no bytes")?;
    if size > max { Err(Stop::Fault(Fault::TooLarge(size))) } else { Ok(()) }
}
