//! Block devices of the node.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A block device of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Its node in `/dev`.
    pub node: PathBuf,
    pub number: DeviceNumber,
}

/// The kernel's number of a device, as `major:minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

/// A text that is no device's number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not `major:minor`")]
pub struct NoDeviceNumber;

// === impl DeviceNumber ===

impl DeviceNumber {
    /// Of what `stat` tells in `st_rdev`.
    #[must_use]
    pub fn of(rdev: u64) -> Self {
        let number = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
        Self { major: number(nix::sys::stat::major(rdev)), minor: number(nix::sys::stat::minor(rdev)) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DeviceNumber {
    type Err = NoDeviceNumber;

    fn from_str(text: &str) -> Result<Self, NoDeviceNumber> {
        let (major, minor) = text.split_once(':').ok_or(NoDeviceNumber)?;
        let number = |text: &str| text.parse().map_err(|_not_a_number| NoDeviceNumber);
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl TryFrom<String> for DeviceNumber {
    type Error = NoDeviceNumber;

    fn try_from(text: String) -> Result<Self, NoDeviceNumber> {
        text.parse()
    }
}

impl From<DeviceNumber> for String {
    fn from(number: DeviceNumber) -> Self {
        number.to_string()
    }
}
