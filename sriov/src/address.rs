//! Addresses of PCI functions, with full domains.
//!
//! Called by every module of this crate and by `tapmanager`, which reads addresses from CNI results and notes.
//!
//! Kernel ABI: names in `/sys/bus/pci/devices`, which `pci_setup_device` prints as `%04x:%02x:%02x.%d`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Address of a PCI function: domain, bus, device and function. Ordered as the kernel's names are when all have the same
/// length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddr {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a PCI address such as `0000:3b:02.1`", printable(text))]
pub struct PciAddrError {
    text: String,
}

// === impl PciAddr ===

impl FromStr for PciAddr {
    type Err = PciAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            // Domains of more than 16 bits exist (VMD, Hyper-V) and are printed with as many digits as they need.
            let domain = hex(domain, 4..=8)?;
            let bus = u8::try_from(hex(bus, 2..=2)?).ok()?;
            let device = u8::try_from(hex(device, 2..=2)?).ok().filter(|device| *device < 32)?;
            let function = u8::try_from(hex(function, 1..=1)?).ok().filter(|function| *function < 8)?;
            Some(Self { domain, bus, device, function })
        };
        parse().ok_or_else(|| PciAddrError { text: text.to_owned() })
    }
}

impl TryFrom<String> for PciAddr {
    type Error = PciAddrError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PciAddr> for String {
    fn from(addr: PciAddr) -> Self {
        addr.to_string()
    }
}

impl fmt::Display for PciAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

fn hex(text: &str, digits: RangeInclusive<usize>) -> Option<u32> {
    let well_formed = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then(|| u32::from_str_radix(text, 16).ok())?
}

fn printable(text: &str) -> String {
    text.chars().take(32).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
