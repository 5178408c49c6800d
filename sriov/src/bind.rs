//! Which driver has a device, and how it gets another one: by `driver_override`, `unbind` and `drivers_probe`.
//!
//! Called by `claim`. Each function is one step that may be repeated: it looks, changes what is not yet so, and
//! looks again. `new_id` is never used: it hands every VF of a kind to a driver, those of other pods as well.
//!
//! No function waits by itself, but the kernel may: a write into `unbind` returns when the driver has let go. A network
//! driver takes up to seconds for that, and vfio-pci as long as a process has the device open. Callers keep a thread for
//! it, and unbind from vfio-pci when the guest has ended.
//!
//! Kernel ABI: `Documentation/ABI/testing/sysfs-bus-pci`. A VF of a PF with `sriov_drivers_autoprobe` 0 is probed only
//! while it has an override (`pci_device_can_probe`), and an override may change while a driver is bound. So a driver
//! is always bound by its name as the override, which is put right afterwards.

use std::io;
use std::path::PathBuf;

use crate::address::PciAddr;
use crate::sysfs::{ReadError, Sysfs};

/// The driver that hands a device to a guest.
pub const VFIO_PCI: &str = "vfio-pci";

/// Why a device has not the driver that it should have.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The kernel has no such driver.
    #[error("the kernel has no driver `{driver}` for PCI devices; load it: `modprobe {driver}`")]
    NotLoaded {
        /// The driver.
        driver: String,
    },
    /// The kernel does not take a value.
    #[error("failed to write `{text}` to `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The value.
        text: String,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// It took it and has another.
    #[error("`driver_override` of `{addr}` is `{}` after `{}` was written; look for who else sets it (driverctl, udev)",
        shown(found.as_deref()), shown(wanted.as_deref()))]
    Override {
        /// The device.
        addr: PciAddr,
        /// What it has.
        found: Option<String>,
        /// What was written.
        wanted: Option<String>,
    },
    /// The driver has not let go.
    #[error("`{addr}` still has the driver `{driver}` after it was unbound; see the kernel's log")]
    StillBound {
        /// The device.
        addr: PciAddr,
        /// Its driver.
        driver: String,
    },
    /// Something else has it.
    #[error("`{addr}` has the driver `{driver}` and not `{wanted}`; look for who else binds it (driverctl, udev)")]
    OtherDriver {
        /// The device.
        addr: PciAddr,
        /// Its driver.
        driver: String,
        /// The one that it should have.
        wanted: String,
    },
    /// The driver has refused.
    #[error("driver `{driver}` does not take `{addr}`; the kernel's log says why")]
    NotTaken {
        /// The device.
        addr: PciAddr,
        /// The driver that it should have.
        driver: String,
        /// What the kernel said to the probe, if it said something.
        #[source]
        cause: Option<io::Error>,
    },
    /// A part of sysfs cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Sysfs {
    /// Whether the kernel has this PCI driver now.
    ///
    /// # Errors
    /// [`BindError::NotLoaded`] if not.
    pub fn expect_driver(&self, driver: &str) -> Result<(), BindError> {
        if self.bus().join("drivers").join(driver).is_dir() {
            Ok(())
        } else {
            Err(BindError::NotLoaded { driver: driver.to_owned() })
        }
    }

    /// Says which driver alone may take the device; `None` lets any. The driver that is bound stays.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn set_driver_override(&self, addr: PciAddr, wanted: Option<&str>) -> Result<(), BindError> {
        if self.driver_override(addr)?.as_deref() == wanted {
            return Ok(());
        }
        let path = self.device(addr).join("driver_override");
        // An empty line clears it; nothing at all would not reach the kernel.
        self.write(path, &format!("{}\n", wanted.unwrap_or_default()))?;
        match self.driver_override(addr)? {
            found if found.as_deref() == wanted => Ok(()),
            found => Err(BindError::Override { addr, found, wanted: wanted.map(str::to_owned) }),
        }
    }

    /// Takes the device from its driver; fine if it has none. May take seconds, see above.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn unbind(&self, addr: PciAddr) -> Result<(), BindError> {
        if self.driver(addr)?.is_none() {
            return Ok(());
        }
        let written = self.write(self.device(addr).join("driver/unbind"), &addr.to_string());
        match (self.driver(addr)?, written) {
            // Whoever did it.
            (None, _) => Ok(()),
            (Some(_), Err(error)) => Err(error),
            (Some(driver), Ok(())) => Err(BindError::StillBound { addr, driver }),
        }
    }

    /// Has `driver` take the device, which has no driver, and this one as its override. Fine if it has it.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn probe(&self, addr: PciAddr, driver: &str) -> Result<(), BindError> {
        self.expect_driver(driver)?;
        let taken = |found: Option<String>| match found {
            None => Ok(false),
            Some(found) if found == driver => Ok(true),
            Some(found) => Err(BindError::OtherDriver { addr, driver: found, wanted: driver.to_owned() }),
        };
        if taken(self.driver(addr)?)? {
            return Ok(());
        }
        let path = self.bus().join("drivers_probe");
        let written = self.store(&path, &addr.to_string());
        if taken(self.driver(addr)?)? {
            return Ok(());
        }
        Err(BindError::NotTaken { addr, driver: driver.to_owned(), cause: written.err() })
    }

    fn write(&self, path: PathBuf, text: &str) -> Result<(), BindError> {
        self.store(&path, text).map_err(|cause| BindError::Write { path, text: text.trim().to_owned(), cause })
    }
}

fn shown(value: Option<&str>) -> &str {
    value.unwrap_or("none")
}

#[cfg(test)]
mod tests;
