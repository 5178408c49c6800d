//! Files by which a process gets a device that vfio-pci has.
//!
//! Called by `tapmanager` when it hands a VF to a VM's process, by `controld` when a device plugin names such a file, and never noted: numbers change with every binding.
//!
//! Kernel ABI: `Documentation/driver-api/vfio.rst` (`/dev/vfio/GROUP`; since Linux 6.6 `/dev/vfio/devices/vfioX`, whose
//! name is in the device's folder `vfio-dev`) and `Documentation/userspace-api/iommufd.rst` (`/dev/iommu`).

use std::fs::File;
use std::io;
use std::path::PathBuf;

use crate::address::PciAddr;
use crate::group::GroupError;
use crate::sysfs::{self, ReadError, Sysfs};

/// By which files a device is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VfioFiles {
    /// That of its group, which only one process may have open. A kernel built without groups has none.
    pub group: Option<PathBuf>,
    /// Its own, if the kernel makes them.
    pub device: Option<PathBuf>,
    /// The one through which an own file is used, if the kernel has it.
    pub iommufd: Option<PathBuf>,
}

/// Why a device cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum VfioError {
    /// Its group is not known.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// There is no file for the group.
    #[error("there is no `{}`; bind `{addr}` to vfio-pci, or look whether udev makes files in this `/dev`", path.display())]
    NoFile {
        /// The device.
        addr: PciAddr,
        /// The file.
        path: PathBuf,
    },
    /// A part of sysfs cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Sysfs {
    /// The files of the device at `addr`, which vfio-pci has.
    ///
    /// # Errors
    /// See [`VfioError`].
    pub fn vfio_files(&self, addr: PciAddr) -> Result<VfioFiles, VfioError> {
        let group = self.node("vfio").join(self.group(addr)?.number.to_string());
        let names = sysfs::names(&self.device(addr).join("vfio-dev"))?.unwrap_or_default();
        let device = names.first().map(|name| self.node("vfio/devices").join(name)).filter(|path| path.exists());
        match (group.exists(), device) {
            (false, None) => Err(VfioError::NoFile { addr, path: group }),
            (exists, device) => Ok(VfioFiles { group: exists.then_some(group), device, iommufd: self.iommufd() }),
        }
    }

    /// Whether a process has the device at `addr` open. The file of its group tells, also of a process that has opened the
    /// device's own; whoever may not open it, and a kernel without groups, is told no.
    ///
    /// # Errors
    /// If its group cannot be read. No process has a device that is in none.
    pub fn in_use(&self, addr: PciAddr) -> Result<bool, VfioError> {
        let group = match self.group(addr) {
            Ok(group) => self.node("vfio").join(group.number.to_string()),
            Err(GroupError::NoIommu | GroupError::NotBehindIommu { .. } | GroupError::Unsafe { .. }) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let opened = File::options().read(true).write(true).open(group);
        Ok(opened.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy))
    }

    /// The device of a file in `/dev/vfio/devices`, by the file's name: the address of a PCI device, the UUID of a mediated one. `None`
    /// if the kernel has no such file.
    ///
    /// # Errors
    /// If the link is there and cannot be read.
    pub fn device_of_file(&self, name: &str) -> Result<Option<String>, ReadError> {
        sysfs::link_name(&self.root().join("class/vfio-dev").join(name).join("device"))
    }

    /// The file of iommufd; `None` if the kernel has none.
    #[must_use]
    pub fn iommufd(&self) -> Option<PathBuf> {
        Some(self.node("iommu")).filter(|path| path.exists())
    }
}

#[cfg(test)]
mod tests;
