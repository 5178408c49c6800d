//! What the node's sysfs says about SR-IOV virtual functions (VFs).
//!
//! Called by `tapmanager`'s network plan, which must know a VF when a CNI plugin put one into a pod. A leaf: it reads
//! below a root that the caller gives (`/sys`, or a fixture), changes nothing, and knows neither netlink nor pods. The
//! life of a VF (claim, configure, bind, give back) will stand here as well.
//!
//! Kernel ABI: `Documentation/ABI/testing/sysfs-bus-pci` (`physfn`, `virtfn<N>`) and the `driver` link of every bound
//! device.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Address of a PCI function: domain, bus, device and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// A virtual function as it stands in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualFunction {
    /// Its own address.
    pub addr: PciAddr,
    /// The physical function that it is a part of.
    pub pf: PciAddr,
    /// Its number among the VFs of that, as in `ip link set PF vf NUMBER`.
    pub number: u32,
    /// The driver that is bound to it, if any.
    pub driver: Option<String>,
}

/// Why sysfs gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// No such device.
    #[error("no PCI device `{addr}` on this node")]
    NoDevice {
        /// The address asked for.
        addr: PciAddr,
    },
    /// A part of sysfs cannot be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// A link that should lead to a PCI device does not.
    #[error("`{}` does not lead to a PCI device", path.display())]
    NotPci {
        /// The link.
        path: PathBuf,
        /// Where it leads instead.
        #[source]
        cause: PciAddrError,
    },
    /// The physical function does not list it.
    #[error("`{addr}` says that it is a virtual function of `{pf}`, which does not have it")]
    Disowned {
        /// The virtual function.
        addr: PciAddr,
        /// Its physical function.
        pf: PciAddr,
    },
}

/// The virtual function at `addr`; `None` if the device there is not one. `sysfs` is where sysfs is mounted.
///
/// # Errors
/// See [`DiscoverError`].
pub fn virtual_function(sysfs: &Path, addr: PciAddr) -> Result<Option<VirtualFunction>, DiscoverError> {
    let devices = sysfs.join("bus/pci/devices");
    let device = devices.join(addr.to_string());
    if !device.is_dir() {
        return Err(DiscoverError::NoDevice { addr });
    }
    let Some(pf) = link_name(&device.join("physfn"))? else { return Ok(None) };
    let pf = pci_addr(&device.join("physfn"), &pf)?;
    let number = number_of(&devices.join(pf.to_string()), addr)?.ok_or(DiscoverError::Disowned { addr, pf })?;
    let driver = link_name(&device.join("driver"))?;
    Ok(Some(VirtualFunction { addr, pf, number, driver }))
}

/// The number by which the physical function in folder `pf` knows `addr`.
fn number_of(pf: &Path, addr: PciAddr) -> Result<Option<u32>, DiscoverError> {
    let read = |cause| DiscoverError::Read { path: pf.to_owned(), cause };
    for entry in fs::read_dir(pf).map_err(read)? {
        let entry = entry.map_err(read)?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix("virtfn")) else { continue };
        let Ok(number) = number.parse() else { continue };
        let path = entry.path();
        if let Some(target) = link_name(&path)?
            && pci_addr(&path, &target)? == addr
        {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The last part of where a symbolic link leads; `None` if there is no link.
fn link_name(path: &Path) -> Result<Option<String>, DiscoverError> {
    match fs::read_link(path) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(DiscoverError::Read { path: path.to_owned(), cause }),
    }
}

fn pci_addr(path: &Path, name: &str) -> Result<PciAddr, DiscoverError> {
    name.parse().map_err(|cause| DiscoverError::NotPci { path: path.to_owned(), cause })
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

impl fmt::Display for PciAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let well_formed = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then(|| u32::from_str_radix(text, 16).ok())?
}

fn printable(text: &str) -> String {
    text.chars().take(32).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
