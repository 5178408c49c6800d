//! Physical functions (PFs) and virtual functions (VFs) of the node.
//!
//! Called by `tapmanager`'s network plan, which must know a VF when a CNI plugin put one into a pod, by its tools, which
//! list them, and by `claim`. Changes nothing.
//!
//! Kernel ABI: `Documentation/ABI/testing/sysfs-bus-pci` (`sriov_totalvfs`, `sriov_numvfs`, `sriov_vf_device`,
//! `sriov_drivers_autoprobe`, `physfn`, `virtfn<N>`, `driver_override`, `numa_node`) and the `driver` link of every
//! bound device.

mod pf;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub use pf::{PhysicalFunction, PhysicalFunctions};

use crate::address::{PciAddr, PciAddrError};
use crate::sysfs::{self, ReadError, Sysfs};

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

/// What sysfs says of any PCI device besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// The driver that alone may take it, if one is set.
    pub driver_override: Option<String>,
    /// Its netdevs by name, those alone that are in the namespace of [`Sysfs::new`]'s mount.
    pub netdevs: Vec<String>,
    /// The NUMA node that it is nearest to; the kernel may not know.
    pub numa_node: Option<u32>,
    /// Who made it, and what it is; for a VF, its PF's maker.
    pub ids: Option<(u32, u32)>,
    /// What tells this device from another one that has its address later. The kernel numbers the folders of sysfs
    /// and gives no number twice in one boot.
    pub incarnation: u64,
}

/// A device as a claim sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What kind of function it is.
    pub function: Function,
    /// The driver that is bound to it, if any.
    pub driver: Option<String>,
    /// The driver that alone may take it, if one is set.
    pub driver_override: Option<String>,
    /// See [`Details::incarnation`].
    pub incarnation: u64,
}

/// Kinds of PCI functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// One that a PF made.
    Virtual {
        /// The PF.
        pf: PciAddr,
        /// Its number there.
        number: u32,
    },
    /// One that can make others.
    Physical,
    /// Neither.
    Plain,
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
    #[error(transparent)]
    Read(#[from] ReadError),
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
    Sysfs::new(sysfs, Path::new("/dev")).virtual_function(addr)
}

impl Sysfs {
    /// The virtual function at `addr`; `None` if the device there is not one.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    pub fn virtual_function(&self, addr: PciAddr) -> Result<Option<VirtualFunction>, DiscoverError> {
        self.existing(addr)?;
        let Some((pf, number)) = self.place(addr)? else { return Ok(None) };
        let driver = self.driver(addr)?;
        Ok(Some(VirtualFunction { addr, pf, number, driver }))
    }

    /// The physical function that the device at `addr` says to be a part of; `None` if it is no virtual one. Waits for nobody.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    pub fn physfn(&self, addr: PciAddr) -> Result<Option<PciAddr>, DiscoverError> {
        self.existing(addr)?;
        self.part_of(addr)
    }

    fn part_of(&self, addr: PciAddr) -> Result<Option<PciAddr>, DiscoverError> {
        let path = self.device(addr).join("physfn");
        sysfs::link_name(&path)?.map(|pf| pci_addr(&path, &pf)).transpose()
    }

    /// The physical function of the virtual one at `addr`, and its number there.
    fn place(&self, addr: PciAddr) -> Result<Option<(PciAddr, u32)>, DiscoverError> {
        let Some(pf) = self.part_of(addr)? else { return Ok(None) };
        let number = self.number_of(pf, addr)?.ok_or(DiscoverError::Disowned { addr, pf })?;
        Ok(Some((pf, number)))
    }

    /// Vendor and device id of the device at `addr`. Waits for nobody.
    ///
    /// # Errors
    /// If they are there and cannot be read.
    pub fn ids(&self, addr: PciAddr) -> Result<Option<(u32, u32)>, ReadError> {
        let device = self.device(addr);
        Ok(sysfs::hex(&device.join("vendor"))?.zip(sysfs::hex(&device.join("device"))?))
    }

    /// More about the device at `addr`. What the kernel does not say is left out.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    pub fn details(&self, addr: PciAddr) -> Result<Details, DiscoverError> {
        let device = self.existing(addr)?;
        let path = device.join("numa_node");
        // -1 is what the kernel says when the firmware did not tell it.
        let numa_node = sysfs::number::<i64>(&path, "a NUMA node")?.and_then(|node| u32::try_from(node).ok());
        let incarnation = self.incarnation(addr)?;
        let driver_override = self.driver_override(addr)?;
        Ok(Details { driver_override, netdevs: self.netdevs(addr)?, numa_node, ids: self.ids(addr)?, incarnation })
    }

    /// The device at `addr` as a claim sees it; `None` if there is none.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    pub fn look(&self, addr: PciAddr) -> Result<Option<Seen>, DiscoverError> {
        // No more than that is read: a claim looks before each of its steps.
        let seen = || {
            let incarnation = self.incarnation(addr)?;
            let function = match self.place(addr)? {
                Some((pf, number)) => Function::Virtual { pf, number },
                None if self.device(addr).join("sriov_totalvfs").exists() => Function::Physical,
                None => Function::Plain,
            };
            let (driver, driver_override) = (self.driver(addr)?, self.driver_override(addr)?);
            Ok(Seen { function, driver, driver_override, incarnation })
        };
        match seen() {
            Ok(seen) => Ok(Some(seen)),
            Err(DiscoverError::NoDevice { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Netdevs of the device at `addr` by name, those alone that are in the namespace of [`Sysfs::new`]'s mount: a VF
    /// that a plugin moved into a pod has none here.
    ///
    /// # Errors
    /// If the folder is there and cannot be read.
    pub fn netdevs(&self, addr: PciAddr) -> Result<Vec<String>, ReadError> {
        Ok(sysfs::names(&self.device(addr).join("net"))?.unwrap_or_default())
    }

    /// The driver that is bound to the device at `addr`; `None` if none is, or there is no such device.
    ///
    /// # Errors
    /// If the link is there and cannot be read.
    pub fn driver(&self, addr: PciAddr) -> Result<Option<String>, ReadError> {
        sysfs::link_name(&self.device(addr).join("driver"))
    }

    /// The driver that alone may take the device at `addr`; `None` if any may, or there is no such device.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn driver_override(&self, addr: PciAddr) -> Result<Option<String>, ReadError> {
        sysfs::text_or_null(&self.device(addr).join("driver_override"))
    }

    /// Folder of a device that is there.
    pub(crate) fn existing(&self, addr: PciAddr) -> Result<PathBuf, DiscoverError> {
        self.incarnation(addr)?;
        Ok(self.device(addr))
    }

    /// See [`Details::incarnation`].
    fn incarnation(&self, addr: PciAddr) -> Result<u64, DiscoverError> {
        let device = self.device(addr);
        match fs::metadata(&device) {
            Ok(metadata) if metadata.is_dir() => Ok(metadata.ino()),
            Ok(_) => Err(ReadError::Io { path: device, cause: io::ErrorKind::NotADirectory.into() }.into()),
            Err(cause) if sysfs::is_absence(&cause) => Err(DiscoverError::NoDevice { addr }),
            Err(cause) => Err(ReadError::Io { path: device, cause }.into()),
        }
    }
}

fn pci_addr(path: &Path, name: &str) -> Result<PciAddr, DiscoverError> {
    name.parse().map_err(|cause| DiscoverError::NotPci { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests;
